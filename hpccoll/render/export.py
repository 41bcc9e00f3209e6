"""Rows as text for other programs: JSON, CSV, the table of nccl-tests, and lines for programs that search logs.

JSON and CSV have the fields of ``Row`` in order, unscaled: seconds, bytes, bytes per second. An absent value is null in
JSON and empty in CSV; a number that is not finite counts as absent. In CSV, a quote precedes text that a spreadsheet
would read as a formula.
"""

import csv
import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from hpccoll.analysis.row_labels import concurrent_label, traffic_pattern
from hpccoll.analysis.setting import Choice
from hpccoll.cases.case import AGGREGATED, NCCL_TESTS, OSU, SINGLE
from hpccoll.common.errors import BadInputError
from hpccoll.common.terminal import printable
from hpccoll.common.units import format_count, format_number
from hpccoll.schedule import COLLECTIVES, NCCL_TESTS_NAMES, itemsize
from hpccoll.store.call_key import CallKey, rank_pair, root_rank
from hpccoll.store.rows import ROW_COLUMNS, Results, Row


def export(results: Results, format: str) -> str:  # noqa: A002 - the name of the option
    """Return the rows of ``results`` as text in ``format``, a key of ``FORMATS``.

    Raises:
        BadInputError: ``format`` is unknown.
    """
    if format not in FORMATS:
        raise BadInputError("format", format, FORMATS)
    return FORMATS[format](results)


def row_record(row: Row) -> dict[str, object]:
    """Return the fields of ``row`` in order, ready for JSON."""
    values = {name: getattr(row, name) for name in ROW_COLUMNS}
    values["params"] = dict(row.params)
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            values[name] = None
    return values


def _json(results: Results) -> str:
    rows = ",\n".join(json.dumps(row_record(row), allow_nan=False) for row in results.rows)
    return f"[\n{rows}\n]\n" if rows else "[]\n"


def _csv(results: Results) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ROW_COLUMNS)
    for row in results.rows:
        writer.writerow([_cell(value) for value in row_record(row).values()])
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
    return json.dumps(value) if isinstance(value, bool | Mapping | tuple) else value


_TYPES = {name: theirs for theirs, name in NCCL_TESTS_NAMES.items()}
_WIDTHS = (12, 12, 8, 6, 6, 9, 7, 7, 7, 9, 7, 7, 7)
_HEADINGS = (
    ("", "", "", "", "", "out-of-place", "", "", "", "in-place", "", "", ""),
    ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2),
    ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2),
)


def _nccl_tests(results: Results) -> str:
    """Return one table for each series of a run, identified by comment lines, which begin with ``#``.

    Training steps are left out: nccl-tests have nothing like them. Where a case was timed in several ways, the rows of
    the timing that is most like nccl-tests are exported.
    """
    tables: dict[object, dict[tuple[int, int], dict[bool, Row]]] = defaultdict(lambda: defaultdict(dict))
    collectives = results.without_steps.rows
    nearest: dict[object, int] = {}
    for row in collectives:
        if row.median_s:
            case, place = _without_timing(row), _NEAREST_FIRST.index(row.timing)
            nearest[case] = min(place, nearest.get(case, place))
    left_out: Counter[str] = Counter()
    for row in collectives:
        place = _NEAREST_FIRST.index(row.timing)
        if nearest.get(_without_timing(row), place) < place:
            left_out[row.timing] += 1
            continue
        series = row.run_id, Choice.of(row), CallKey.of(row).without("requested_bytes", "in_place")
        tables[series][row.bytes, row.requested_bytes][row.in_place] = row
    head = ["# sizes are binary, GB is 1e9 bytes, time is the median; N/A: no result"]
    used = {
        row.rule if row.timing == SINGLE else row.timing
        for sizes in tables.values()
        for placements in sizes.values()
        for row in placements.values()
        if row.rule
    }
    head += [text for timing, text in _TIMING_TEXTS.items() if timing in used]
    if steps := len(results.rows) - len(collectives):
        head.append(f"# left out, because they are no collectives: {format_count(steps, 'training step')}")
    if left_out:
        counts = ", ".join(f"{timing} {format_count(count, 'row')}" for timing, count in sorted(left_out.items()))
        head.append(f"# left out, because a timing more like nccl-tests has the same cases: {counts}")
    return "\n".join([*head, *(line for sizes in tables.values() for line in _nccl_table(sizes))]) + "\n"


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
    return row.run_id, row.bytes, Choice.of(row), CallKey.of(row).without("timing", "rule")


