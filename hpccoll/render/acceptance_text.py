"""The text of an acceptance: a first line for a ticket, the rows, causes to check, what is missing, and sources."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from hpccoll.analysis.row_labels import placement_label
from hpccoll.analysis.series_names import call_label
from hpccoll.common.text import (
    Columns,
    filled_columns,
    in_brackets,
    join_ends,
    join_words,
    table_lines,
    table_of,
    titled_lines,
)
from hpccoll.common.units import (
    format_count,
    format_per_cent,
    format_rate,
    format_seconds,
    format_size,
)
from hpccoll.evidence.defects import defect_sentences
from hpccoll.judge.acceptance import Judged
from hpccoll.judge.acceptance_summary import AcceptanceSummary
from hpccoll.judge.held import MACHINE, MODEL, PUBLISHED, REFERENCE, TIME, Acceptance
from hpccoll.model.published_rates import version_of
from hpccoll.render.geometry_text import geometry_lines
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row


class OriginWords(NamedTuple):
    """The words for where expectations come from; ``against`` is the name of the machine or the reference."""

    sentence: str  # of a range, in the first line
    source: str  # the noun of a source; empty if their number says nothing
    heading: str  # before the sources


ORIGINS: Mapping[str, OriginWords] = {
    PUBLISHED: OriginWords(
        "normal for {against}", "source", "published for machines of this class"
    ),
    REFERENCE: OriginWords("expected by {against}", "run", "runs of the reference"),
    MACHINE: OriginWords("expected of {against}", "", "simulated on the machine"),
    MODEL: OriginWords("expected by NCCL's own model of {against}", "", "computed"),
}
"""The words of each origin."""

DEFECTS_TITLE = "known defects that fit the failed rows"
"""The title of the defects that versions have."""

VERDICT_WORDS = {
    Acceptance.PASS: "pass",
    Acceptance.FAIL: "fail",
    Acceptance.CANNOT_TELL: "cannot tell",
}


def acceptance_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield the first line, the rows that have an expectation, causes, what cannot be told, and the sources."""
    yield first_line(acceptance)
    yield from geometry_lines(acceptance.geometries)
    sections: list[tuple[str, Iterable[str]]] = []
    for part in acceptance.parts:
        head, rows = verdict_table(part)
        if rows:
            sections.append((part_title(part), table_lines(head, rows, indent="")))
    sections.append(
        ("likely causes of the failed rows, the likeliest first", cause_lines(acceptance))
    )
    sections.append((DEFECTS_TITLE, defect_sentences(acceptance.defects, "this ")))
    sections.append(("cannot tell", reason_lines(acceptance)))
    sections.append(("where the expectations come from", origin_lines(acceptance)))
    for title, lines in sections:
        section = list(titled_lines(title, lines))
        if section:
            yield ""
            yield from section


def first_line(acceptance: AcceptanceSummary) -> str:
    """Return the verdict with the row that decides it, its range, and the rows of each verdict.

    For example ``fail: all_reduce 1 GiB on 2 nodes x 8 GPUs reaches 180 GB/s busbw; 445 to 459 GB/s
    are normal for 8xh100-400g (4 sources); 12 rows: 8 pass, 2 fail, 2 cannot tell``.
    """
    parts = [_decisive_words(acceptance)]
    file, decided = min(acceptance.decided.items(), key=lambda item: item[1])
    if decided < (acceptance.required or 0):
        rows = format_count(decided, "row")
        if len(acceptance.decided) > 1:
            rows += f" of {file}"
        parts.append(f"{rows} judged, {acceptance.required} required")
    if acceptance.missing:
        parts.append(f"{format_count(acceptance.missing, 'case')} of the reference missing")
    verdicts = Counter(judged.acceptance for judged in acceptance.judged)
    counts = []
    for verdict, words in VERDICT_WORDS.items():
        if verdicts[verdict]:
            counts.append(f"{verdicts[verdict]} {words}")
    parts.append(f"{format_count(len(acceptance.judged), 'row')}: {', '.join(counts)}")
    return f"{VERDICT_WORDS[acceptance.verdict]}: {'; '.join(parts)}"


