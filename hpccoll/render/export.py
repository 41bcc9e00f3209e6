"""Rows for other programs: JSON, CSV, the table of nccl-tests, lines for programs that search logs, and others.

JSON and CSV have the fields of ``Row`` in order, unscaled: seconds, bytes, bytes per second. An
absent value is null in JSON and empty in CSV; a number that is not finite counts as absent. In CSV,
a quote precedes text that a spreadsheet would read as a formula.
"""

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from hpccoll.analysis.row_labels import concurrent_label, traffic_pattern
from hpccoll.analysis.setting import Choice
from hpccoll.cases.case import AGGREGATED, NCCL_TESTS, OSU, SINGLE
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.terminal import printable
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count, format_number
from hpccoll.render.openmetrics import openmetrics_text
from hpccoll.render.parquet import parquet_bytes
from hpccoll.render.row_record import row_record
from hpccoll.schedule import COLLECTIVES, NCCL_TESTS_NAMES, itemsize
from hpccoll.store.call_key import CallKey, rank_pair, root_rank
from hpccoll.store.rows import ROW_COLUMNS, Results, Row


def export(
    results: Results,
    format: str,  # noqa: A002 - the name of the option
    columns: Sequence[str] = (),
) -> str | bytes:
    """Return the rows of ``results``; Parquet is bytes.

    Args:
        results: the results.
        format: a key of ``FORMATS``.
        columns: the names of the columns, for a key of ``WITH_COLUMNS`` [all columns].

    Raises:
        BadInputError: if ``format`` or a column is unknown, or the format needs a package that is
            not installed.
        UnusableError: if the columns of the format cannot be chosen.
    """
    if format not in FORMATS:
        raise BadInputError("format", format, FORMATS)
    if not columns:
        return FORMATS[format](results)
    if format not in WITH_COLUMNS:
        raise UnusableError("--columns", f"with --format {join_words(WITH_COLUMNS, 'or')} only")
    for name in columns:
        if name not in ROW_COLUMNS:
            raise BadInputError("--columns", name, ROW_COLUMNS)
    return WITH_COLUMNS[format](results, columns)


def _json(results: Results, columns: Sequence[str] = ROW_COLUMNS) -> str:
    if not results.rows:
        return "[]\n"
    records: list[str] = []
    for row in results.rows:
        record = row_record(row)
        chosen = {name: record[name] for name in columns}
        records.append(json.dumps(chosen, allow_nan=False))
    rows = ",\n".join(records)
    return f"[\n{rows}\n]\n"


def _csv(results: Results, columns: Sequence[str] = ROW_COLUMNS) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in results.rows:
        record = row_record(row)
        writer.writerow([_cell(record[name]) for name in columns])
    return text.getvalue()


FORMULA_STARTS = ("=", "+", "-", "@", "\t")
"""First characters of text that a spreadsheet computes; a carriage return is written as an escape sequence."""


def _cell(value: object) -> object:
    """Return the text of a cell, with a quote before formulas, as OWASP recommends against CSV injection."""
    if value is None or type(value) in (int, float):  # most cells
        return value
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if text.startswith(FORMULA_STARTS) else text
    if isinstance(value, bool | Mapping | tuple):
        return json.dumps(value)
    return value


_Size: TypeAlias = tuple[int, int]
"""The bytes of a call, and the bytes that were requested."""

_TYPES = {name: theirs for theirs, name in NCCL_TESTS_NAMES.items()}
_WIDTHS = (12, 12, 8, 6, 6, 9, 7, 7, 7, 9, 7, 7, 7)
_HEADINGS = (
    ("", "", "", "", "", "out-of-place", "", "", "", "in-place", "", "", ""),
    ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2),
    ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2),
)