def _call_text(row: Row) -> str:
    two, pattern = rank_pair(row), traffic_pattern(row)
    between = f"between ranks {two[0]} and {two[1]}" if two else ""
    parameters = (f"{name}={value}" for name, value in Choice.of(row).params)
    traffic = f"traffic {pattern}" if pattern else ""
    load = f"load {row.load}" if row.load else ""
    return " ".join(filter(None, (between, concurrent_label(row), traffic, load, *parameters)))


def _nccl_table(sizes: Mapping[tuple[int, int], Mapping[bool, Row]]) -> list[str]:
    rows = [row for _, placements in sorted(sizes.items()) for row in placements.values()]
    first = rows[0]
    call = (first.collective, first.algorithm, first.variant or "", _call_text(first), f"over {first.transport}")
    aggregators = f"and {format_count(first.aggregators, 'aggregator')} " if first.aggregators else ""
    where = f"{format_count(first.ranks, 'rank')} {aggregators}on {format_count(first.nodes, 'node')}"
    where += f", mapping {first.mapping}" if first.nodes > 1 else ""
    rule = f", rule {first.rule}" if first.timing == SINGLE and first.rule else ""
    how = f"{first.kind}, timing {first.timing}{rule}, run {first.run_id}"
    return [
        f"#\n# {' '.join(filter(None, call))}: {where}, {how}",
        *("#" + _aligned(head)[1:] for head in _HEADINGS),
        *(_nccl_line(placements) for _, placements in sorted(sizes.items())),
        *dict.fromkeys(
            f"# {row.bytes} B: {row.status}: {' '.join((row.reason or '').split())}"
            for row in rows
            if row.status != "ok"
        ),  # once for both placements
    ]


def _nccl_line(placements: Mapping[bool, Row]) -> str:
    row = next(iter(placements.values()))
    call = (_TYPES.get(row.dtype, row.dtype), row.op or "none", -1 if root_rank(row) is None else root_rank(row))
    return _aligned((row.bytes, _count(row), *call, *_timing(placements.get(False)), *_timing(placements.get(True))))


def _aligned(cells: tuple[object, ...]) -> str:
    return " ".join(f"{cell!s:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)).rstrip()


def _count(row: Row) -> int:
    """Return the elements that nccl-tests counts: those of the buffer, or of one rank's block."""
    each = itemsize(row.dtype)
    collective = COLLECTIVES.get(row.collective)
    return collective.elements(row.requested_bytes, each, row.ranks) if collective else row.bytes // each


def _timing(row: Row | None) -> tuple[str, ...]:
    if row is None or row.median_s is None:
        return ("N/A",) * 4
    rates = ("N/A" if rate is None else format_number(rate / 1e9, 2) for rate in (row.algbw_Bps, row.busbw_Bps))
    return (format_number(row.median_s * 1e6, 2), *rates, "N/A" if row.wrong is None else str(row.wrong))


LINE_FIELDS = "ranks", "nodes", "status", "median_s", "ci_low_s", "ci_high_s", "algbw_Bps", "busbw_Bps"


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
    return "none" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


FORMATS: Mapping[str, Callable[[Results], str]] = {
    "json": _json, "csv": _csv, "nccl-tests": _nccl_tests, "lines": _lines,
}  # fmt: skip
"""All formats of ``export``."""
