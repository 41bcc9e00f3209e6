"""The content of a machine file before it is checked: where it is, and what it has of a machine that it is ``like``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from hpccoll.common.errors import BadInputError, did_you_mean
from hpccoll.common.text import join_words
from hpccoll.common.yaml_model import load_plain_yaml

CLUSTERS = Path(__file__).parent / "clusters"
"""The directory of the described clusters that come with hpccoll."""
OF_A_CLASS = "layout", "port", "uplink", "tiers", "nccl"
"""The sections that decide which published figures are of machines like one; who changes them says ``class`` anew."""

Check: TypeAlias = Callable[[Any, Path], object]
"""Raises an error if the content of a file, the second argument, is wrong."""

MAX_LIKE = 8
"""The most files in a chain in which each is like the next one."""


def cluster_names() -> list[str]:
    """Return the names of the described clusters that come with hpccoll."""
    return sorted(path.stem for path in CLUSTERS.glob("*.yaml"))


def machine_path(name: str | Path, key: str, directory: Path | None = None) -> Path:
    """Return the file of a machine; a relative path is one from ``directory`` [the current one].

    Raises:
        BadInputError: if the machine does not exist.
    """
    clusters = cluster_names()
    if str(name) in clusters:
        return CLUSTERS / f"{name}.yaml"
    path = Path(name) if directory is None else directory / name
    if not path.exists():
        hint = _hint(str(name), clusters)
        raise BadInputError(key, str(name), f"{hint}a file, or a name of 'hpccoll list clusters'")
    return path


def _hint(name: str, clusters: list[str]) -> str:
    """Return which clusters a name that is none may mean: the nearest, or those that have it as a part, as ``h100``."""
    nearest = did_you_mean(name, clusters)
    if nearest:
        return nearest
    containing = [cluster for cluster in clusters if name.lower() in cluster]
    if not containing:
        return ""
    return f"did you mean {join_words(containing, 'or')}? "


def read_content(
    path: Path, key: str, check: Check, check_keys: Check, readers: tuple[Path, ...] = ()
) -> Any:
    """Return the content of a file, with what it has of the machine that it is like.

    Args:
        path: the file.
        key: what names it in errors.
        check: raises an error if the content of a file that another one is like is not a machine.
        check_keys: raises an error if content has keys that no machine has.
        readers: the files that are like this one.

    Raises:
        BadInputError: if a file cannot be read, or ``like`` names no machine that it can be like.
    """
    content = load_plain_yaml(path, key)
    if not isinstance(content, dict) or "like" not in content:
        return content
    own = {"name": path.stem, **content}
    like = own.pop("like")
    where = f"{path}: like"
    readers = (*readers, path.resolve())
    if not isinstance(like, str) or not like:
        raise BadInputError(where, like, "a file, or a name of 'hpccoll list clusters'")
    base = machine_path(like, where, path.parent)
    if base.resolve() in readers or len(readers) > MAX_LIKE:
        raise BadInputError(
            where, like, f"a machine that is not like this one in turn, in at most {MAX_LIKE} files"
        )
    base_content = read_content(base, where, check, check_keys, readers)
    check(base_content, base)  # its errors are its own
    # a section may be the wrong one because its keys are misspelt
    check_keys({**base_content, **own}, path)
    if "class" in base_content and "class" not in own:
        _check_class(path, like, base_content, own)
    return _patched(base_content, own)


def _check_class(path: Path, like: str, base_content: dict[str, Any], own: dict[str, Any]) -> None:
    """Check that a file changes nothing that decides which published figures are of machines like its base."""
    changed = [name for name in OF_A_CLASS if name in own]
    if not changed:
        return
    whose = f"that of {base_content['name']}, which has another {join_words(changed)}"
    remedy = "null, or the fabric, network and rates of this machine"
    if "port" in changed:
        remedy += f"; for another speed of the same network alone, leave port out: --cluster {like} --rate x0.5"
    raise BadInputError(f"{path}: class", whose, remedy)


def _patched(content: Any, patch: Any) -> Any:
    """Return content with a patch, as RFC 7386 has it: mappings key by key, null removes, others are replaced."""
    if not isinstance(content, dict) or not isinstance(patch, dict):
        return patch
    merged = dict(content)
    for name, value in patch.items():
        merged[name] = _patched(content.get(name), value)
    return {name: value for name, value in merged.items() if value is not None}
