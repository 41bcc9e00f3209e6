"""The text of an acceptance: a first line for a ticket, the rows, causes to check, what is missing, and sources."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hpccoll.analysis.row_labels import placement_label
from hpccoll.analysis.series_names import call_label
from hpccoll.common.text import Columns, filled_columns, join_ends, join_words, table_lines, table_of
from hpccoll.common.units import format_count, format_seconds, format_size, rate_unit
from hpccoll.model.acceptance import MACHINE, MODEL, PUBLISHED, REFERENCE, TIME, Acceptance, Expected, Judged
from hpccoll.model.acceptance_summary import AcceptanceSummary
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row


class OriginWords(NamedTuple):
    """The words for where expectations come from."""

    sentence: str  # of a range, in the first line; ``against`` is the name of the machine or the reference
    source: str  # the noun of a source; empty if their number says nothing
    heading: str  # before the sources


ORIGINS: Mapping[str, OriginWords] = {
    PUBLISHED: OriginWords("normal for {against}", "source", "published of machines of this class"),
    REFERENCE: OriginWords("expected by {against}", "run", "runs of the reference"),
    MACHINE: OriginWords("expected of {against}", "", "simulated on {against}"),
    MODEL: OriginWords("expected by NCCL's own model of {against}", "", "NCCL's own model, with {against}"),
}
"""The words of each origin."""

VERDICT_WORDS = {Acceptance.PASS: "pass", Acceptance.FAIL: "fail", Acceptance.CANNOT_TELL: "cannot tell"}

MOST_CAUSES = 5
"""The most causes that a terminal lists."""


def acceptance_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield the first line, the rows that have an expectation, causes, what cannot be told, and the sources."""
    yield first_line(acceptance)
    for part in acceptance.parts:
        head, cells = verdict_table(part)
        if cells:
            yield ""
            yield f"{curve_heading(part)}:"
            yield from table_lines(head, cells)
    if acceptance.causes:
        yield ""
        yield "likely causes of the failed rows, the likeliest first:"
        for what, because, check in cause_rows(acceptance)[:MOST_CAUSES]:
            yield f"  {what}: {because}"
            yield f"    check: {check}"
    if acceptance.reasons:
        yield ""
        yield "cannot tell:"
        yield from (f"  {line}" for line in reason_lines(acceptance))
    if acceptance.origins:
        yield ""
        yield "where the expectations come from:"
        yield from (f"  {line}" for line in origin_lines(acceptance))


def first_line(acceptance: AcceptanceSummary) -> str:
    """Return the verdict with the row that decides it, its range, and the rows of each verdict.

    For example ``fail: all_reduce 1 GiB on 2 nodes x 8 GPUs reaches 180 GB/s busbw; 445 to 459 are normal for
    8xh100-400g (4 sources); 12 rows: 8 pass, 2 fail, 2 cannot tell``.
    """
    parts = [_decisive_words(acceptance)]
    if acceptance.decided < acceptance.required:
        parts.append(f"{format_count(acceptance.decided, 'row')} judged, {acceptance.required} required")
    counts = [f"{count} {VERDICT_WORDS[verdict]}" for verdict, count in acceptance.counts.items() if count]
    parts.append(f"{format_count(len(acceptance.judged), 'row')}: {', '.join(counts)}")
    return f"{VERDICT_WORDS[acceptance.verdict]}: {'; '.join(parts)}"


def _decisive_words(acceptance: AcceptanceSummary) -> str:
    judged = acceptance.decisive
    if judged is None:
        return next(iter(acceptance.reasons), "no row has a result")
    what = f"{call_words(judged.row)} {format_size(judged.row.bytes)} {place_words(judged.row)}"
    if judged.expected is None:
        return f"{what}: {judged.reason}"
    low, high = judged.expected.low, judged.expected.high
    if judged.quantity == TIME:
        measured, normal = f"takes {format_seconds(judged.measured)}", join_ends(map(format_seconds, (low, high)))
    else:
        scale, unit = rate_unit(judged.measured)
        measured = f"reaches {_number(judged.measured, scale)} {unit} busbw"
        normal = join_ends(_number(end, scale) for end in (low, high))
    words = ORIGINS[judged.expected.origin]
    count = len(judged.expected.sources)
    sources = f" ({format_count(count, words.source)})" if words.source else ""
    expected = f"{normal} are {words.sentence.format(against=acceptance.against)}{sources}"
    return f"{what} {measured}; {expected}"


