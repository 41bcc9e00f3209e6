"""Tables of published figures as CSV: their columns, those of a directory of one's own, and text of new rows.

The columns are those of the package's table ``published.csv``; ``published_rates`` says what they
are compared with.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpccoll.cases.algorithm_registry import COLLECTIVES
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.files import read_text
from hpccoll.common.limits import (
    MAX_BYTES,
    NAME,
    RANKS,
    RANKS_PER_NODE,
    IntegerRange,
    Kind,
    OneOfWords,
    PositiveNumber,
    PrintableText,
)
from hpccoll.model.published_rates import PublishedFigure

MAX_TABLE_BYTES = 64 << 20
"""The maximum size of a table."""

SUFFIX = ".csv"

TEXT = PrintableText(NAME.maximum)
YES_OR_NO = OneOfWords(("yes", "no", ""))
ALGORITHM = OneOfWords(
    ("", "ring", "tree", "NVLS", "NVLSTree", "CollnetDirect", "CollnetChain", "PAT")
)
FLOATS = "float32", "float16", "bfloat16", "float64", "f8e4m3", "f8e5m2"
INTEGERS = "int8", "uint8", "int32", "uint32", "int64", "uint64"
ELEMENT_TYPE = OneOfWords((*FLOATS, *INTEGERS))

COLUMNS: Mapping[str, Kind[Any]] = {
    "fabric": NAME,
    "network": TEXT,
    "gpus_per_node": RANKS_PER_NODE,
    "nodes": RANKS,
    "collective": OneOfWords(tuple(COLLECTIVES)),
    "bytes": IntegerRange(1, MAX_BYTES),
    "dtype": ELEMENT_TYPE,
    "in_place": YES_OR_NO,
    "algorithm": ALGORITHM,
    "forced": YES_OR_NO,
    "busbw_GBps": PositiveNumber(1e6, "GB/s"),
    "library": TEXT,
    "machine": TEXT,
    "gpu": TEXT,
    "operator": TEXT,
    "source": NAME,
}
"""The columns with what is valid in them; an empty text stands for something that is unknown."""

OPTIONAL_COLUMNS: Mapping[str, Kind[Any]] = {"healthy": YES_OR_NO}
"""Columns that a table need not have."""

SOURCE_WORDS = "what tells it from other sources, such as 'Example Lab, acceptance of 2026-11'"
"""What belongs into the column ``source``."""


def own_tables(directory: Path, key: str) -> list[Path]:
    """Return the tables of a directory, which are checked; ``key`` is the option that names it.

    Raises:
        BadInputError: if it has no table, or a table has something that is not valid: the line
            names the file, the line, the column, the value and the valid choices.
    """
    if not directory.is_dir():
        raise BadInputError(key, str(directory), "a directory of CSV files")
    paths = sorted(directory.glob(f"*{SUFFIX}"))
    if not paths:
        needed = "a directory with CSV files, as hpccoll accept --contribute writes them"
        raise BadInputError(key, str(directory), needed)
    for path in paths:
        check_table(path, key)
    return paths


def check_table(path: Path, key: str) -> None:
    """Check a table; see ``own_tables``."""
    records = _records(path, key)
    first_line = next(records, None)
    if first_line is None:
        raise UnusableError(f"{key}: {path}", "it is empty")
    where, header = first_line
    _check_header(where, header)
    for where, cells in records:
        if len(cells) != len(header):
            raise BadInputError(f"{where}, cells", len(cells), f"{len(header)}, as line 1 has")
        _check_row(where, dict(zip(header, cells, strict=True)))


def _records(path: Path, key: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each line that is not empty, with the words for its place."""
    reader = csv.reader(io.StringIO(read_text(path, key, MAX_TABLE_BYTES)), strict=True)
    try:
        for cells in reader:
            if cells:
                yield f"{key}: {path}, line {reader.line_num}", cells
    except csv.Error as error:
        raise UnusableError(f"{key}: {path}, line {reader.line_num}", f"no CSV: {error}") from None


def _check_header(where: str, header: Sequence[str]) -> None:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise BadInputError(f"{where}, column {missing[0]}", None, f"columns: {', '.join(COLUMNS)}")
    columns = (*COLUMNS, *OPTIONAL_COLUMNS)
    for number, name in enumerate(header):
        if name not in columns or name in header[:number]:
            raise BadInputError(f"{where}, column", name, f"each once: {', '.join(columns)}")


def _check_row(where: str, cells: Mapping[str, str]) -> None:
    if not cells["source"]:
        raise BadInputError(f"{where}, column source", None, SOURCE_WORDS)
    valid = {**COLUMNS, **OPTIONAL_COLUMNS}
    for name, text in cells.items():
        valid[name].read(f"{where}, column {name}", text)


def table_text(figures: Iterable[tuple[str, PublishedFigure]]) -> str:
    """Return figures, each after its fabric, as the text of a table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for fabric, figure in figures:
        cells = _cells(fabric, figure)
        writer.writerow([cells[name] for name in COLUMNS])
    return text.getvalue()


def _cells(fabric: str, figure: PublishedFigure) -> dict[str, object]:
    """Return a figure as the texts of its columns."""
    return {
        "fabric": fabric,
        "network": figure.network or "",
        "gpus_per_node": figure.gpus_per_node,
        "nodes": figure.nodes,
        "collective": figure.collective,
        "bytes": figure.nbytes,
        "dtype": figure.dtype,
        "in_place": {True: "yes", False: "no", None: ""}[figure.in_place],
        "algorithm": figure.algorithm,
        "forced": "yes" if figure.forced else "",
        "busbw_GBps": f"{figure.rate / 1e9:.6g}",
        "library": figure.library,
        "machine": figure.run,
        "gpu": figure.gpu,
        "operator": figure.operator,
        "source": figure.source,
    }