def _nccl_tests(results: Results) -> str:
    """Return one table for each series of a run, identified by comment lines, which begin with ``#``.

    Training steps are left out: nccl-tests have nothing like them. Where a case was timed in
    several ways, the rows of the timing that is most like nccl-tests are exported.
    """
    tables: dict[object, dict[_Size, dict[bool, Row]]] = defaultdict(lambda: defaultdict(dict))
    rows = results.without_workloads.rows
    nearest = _nearest_timings(rows)
    left_out: Counter[str] = Counter()
    for row in rows:
        place = _NEAREST_FIRST.index(row.timing)
        if nearest.get(_without_timing(row), place) < place:
            left_out[row.timing] += 1
            continue
        series = row.run_id, Choice.of(row), CallKey.of(row).without("requested_bytes", "in_place")
        tables[series][row.bytes, row.requested_bytes][row.in_place] = row
    used = _timings_of(tables.values())
    lines = ["# sizes are binary, GB is 1e9 bytes, time is the median; N/A: no result"]
    lines += [text for timing, text in _TIMING_TEXTS.items() if timing in used]
    steps = len(results.rows) - len(rows)
    if steps:
        lines.append(
            f"# left out, because they are not collectives: {format_count(steps, 'training step')}"
        )
    if left_out:
        counts = ", ".join(
            f"{timing} {format_count(count, 'row')}" for timing, count in sorted(left_out.items())
        )
        lines.append(
            f"# left out, because a timing more like nccl-tests has the same cases: {counts}"
        )
    for sizes in tables.values():
        lines += _nccl_table(sizes)
    return "\n".join(lines) + "\n"


def _timings_of(tables: Iterable[Mapping[_Size, Mapping[bool, Row]]]) -> set[str]:
    """Return the timings of rows, as keys of ``_TIMING_TEXTS``."""
    timings = set()
    for sizes in tables:
        for placements in sizes.values():
            for row in placements.values():
                if row.rule:
                    timings.add(row.rule if row.timing == SINGLE else row.timing)
    return timings


def _nearest_timings(rows: Iterable[Row]) -> dict[object, int]:
    """Return for each case with a time the place in ``_NEAREST_FIRST`` of its timing that is most like nccl-tests."""
    nearest: dict[object, int] = {}
    for row in rows:
        if row.median_s:
            case = _without_timing(row)
            place = _NEAREST_FIRST.index(row.timing)
            nearest[case] = min(place, nearest.get(case, place))
    return nearest


_TIMING_TEXTS = {
    "max": "# timing single, rule max: of one operation after a barrier, the longest over ranks; nccl-tests times "
    "many, queued back to back",
    "span": "# timing single, rule span: of one operation after a barrier, first start to last end over ranks; "
    "nccl-tests times many, queued back to back",
    AGGREGATED: "# timing aggregated: of many operations queued back to back, over their number; the longest over "
    "ranks, and the median over iterations; nccl-tests prints the mean",
    NCCL_TESTS: "# timing nccl-tests: the loop of nccl-tests 2.19, the mean over operations and ranks",
    OSU: "# timing osu: the loop of the OSU Micro-Benchmarks, the mean over iterations and ranks",
}
"""What the rule of single operations, or else the timing, measures."""


_NEAREST_FIRST = NCCL_TESTS, AGGREGATED, SINGLE, OSU
"""The timings, the one first that is most like that of nccl-tests."""


def _without_timing(row: Row) -> object:
    """Return what identifies a case in all of its timings."""
    call = CallKey.of(row).without("timing", "rule")
    return row.run_id, row.bytes, Choice.of(row), call


def _call_text(row: Row) -> str:
    words = []
    pair = rank_pair(row)
    if pair:
        words.append(f"between ranks {pair[0]} and {pair[1]}")
    words.append(concurrent_label(row))
    pattern = traffic_pattern(row)
    if pattern:
        words.append(f"traffic {pattern}")
    if row.load:
        words.append(f"load {row.load}")
    words += [f"{name}={value}" for name, value in Choice.of(row).params]
    return " ".join(filter(None, words))