def _decisive_words(acceptance: AcceptanceSummary) -> str:
    judged = acceptance.decisive
    if judged is None:
        return "no row has a result"
    row, expected = judged.row, judged.expected
    what = f"{_call(row)} {format_size(row.bytes)} {place_words(row)}"
    value = figure(judged, judged.measured)
    reached = (
        f"{what} takes {value}" if judged.quantity == TIME else f"{what} reaches {value} busbw"
    )
    if judged.reason or expected is None:
        subject = what if judged.acceptance is Acceptance.FAIL else reached
        return f"{subject}: {judged.reason}"
    normal = ORIGINS[expected.origin].sentence.format(against=acceptance.against)
    sources = in_brackets(_sources(judged))
    nearest = min(max(judged.measured, expected.low), expected.high)
    beyond = judged.measured / nearest - 1  # outside the range; 0 within it
    percent = format_per_cent(abs(beyond))
    if judged.acceptance is Acceptance.PASS and percent != format_per_cent(0):
        side = "below" if beyond < 0 else "above"
        return f"{reached}, {percent} {side} the {range_words(judged)} that are {normal}{sources}"
    return f"{reached}; {range_words(judged)} are {normal}{sources}"


def figure(judged: Judged, value: float) -> str:
    """Return a value of the quantity of a row, with its unit."""
    if judged.quantity == TIME:
        return format_seconds(value)
    return format_rate(value)


def range_words(judged: Judged) -> str:
    """Return what is expected of a row: ``445 to 459 GB/s``; empty if nothing is."""
    if judged.expected is None:
        return ""
    low = figure(judged, judged.expected.low)
    high = figure(judged, judged.expected.high)
    number, _, unit = low.rpartition(" ")
    if unit == high.rpartition(" ")[2]:
        low = number  # one unit for both ends
    return join_ends((low, high))


def _sources(judged: Judged) -> str:
    """Return how many sources an expectation has, in words; empty if their number says nothing."""
    if judged.expected is None:
        return ""
    noun = ORIGINS[judged.expected.origin].source
    return format_count(len(judged.expected.sources), noun) if noun else ""


def _call(row: Row) -> str:
    """Return the collective of a row, with the algorithm that it requests: ``all_reduce``, ``all_reduce ring``."""
    algorithm = row.algorithm
    if algorithm == NATIVE:
        algorithm = row.requested or call_label(row.params)
    return f"{row.collective} {algorithm}" if algorithm else row.collective


def place_words(row: Row) -> str:
    """Return where a row ran: ``on 2 nodes x 8 GPUs``, ``on 2 nodes, 7 ranks``."""
    noun = "GPU" if row.device == "cuda" else "rank"
    nodes = format_count(row.nodes, "node")
    if row.ranks_per_node:
        return f"on {nodes} x {format_count(row.ranks_per_node, noun)}"
    return f"on {nodes}, {format_count(row.ranks, noun)}"


def part_title(part: AcceptanceSummary) -> str:
    """Return the collective, the place and the quantity of a part."""
    first = part.judged[0]
    quantity = "time" if first.quantity == TIME else "busbw"
    return f"{first.row.collective} {place_words(first.row)}, {quantity}"


LABELS: Sequence[tuple[str, Callable[[Row], str]]] = (
    ("algorithm", lambda row: row.requested or call_label(row.params) or row.algorithm),
    ("type", lambda row: row.dtype),
    ("buffers", placement_label),
)
"""What the rows of a part may differ in besides the size and the file, with the heading of its column."""


def labels_of(part: AcceptanceSummary) -> Columns[Judged]:
    """Return the columns of what differs between the rows of a part."""

    def of_row(label: Callable[[Row], str]) -> Callable[[Judged], str]:
        return lambda judged: label(judged.row)

    columns = [(heading, of_row(label)) for heading, label in LABELS]
    columns.append(("file", lambda judged: part.files.get(judged.row.run_id, "")))
    differing = []
    for heading, label in columns:
        values = {label(judged) for judged in part.judged}
        if len(values) > 1:
            differing.append((heading, label))
    return differing


