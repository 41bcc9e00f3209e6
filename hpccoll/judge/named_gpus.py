"""The GPUs that results name, and whether they are those of a described cluster."""

import re
from collections.abc import Iterator, Mapping

from hpccoll.common.text import join_words
from hpccoll.model.machine_file import MachineFile
from hpccoll.store.rows import Run

_MODEL = re.compile(r"\b[A-Z]*\d")
"""A model in the name of a GPU. Drivers call GPUs that they do not know ``NVIDIA Graphics Device``, without one."""


def gpus_with_model(run: Run) -> list[str]:
    """Return the names of the GPUs of a run that say which model it is, such as ``NVIDIA H100 80GB HBM3``."""
    names = dict.fromkeys(_gpu_names(run))
    return [name for name in names if _MODEL.search(name)]


def other_gpus(run: Run, machine: MachineFile) -> str:
    """Return that a run lists GPUs that a machine does not have; empty if it has them, or their names say no model."""
    like = machine.machine_class
    if like is None or not like.gpus:
        return ""
    others = [name for name in gpus_with_model(run) if not _is_one_of(name, tuple(like.gpus))]
    if not others:
        return ""
    theirs = join_words(like.gpus, "or")
    return f"the results are of {join_words(others)}, and figures of {machine.name} are of {theirs}"


def _is_one_of(name: str, gpus: tuple[str, ...]) -> bool:
    return any(word.startswith(gpus) for word in re.split(r"[^\w]", name))


def _gpu_names(run: Run) -> Iterator[str]:
    """Yield the names of the GPUs of a run: those that an output lists, or that our ranks found on their hosts."""
    listed = run.provenance.get("device_names")
    if isinstance(listed, list):
        yield from map(str, listed)
    for group in _mappings(run.provenance.get("gpus")):
        for gpu in _mappings(group.get("gpus")):
            yield str(gpu.get("name") or "")


def _mappings(value: object) -> list[Mapping[str, object]]:
    """Return the mappings of a list; none of another value, as a file of others may have it."""
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, Mapping)]
