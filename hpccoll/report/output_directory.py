"""Where a report goes, and whose report lies there already: one must not be lost to another's without a word."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from html import escape, unescape
from pathlib import Path

from hpccoll.files import open_regular

PAGE_NAME = "index.html"

_META_TAG = re.compile(r'<meta name="hpccoll-inputs" content="([^"]*)">')
_HEAD_CHARS = 1 << 14
"""Characters of a page within which its head ends."""


def default_directory(paths: Sequence[Path]) -> Path:
    """Return where the report of ``paths`` goes unless somebody says: into a directory, or beside a raw file."""
    first = paths[0]
    return first / "report" if first.is_dir() else first.with_name(f"{results_name(first)}.report")


def results_name(path: Path) -> str:
    """Return what results are called by their raw file or directory."""
    return path.resolve().name.partition(".h5")[0]


def inputs_meta_tag(paths: Iterable[Path], out: Path) -> str:
    """Return the element of HTML by which a page in ``out`` says what it is of, wherever both are moved to."""
    return f'<meta name="hpccoll-inputs" content="{escape(json.dumps(_inputs(paths, out)))}">'


def other_inputs(paths: Iterable[Path], out: Path) -> str | None:
    """Return in words what the report in ``out`` is of, where that is something else than ``paths``; None otherwise.

    Also where there is no report, or one that does not say it.
    """
    try:
        with open_regular(out / PAGE_NAME, "--out") as page:
            found = _META_TAG.search(page.read(_HEAD_CHARS).decode(errors="replace"))
        inputs = [str(name) for name in json.loads(unescape(found[1]))] if found else None
    except (OSError, ValueError, TypeError):
        return None
    if inputs is None:
        return None
    return None if inputs == _inputs(paths, out) else ", ".join(os.path.relpath(out / name) for name in inputs)


def _inputs(paths: Iterable[Path], out: Path) -> list[str]:
    return sorted({os.path.relpath(path.resolve(), out.resolve()) for path in paths})