def verdict_table(part: AcceptanceSummary) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the cells of the rows of a part that have an expectation, or fail without one."""
    shown = [
        judged for judged in part.judged if judged.expected or judged.acceptance is Acceptance.FAIL
    ]
    head, rows = table_of((SIZE_COLUMN, *labels_of(part), *VERDICT_COLUMNS), shown)
    return filled_columns(head, rows)


def _why_failed(judged: Judged) -> str:
    return judged.reason if judged.acceptance is Acceptance.FAIL else ""


def _expected_figure(name: str, judged: Judged) -> str:
    """Return the ``low``, ``value`` or ``high`` of what is expected of a row; empty without an expectation."""
    if not judged.expected:
        return ""
    return figure(judged, getattr(judged.expected, name))


SIZE_COLUMN: tuple[str, Callable[[Judged], object]] = (
    "size",
    lambda judged: format_size(judged.row.bytes),
)
VERDICT_COLUMNS: Columns[Judged] = (
    ("measured", lambda judged: figure(judged, judged.measured)),
    ("low", partial(_expected_figure, "low")),
    ("expected", partial(_expected_figure, "value")),
    ("high", partial(_expected_figure, "high")),
    ("from", _sources),
    ("verdict", lambda judged: VERDICT_WORDS[judged.acceptance]),
    ("why", _why_failed),
)
"""The columns of every table of verdicts; what differs between its rows is in others."""


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
        expectations = [judged.expected for judged in rows if judged.expected]
        sources = dict.fromkeys(source for expected in expectations for source in expected.sources)
        named = join_ends(sources) if origin == REFERENCE else "; ".join(_without_parts(sources))
        yield f"{_sizes(rows)}: {ORIGINS[origin].heading}{in_brackets(*_gpus_and_versions(rows))}: {named}"
    yield from unnamed_gpu_lines(acceptance)


def unnamed_gpu_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield that results do not name their GPUs, and which GPUs they are held against because the user says so."""
    rows = acceptance.of_unnamed_gpus
    gpus = sorted({gpu for judged in rows if judged.expected for gpu in judged.expected.gpus})
    if gpus:
        taken = f"taken for {join_words(gpus, 'or')}, as you named {acceptance.against}"
        yield f"{_sizes(rows)}: the results do not say which GPUs ran; they are {taken}"


def _without_parts(sources: Iterable[str]) -> list[str]:
    """Return the sources without those whose repositories are all among the repositories of another source."""
    repositories = {source: set(re.split(r": |, | and ", source)) for source in sources}
    kept = []
    for source, names in repositories.items():
        is_part = any(names < others for others in repositories.values())
        if not is_part:
            kept.append(source)
    return kept


def _gpus_and_versions(rows: Sequence[Judged]) -> tuple[str, str]:
    """Return the GPUs and the versions of the library that published figures are of; both empty without figures."""
    gpus: set[str] = set()
    libraries: set[str] = set()
    for judged in rows:
        if judged.expected:
            gpus.update(judged.expected.gpus)
            libraries.update(judged.expected.libraries)
    versions = sorted(version_of(name) for name in libraries)
    return join_words(sorted(gpus)), _version_words(rows[0].row.transport.upper(), versions)


def _version_words(library: str, versions: Sequence[tuple[int, ...]]) -> str:
    """Return the oldest and the newest version; a version that is unknown is empty, and first."""
    if not versions:
        return ""
    numbers = [".".join(map(str, version)) for version in versions if version]
    if not numbers:
        return f"{library} of unknown versions"
    text = f"{library} {join_ends(numbers)}"
    if len(numbers) < len(versions):
        text += " and unknown versions"
    return text


def _sizes(rows: Sequence[Judged]) -> str:
    """Return the collectives and the smallest and the largest size of rows: ``all_reduce 8 B to 1 GiB``."""
    names = dict.fromkeys(judged.row.collective for judged in rows)
    sizes = sorted(judged.row.bytes for judged in rows)
    return f"{join_words(names)} {join_ends(map(format_size, sizes))}"
