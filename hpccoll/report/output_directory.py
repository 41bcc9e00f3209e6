"""The directory of a report, and the inputs of a report that it already contains."""

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
"""Bytes at the beginning of a page that contain its head."""


def default_directory(paths: Sequence[Path]) -> Path:
    """Return the default directory of a report: ``DIR/report``, or ``FILE.report`` next to a raw file."""
    first = paths[0]
    return first / "report" if first.is_dir() else first.with_name(f"{results_name(first)}.report")


def results_name(path: Path) -> str:
    """Return the name of results: that of their directory, or of their raw file without its suffix."""
    return path.resolve().name.partition(".h5")[0]


def inputs_meta_tag(paths: Iterable[Path], out: Path) -> str:
    """Return the meta element that records the inputs of a page in ``out``, relative to ``out``."""
    return f'<meta name="hpccoll-inputs" content="{escape(json.dumps(_inputs(paths, out)))}">'


def other_inputs(paths: Iterable[Path], out: Path) -> str | None:
    """Return the inputs of the report in ``out`` if they differ from ``paths``, as text; else None.

    None as well if there is no report, or a report that does not record its inputs.
    """
    try:
        with open_regular(out / PAGE_NAME, "--out") as page:
            match = _META_TAG.search(page.read(_HEAD_CHARS).decode(errors="replace"))
        inputs = [str(name) for name in json.loads(unescape(match[1]))] if match else None
    except (OSError, ValueError, TypeError):
        return None
    if inputs is None:
        return None
    return None if inputs == _inputs(paths, out) else ", ".join(os.path.relpath(out / name) for name in inputs)


def _inputs(paths: Iterable[Path], out: Path) -> list[str]:
    return sorted({os.path.relpath(path.resolve(), out.resolve()) for path in paths})
