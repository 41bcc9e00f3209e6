"""The text of an acceptance: a first line for a ticket, the rows, causes to check, what is missing, and sources."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hpccoll.analysis.row_labels import placement_label
from hpccoll.analysis.series_names import call_label
from hpccoll.common.text import Columns, filled_columns, in_brackets, join_ends, join_words, table_lines, table_of
from hpccoll.common.units import format_count, format_per_cent, format_rate, format_seconds, format_size
from hpccoll.judge.acceptance import MACHINE, MODEL, PUBLISHED, REFERENCE, TIME, Acceptance, Judged
from hpccoll.judge.acceptance_summary import AcceptanceSummary
from hpccoll.model.published_rates import version_of
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row


class OriginWords(NamedTuple):
    """The words for where expectations come from; ``against`` is the name of the machine or the reference."""

    sentence: str  # of a range, in the first line
    source: str  # the noun of a source; empty if their number says nothing
    heading: str  # before the sources


ORIGINS: Mapping[str, OriginWords] = {
    PUBLISHED: OriginWords("normal for {against}", "source", "published for machines of this class"),
    REFERENCE: OriginWords("expected by {against}", "run", "runs of the reference"),
    MACHINE: OriginWords("expected of {against}", "", "simulated on the machine"),
    MODEL: OriginWords("expected by NCCL's own model of {against}", "", "computed"),
}
"""The words of each origin."""

VERDICT_WORDS = {Acceptance.PASS: "pass", Acceptance.FAIL: "fail", Acceptance.CANNOT_TELL: "cannot tell"}


def acceptance_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield the first line, the rows that have an expectation, causes, what cannot be told, and the sources."""
    yield first_line(acceptance)
    tables = ((part_title(part), verdict_table(part)) for part in acceptance.parts)
    sections: list[tuple[str, Iterable[str]]] = [
        *((title, table_lines(*table, indent="")) for title, table in tables if table[1]),
        ("likely causes of the failed rows, the likeliest first", cause_lines(acceptance)),
        ("cannot tell", reason_lines(acceptance)),
        ("where the expectations come from", origin_lines(acceptance)),
    ]
    for title, lines in sections:
        if indented := [f"  {line}" for line in lines]:
            yield from ("", f"{title}:", *indented)


def first_line(acceptance: AcceptanceSummary) -> str:
    """Return the verdict with the row that decides it, its range, and the rows of each verdict.

    For example ``fail: all_reduce 1 GiB on 2 nodes x 8 GPUs reaches 180 GB/s busbw; 445 to 459 GB/s are normal for
    8xh100-400g (4 sources); 12 rows: 8 pass, 2 fail, 2 cannot tell``.
    """
    file, decided = min(acceptance.decided.items(), key=lambda item: item[1])
    of_file = f" of {file}" if len(acceptance.decided) > 1 else ""
    few = f"{format_count(decided, 'row')}{of_file} judged, {acceptance.required} required"
    missing = f"{format_count(acceptance.missing, 'case')} of the reference missing"
    found = Counter(each.verdict for each in acceptance.judged)
    counts = ", ".join(f"{found[verdict]} {words}" for verdict, words in VERDICT_WORDS.items() if found[verdict])
    parts = (
        _decisive_words(acceptance), few if decided < (acceptance.required or 0) else "",
        missing if acceptance.missing else "",
        f"{format_count(len(acceptance.judged), 'row')}: {counts}",
    )  # fmt: skip
    return f"{VERDICT_WORDS[acceptance.verdict]}: {'; '.join(filter(None, parts))}"


def _decisive_words(acceptance: AcceptanceSummary) -> str:
    judged = acceptance.decisive
    if judged is None:
        return "no row has a result"
    what = f"{_call(judged.row)} {format_size(judged.row.bytes)} {place_words(judged.row)}"
    does = "takes {}" if judged.quantity == TIME else "reaches {} busbw"
    reached = f"{what} {does.format(figure(judged, judged.measured))}"
    if judged.reason or judged.expected is None:
        return f"{what if judged.verdict is Acceptance.FAIL else reached}: {judged.reason}"
    normal = ORIGINS[judged.expected.origin].sentence.format(against=acceptance.against)
    beyond = judged.measured / min(max(judged.measured, judged.expected.low), judged.expected.high) - 1
    if judged.verdict is Acceptance.PASS and (by := format_per_cent(abs(beyond))) != format_per_cent(0):
        join = f", {by} {'below' if beyond < 0 else 'above'} the {range_words(judged)} that"
    else:
        join = f"; {range_words(judged)}"
    return f"{reached}{join} are {normal}{in_brackets(_sources(judged))}"


def figure(judged: Judged, value: float) -> str:
    """Return a value of the quantity of a row, with its unit."""
    return format_seconds(value) if judged.quantity == TIME else format_rate(value)


def range_words(judged: Judged) -> str:
    """Return what is expected of a row: ``445 to 459 GB/s``; empty if nothing is."""
    ends = [figure(judged, end) for end in (judged.expected.low, judged.expected.high)] if judged.expected else []
    units = {end.rpartition(" ")[2] for end in ends}
    return join_ends([*(end.rpartition(" ")[0] for end in ends[:-1]), *ends[-1:]] if len(units) == 1 else ends)


def _sources(judged: Judged) -> str:
    """Return how many sources an expectation has, in words; empty if their number says nothing."""
    noun = ORIGINS[judged.expected.origin].source if judged.expected else ""
    return format_count(len(judged.expected.sources), noun) if judged.expected and noun else ""