def _number(rate: float, scale: float) -> str:
    """Return a rate in a unit with three digits: ``445``, ``45.2``, ``1230``."""
    number = rate / scale
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def call_words(row: Row) -> str:
    """Return the collective of a row, with the algorithm that it requests: ``all_reduce``, ``all_reduce ring``."""
    algorithm = row.requested or call_label(row.params) if row.algorithm == NATIVE else row.algorithm
    return f"{row.collective} {algorithm}" if algorithm else row.collective


def place_words(row: Row) -> str:
    """Return where a row ran: ``on 2 nodes x 8 GPUs``, ``on 2 nodes, 7 ranks``."""
    noun, nodes = "GPU" if row.device == "cuda" else "rank", format_count(row.nodes, "node")
    each = row.ranks_per_node
    return f"on {nodes} x {format_count(each, noun)}" if each else f"on {nodes}, {format_count(row.ranks, noun)}"


def curve_heading(part: AcceptanceSummary) -> str:
    """Return the collective and the shape of a part, with the unit of its figures."""
    row = part.judged[0].row
    unit = "time" if part.judged[0].quantity == TIME else f"busbw in {curve_unit(part)[1]}"
    return f"{row.collective} {place_words(row)}, {unit}"


def curve_unit(part: AcceptanceSummary) -> tuple[float, str]:
    """Return scale and name of the unit of the rates of a part."""
    return rate_unit(max(each.measured for each in part.judged))


LABELS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("algorithm", lambda row: row.requested or call_label(row.params) or row.algorithm),
    ("type", lambda row: row.dtype),
    ("buffers", placement_label),
)
"""What the rows of a part may differ in besides the size, with the heading of its column."""


ENDS: Sequence[tuple[str, Callable[[Expected], float]]] = (
    ("low", lambda expected: expected.low), ("expected", lambda expected: expected.value),
    ("high", lambda expected: expected.high),
)  # fmt: skip
"""The figures of what is expected, with their headings."""


def labels_of(part: AcceptanceSummary) -> list[tuple[str, Callable[[Judged], str]]]:
    """Return the headings and the texts of what differs between the rows of a part."""
    every: list[tuple[str, Callable[[Judged], str]]] = [
        *((heading, lambda each, label=label: label(each.row)) for heading, label in LABELS),
        ("file", lambda each: part.files.get(each.row.run_id, "")),
    ]
    return [(heading, label) for heading, label in every if len({label(each) for each in part.judged}) > 1]


def verdict_table(part: AcceptanceSummary) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of the rows of a part that have an expectation, or fail without one."""
    scale, _ = curve_unit(part)

    def figure(judged: Judged, value: float | None) -> str:
        if value is None:
            return ""
        return format_seconds(value) if judged.quantity == TIME else _number(value, scale)

    columns: Columns[Judged] = (
        ("size", lambda each: format_size(each.row.bytes)),
        *labels_of(part),
        ("measured", lambda each: figure(each, each.measured)),
        *((heading, lambda each, end=end: figure(each, each.expected and end(each.expected))) for heading, end in ENDS),
        ("verdict", lambda each: VERDICT_WORDS[each.verdict]),
        ("why", lambda each: each.reason if each.verdict is Acceptance.FAIL else ""),
    )
    shown = [each for each in part.judged if each.expected or each.verdict is Acceptance.FAIL]
    return filled_columns(*table_of(columns, shown))


def cause_rows(acceptance: AcceptanceSummary) -> list[tuple[str, str, str]]:
    """Return the causes of failed rows: what, the symptom that it follows from, and the command that checks it."""
    return [(cause.what, cause.because, cause.check) for cause in acceptance.causes]


def reason_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield a line for each reason for which rows cannot be judged, with their number and sizes."""
    for reason, rows in acceptance.reasons.items():
        yield f"{format_count(len(rows), 'row')} ({sizes_words(rows)}): {reason}"


def origin_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield a line for each origin of expectations and its sources."""
    for (origin, sources), rows in acceptance.origins.items():
        heading = ORIGINS[origin].heading.format(against=acceptance.against)
        yield f"{sizes_words(rows)}: {heading}{f': {join_words(sources)}' if sources else ''}"


def sizes_words(rows: Sequence[Judged]) -> str:
    """Return the collectives and the smallest and the largest size of rows: ``all_reduce 8 B to 1 GiB``."""
    sizes: dict[CallKey, list[int]] = {}
    for each in rows:
        sizes.setdefault(CallKey.of(each.row).only("collective"), []).append(each.row.bytes)
    return "; ".join(
        f"{key.collective} {join_ends(map(format_size, sorted(several)))}" for key, several in sizes.items()
    )