def _nccl_table(sizes: Mapping[_Size, Mapping[bool, Row]]) -> list[str]:
    by_size = [placements for _, placements in sorted(sizes.items())]
    rows: list[Row] = []
    for placements in by_size:
        rows += placements.values()
    lines = [f"#\n# {_series_text(rows[0])}"]
    lines += ["#" + _aligned(head)[1:] for head in _HEADINGS]
    lines += map(_nccl_line, by_size)
    failures: dict[str, None] = {}  # once for both placements
    for row in rows:
        if row.status != "ok":
            reason = " ".join((row.reason or "").split())
            failures[f"# {row.bytes} B: {row.status}: {reason}"] = None
    return [*lines, *failures]


def _series_text(row: Row) -> str:
    """Return the call, the place and the timing of a series, from its first row."""
    call = (
        row.collective,
        row.algorithm,
        row.variant or "",
        _call_text(row),
        f"over {row.transport}",
    )
    where = format_count(row.ranks, "rank")
    if row.aggregators:
        where += f" and {format_count(row.aggregators, 'aggregator')}"
    where += f" on {format_count(row.nodes, 'node')}"
    if row.nodes > 1:
        where += f", mapping {row.mapping}"
    how = f"{row.kind}, timing {row.timing}"
    if row.timing == SINGLE and row.rule:
        how += f", rule {row.rule}"
    return f"{' '.join(filter(None, call))}: {where}, {how}, run {row.run_id}"


def _nccl_line(placements: Mapping[bool, Row]) -> str:
    row = next(iter(placements.values()))
    root = root_rank(row)
    call = (_TYPES.get(row.dtype, row.dtype), row.op or "none", -1 if root is None else root)
    out_of_place = _timing(placements.get(False))
    in_place = _timing(placements.get(True))
    return _aligned((row.bytes, _count(row), *call, *out_of_place, *in_place))


def _aligned(cells: tuple[object, ...]) -> str:
    padded = [f"{cell!s:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)]
    return " ".join(padded).rstrip()


def _count(row: Row) -> int:
    """Return the elements that nccl-tests counts: those of the buffer, or of one rank's block."""
    element_bytes = itemsize(row.dtype)
    collective = COLLECTIVES.get(row.collective)
    if collective is None:
        return row.bytes // element_bytes
    return collective.elements(row.requested_bytes, element_bytes, row.ranks)


def _timing(row: Row | None) -> tuple[str, ...]:
    """Return the cells of a placement: time, algorithm bandwidth, bus bandwidth and wrong elements."""
    if row is None or row.median_s is None:
        return ("N/A",) * 4
    time = format_number(row.median_s * 1e6, 2)
    wrong = "N/A" if row.wrong is None else str(row.wrong)
    return time, _gigabytes(row.algbw_Bps), _gigabytes(row.busbw_Bps), wrong


def _gigabytes(rate: float | None) -> str:
    return "N/A" if rate is None else format_number(rate / 1e9, 2)


LINE_FIELDS = (
    "ranks",
    "nodes",
    "status",
    "median_s",
    "ci_low_s",
    "ci_high_s",
    "algbw_Bps",
    "busbw_Bps",
)


def _lines(results: Results) -> str:
    """Return a line of ``name=value`` for each row, for programs that search logs: ``case`` first, then LINE_FIELDS.

    A line has all fields in this order and no blanks in values; absent values are ``none``.
    """
    lines = []
    for row in results.rows:
        record = row_record(row)
        words = (f"{name}={_word(record[name])}" for name in LINE_FIELDS)
        lines.append(f"case={row.case_id} {' '.join(words)}\n")
    return "".join(lines)


def _word(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


WITH_COLUMNS: Mapping[str, Callable[[Results, Sequence[str]], str]] = {"json": _json, "csv": _csv}
"""The formats with a choice of columns."""

FORMATS: Mapping[str, Callable[[Results], str | bytes]] = {
    "json": _json,
    "csv": _csv,
    "nccl-tests": _nccl_tests,
    "lines": _lines,
    "openmetrics": openmetrics_text,
    "parquet": parquet_bytes,
}
"""All formats of ``export``."""

ENDINGS: Mapping[str, str] = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".prom": "openmetrics",
}
"""The formats that the name of a file determines; ``.prom`` is what node_exporter reads."""