def _call(row: Row) -> str:
    """Return the collective of a row, with the algorithm that it requests: ``all_reduce``, ``all_reduce ring``."""
    algorithm = row.requested or call_label(row.params) if row.algorithm == NATIVE else row.algorithm
    return f"{row.collective} {algorithm}" if algorithm else row.collective


def place_words(row: Row) -> str:
    """Return where a row ran: ``on 2 nodes x 8 GPUs``, ``on 2 nodes, 7 ranks``."""
    noun, nodes, each = "GPU" if row.device == "cuda" else "rank", format_count(row.nodes, "node"), row.ranks_per_node
    return f"on {nodes} x {format_count(each, noun)}" if each else f"on {nodes}, {format_count(row.ranks, noun)}"


def part_title(part: AcceptanceSummary) -> str:
    """Return the collective, the place and the quantity of a part."""
    row = part.judged[0].row
    return f"{row.collective} {place_words(row)}, {'time' if part.judged[0].quantity == TIME else 'busbw'}"


LABELS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("algorithm", lambda row: row.requested or call_label(row.params) or row.algorithm),
    ("type", lambda row: row.dtype),
    ("buffers", placement_label),
)
"""What the rows of a part may differ in besides the size and the file, with the heading of its column."""


def labels_of(part: AcceptanceSummary) -> Columns[Judged]:
    """Return the columns of what differs between the rows of a part."""
    every: Columns[Judged] = [
        *((heading, lambda each, label=label: label(each.row)) for heading, label in LABELS),
        ("file", lambda each: part.files.get(each.row.run_id, "")),
    ]
    return [(heading, label) for heading, label in every if len({label(each) for each in part.judged}) > 1]


def verdict_table(part: AcceptanceSummary) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of the rows of a part that have an expectation, or fail without one."""
    columns: Columns[Judged] = (
        ("size", lambda each: format_size(each.row.bytes)),
        *labels_of(part),
        ("measured", lambda each: figure(each, each.measured)),
        ("low", lambda each: figure(each, each.expected.low) if each.expected else ""),
        ("expected", lambda each: figure(each, each.expected.value) if each.expected else ""),
        ("high", lambda each: figure(each, each.expected.high) if each.expected else ""),
        ("from", _sources),
        ("verdict", lambda each: VERDICT_WORDS[each.verdict]),
        ("why", lambda each: each.reason if each.verdict is Acceptance.FAIL else ""),
    )  # fmt: skip
    shown = [each for each in part.judged if each.expected or each.verdict is Acceptance.FAIL]
    return filled_columns(*table_of(columns, shown))


def cause_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield what causes of failed rows follow from, then each cause, with what checks it."""
    for because, causes in acceptance.causes.items():
        yield f"{because}:"
        for cause in causes:
            yield f"  {cause.what}"
            yield f"    check: {cause.check}"


def reason_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield a line for each reason for which rows cannot be judged, with their number and sizes."""
    for reason, rows in acceptance.reasons.items():
        yield f"{format_count(len(rows), 'row')} ({_sizes(rows)}): {reason}"


def origin_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield a line for each origin of expectations, with its sources."""
    for origin, rows in acceptance.origins.items():
        sources = dict.fromkeys(source for each in rows if each.expected for source in each.expected.sources)
        named = join_ends(sources) if origin == REFERENCE else "; ".join(_without_parts(sources))
        yield f"{_sizes(rows)}: {ORIGINS[origin].heading}{in_brackets(_figures_of(rows))}: {named}"
    yield from unnamed_gpu_lines(acceptance)


def unnamed_gpu_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield that results do not name their GPUs, and which GPUs they are held against because the user says so."""
    rows = acceptance.of_unnamed_gpus
    gpus = sorted({gpu for each in rows if each.expected for gpu in each.expected.gpus})
    if gpus:
        taken = f"taken for {join_words(gpus, 'or')}, as you named {acceptance.against}"
        yield f"{_sizes(rows)}: the results do not say which GPUs ran; they are {taken}"


def _without_parts(sources: Iterable[str]) -> list[str]:
    """Return sources without those whose repositories another one has, too: of some sizes, an operator has fewer."""
    named = {source: {*re.split(r": |, | and ", source)} for source in sources}
    return [source for source, words in named.items() if not any(words < others for others in named.values())]


def _figures_of(rows: Sequence[Judged]) -> str:
    """Return the GPUs and the versions of the library that published figures are of; empty of other expectations."""
    every = [each.expected for each in rows if each.expected]
    libraries = sorted({name for each in every for name in each.libraries}, key=version_of)
    ends = join_ends(dict.fromkeys(".".join(map(str, version)) for each in libraries if (version := version_of(each))))
    versions = f"{rows[0].row.transport.upper()} {ends or 'of unknown versions'}" if libraries else ""
    unknown = " and unknown versions" if ends and not all(map(version_of, libraries)) else ""
    return ", ".join(
        filter(None, (join_words(sorted({gpu for each in every for gpu in each.gpus})), versions + unknown))
    )


def _sizes(rows: Sequence[Judged]) -> str:
    """Return the collectives and the smallest and the largest size of rows: ``all_reduce 8 B to 1 GiB``."""
    names = dict.fromkeys(each.row.collective for each in rows)
    return f"{join_words(names)} {join_ends(map(format_size, sorted(each.row.bytes for each in rows)))}"
