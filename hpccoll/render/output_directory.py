"""The directory of a report, and the inputs of a report that it already contains."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import unescape
from pathlib import Path

from hpccoll.common.errors import UnusableError, format_value
from hpccoll.common.files import open_regular
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Results

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


def input_names(results: Results, paths: Sequence[Path]) -> dict[str, str]:
    """Return the name of the input of each run, by run_id, if several inputs measured the same case, or predicted it.

    A name is that of the results, or the path if several inputs have that name.
    """
    names = [results_name(path) for path in paths]
    labels: dict[Path, str] = {}  # of resolved inputs; of one that is given twice, the first
    for name, path in zip(names, paths, strict=True):
        labels.setdefault(path.resolve(), name if names.count(name) == 1 else str(path))
    by_run = {run.run_id: _label_of_file(Path(run.path).resolve(), labels) for run in results.runs}
    inputs_of_case = defaultdict[tuple[str, int, CallKey], set[str]](set)
    for row in results.rows:
        case = row.case_id, row.precedence, CallKey.of(row).only("ranks", "nodes")
        inputs_of_case[case].add(by_run.get(row.run_id, ""))
    several = any(len(inputs) > 1 for inputs in inputs_of_case.values())
    return by_run if several else {}


def _label_of_file(file: Path, labels: Mapping[Path, str]) -> str:
    """Return the label of the input that a file is, or is in; empty if it is in none."""
    for path, label in labels.items():
        if file.is_relative_to(path):
            return label
    return ""


def inputs_text(paths: Iterable[Path], out: Path) -> str:
    """Return what a page in ``out`` records of its inputs: their paths relative to ``out``, as JSON."""
    return json.dumps(_inputs(paths, out))


def recorded_inputs(out: Path) -> list[str] | None:
    """Return the inputs of the report in ``out``, relative to it; None if it has no page.

    Raises:
        UnusableError: if the page is not a report, which would be lost, or cannot be read.
    """
    if not os.path.lexists(out / PAGE_NAME):
        return None
    with open_regular(out / PAGE_NAME, "--out") as page:
        head = page.read(_HEAD_CHARS).decode(errors="replace")
    if not head:
        return None
    try:
        (match,) = _META_TAG.findall(head)
        return [str(name) for name in json.loads(unescape(match))]
    except (ValueError, TypeError):
        reason = f"hpccoll did not write its {PAGE_NAME}; do: choose another directory"
        raise UnusableError(
            "--out", f"{format_value(str(out))} cannot be written: {reason}"
        ) from None


def other_inputs(paths: Iterable[Path], out: Path) -> str | None:
    """Return the inputs of the report in ``out`` if they differ from ``paths``, as text; else None."""
    inputs = recorded_inputs(out)
    if inputs is None or inputs == _inputs(paths, out):
        return None
    return ", ".join(os.path.relpath(out / name) for name in inputs)


def _inputs(paths: Iterable[Path], out: Path) -> list[str]:
    return sorted({os.path.relpath(path.resolve(), out.resolve()) for path in paths})
