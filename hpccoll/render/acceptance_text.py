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
from hpccoll.judge.held import (
    MACHINE,
    MODEL,
    NEAREST,
    PHYSICS,
    PUBLISHED,
    REFERENCE,
    TIME,
    Acceptance,
    Expected,
    HeldVerdict,
)
from hpccoll.judge.named_gpus import GPU_DEVICES
from hpccoll.judge.wire_bounds import PORTS
from hpccoll.model.published_rates import version_of
from hpccoll.render.geometry_text import geometry_lines
from hpccoll.render.merged_reasons import merged_reasons
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
    NEAREST: OriginWords("published", "source", "published, and too little for a verdict"),
    PHYSICS: OriginWords("carried by {against}", "", "bound"),
}
"""The words of each origin."""

DEFECTS_TITLE = "known defects that fit the failed rows"
"""The title of the defects that versions have."""

VERDICT_WORDS = {
    Acceptance.PASS: "pass",
    Acceptance.FAIL: "fail",
    Acceptance.CANNOT_TELL: "cannot tell",
}
"""The words of what a gate makes of a verdict."""

OF_SAID = {
    HeldVerdict.IMPOSSIBLE: "cannot be",
    HeldVerdict.ABOVE_PUBLISHED: "better than what was published",
    HeldVerdict.WITHIN_PUBLISHED: "within what was published",
    HeldVerdict.BELOW_PUBLISHED: "below what was published",
    HeldVerdict.FAR_BELOW_WIRES: "far below what the wires carry",
    HeldVerdict.BELOW_WIRES: "not judged",
}
"""The words of verdicts that say more than that, in the order in which their rows are counted."""

NEAR_PUBLISHED = "near what was published"
"""The words of WITHIN_PUBLISHED for a row outside the published range, by less than healthy machines differ."""

NO_VERDICT = "no verdict"
"""What the first line begins with if the deciding row says how fast it is, and no more."""


CHECK_THE_PLACE = "check that nodes, ports and ranks are those of the machine"
"""What to do about a row that cannot be."""


def verdict_words(judged: Judged) -> str:
    """Return the verdict on a row, in words."""
    is_within = judged.verdict is HeldVerdict.WITHIN_PUBLISHED
    if is_within and judged.expected and not judged.expected.contains(judged.measured):
        return NEAR_PUBLISHED
    return OF_SAID.get(judged.verdict) or VERDICT_WORDS[judged.acceptance]


def acceptance_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield the first line, causes, the rows that have an expectation, what cannot be told, and the sources."""
    yield first_line(acceptance)
    yield from geometry_lines(acceptance.geometries)
    sections: list[tuple[str, Iterable[str]]] = [
        ("likely causes, the likeliest first", cause_lines(acceptance)),
        (DEFECTS_TITLE, defect_sentences(acceptance.defects, "this ")),
    ]
    for part in acceptance.parts:
        head, rows = verdict_table(part)
        if rows:
            sections.append((part_title(part), table_lines(head, rows, indent="")))
    sections.append(("no verdict", reason_lines(acceptance)))
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
    verdicts = Counter(map(verdict_words, acceptance.judged))
    counts = []
    for words in ("pass", "fail", *OF_SAID.values(), NEAR_PUBLISHED, "cannot tell"):
        if verdicts[words]:
            counts.append(f"{verdicts[words]} {words}")
    parts.append(f"{format_count(len(acceptance.judged), 'row')}: {', '.join(counts)}")
    return f"{_whole_words(acceptance)}: {'; '.join(parts)}"


def _whole_words(acceptance: AcceptanceSummary) -> str:
    """Return the verdict on the whole, in words."""
    decisive = acceptance.decisive
    is_open = acceptance.verdict is Acceptance.CANNOT_TELL
    if is_open and decisive and decisive.verdict.is_said:
        return NO_VERDICT
    return VERDICT_WORDS[acceptance.verdict]


def _decisive_words(acceptance: AcceptanceSummary) -> str:
    judged = acceptance.decisive
    if judged is None:
        return "no row has a result"
    row, expected = judged.row, judged.expected
    call = f"{_call(row)} {format_size(row.bytes)} {place_words(row)}"
    value = figure(judged, judged.measured)
    reached = f"{call} takes {value}"
    if judged.quantity != TIME:
        reached = f"{call} reaches {value} busbw"
    if expected and judged.verdict in OF_SAID:
        return f"{reached}, {_said_words(judged, expected)}"
    if judged.reason or expected is None:
        subject = call if judged.acceptance is Acceptance.FAIL else reached
        return f"{subject}: {judged.reason}"
    normal = ORIGINS[expected.origin].sentence.format(against=acceptance.against)
    sources = in_brackets(_sources(judged))
    beyond = _beyond(judged, expected)
    if judged.acceptance is Acceptance.PASS and beyond:
        return f"{reached}, {beyond} the {range_words(judged)} that are {normal}{sources}"
    return f"{reached}; {range_words(judged)} are {normal}{sources}"


def _beyond(judged: Judged, expected: Expected) -> str:
    """Return how far a row is outside its range: ``3 % below``; empty within it, and if it is next to nothing."""
    beyond = _share_beyond(judged, expected)
    percent = format_per_cent(abs(beyond))
    if percent == format_per_cent(0):
        return ""
    return f"{percent} {'below' if beyond < 0 else 'above'}"


def _share_beyond(judged: Judged, expected: Expected) -> float:
    """Return how far a row is outside its range, as a share of the end of it that it is nearest to."""
    nearest = min(max(judged.measured, expected.low), expected.high)
    return judged.measured / nearest - 1


def _said_words(judged: Judged, expected: Expected) -> str:
    """Return how a row is beside what was published, or beside what wires carry."""
    if expected.origin == PHYSICS:
        return _beside_wires(judged, expected)
    side = _beyond(judged, expected) or "within"
    if judged.verdict is HeldVerdict.WITHIN_PUBLISHED and side != "within":
        side = f"within {format_per_cent(abs(_share_beyond(judged, expected)))} of"
    if expected.origin == PUBLISHED:
        return f"{side} the {range_words(judged)} that {_who(expected)} published: {judged.reason}"
    no_verdict = "one source makes no verdict"
    if len(expected.sources) > 1:
        no_verdict = expected.lacking
    named = join_words(expected.sources)
    published = f"what {_who(expected)} published ({range_words(judged)}, {named})"
    return f"{side} {published}; {no_verdict}"


def _who(expected: Expected) -> str:
    """Return the number of sources in words."""
    number = len(expected.sources)
    return "one source" if number == 1 else f"{number} sources"


def _beside_wires(judged: Judged, expected: Expected) -> str:
    bound = figure(judged, expected.high)
    wires = expected.sources[0]
    if judged.verdict is HeldVerdict.IMPOSSIBLE:
        return f"and {wires} carry {bound} at most: it cannot be; do: {CHECK_THE_PLACE}"
    share = format_per_cent(judged.measured / expected.high)
    if expected.ring_Bps is None:
        return f"{share} of the {bound} that {wires} carry; {judged.reason}"
    share_of_ring = format_per_cent(judged.measured / expected.ring_Bps)
    ring = f"{figure(judged, expected.ring_Bps)} that a ring gets out of {expected.ring_wires}"
    upper_bound = "a tree might get" if wires == PORTS else f"{wires} carry"
    return (
        f"{share_of_ring} of the {ring} at most ({share} of the {bound} that {upper_bound}); "
        f"{judged.reason}"
    )


def _share_of_ring(judged: Judged) -> str:
    """Return a row beside what a ring gets out of the wires: ``88 % of 12.5 GB/s``; empty if no ring is likely."""
    ring = judged.expected and judged.expected.ring_Bps
    if not ring:
        return ""
    return f"{format_per_cent(judged.measured / ring)} of {figure(judged, ring)}"


def figure(judged: Judged, value: float) -> str:
    """Return a value of the quantity of a row, with its unit."""
    if judged.quantity == TIME:
        return format_seconds(value)
    return format_rate(value)


def range_words(judged: Judged) -> str:
    """Return what is expected of a row: ``445 to 459 GB/s``; empty if nothing is."""
    expected = judged.expected
    if expected is None:
        return ""
    high = figure(judged, expected.high)
    if expected.origin == PHYSICS:
        return f"at most {high}"
    low = figure(judged, expected.low)
    if low == high:
        return low
    number, _, unit = low.rpartition(" ")
    if unit == high.rpartition(" ")[2]:
        low = number  # one unit for both ends
    return join_ends((low, high))


def _sources(judged: Judged) -> str:
    """Return how many sources an expectation has, in words; empty if their number says nothing."""
    if judged.expected is None:
        return ""
    if judged.expected.origin == PHYSICS:
        return judged.expected.sources[0]
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
    noun = "GPU" if row.device in GPU_DEVICES else "rank"
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
    if judged.expected.origin == PHYSICS and name != "high":
        return ""  # wires have an upper end only
    return figure(judged, getattr(judged.expected, name))


SIZE_COLUMN: tuple[str, Callable[[Judged], object]] = (
    "size",
    lambda judged: format_size(judged.row.bytes),
)
VERDICT_COLUMNS: Columns[Judged] = (
    ("measured", lambda judged: figure(judged, judged.measured)),
    ("low", partial(_expected_figure, "low")),
    ("expected", partial(_expected_figure, "value")),
    ("of a ring", _share_of_ring),
    ("high", partial(_expected_figure, "high")),
    ("from", _sources),
    ("verdict", verdict_words),
    ("why", _why_failed),
)
"""The columns of every table of verdicts; what differs between its rows is in others."""


def cause_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield what causes of low rows follow from, then each cause, with what checks it."""
    for because, causes in acceptance.causes.items():
        yield f"{because}:"
        for cause in causes:
            yield f"  {cause.what}"
            yield f"    check: {cause.check}"


def reason_lines(acceptance: AcceptanceSummary) -> Iterator[str]:
    """Yield a line for each reason for which rows cannot be judged, with their number and sizes.

    Reasons that differ in figures only, such as those of two sizes, share a line.
    """
    for reason, rows in merged_reasons(acceptance.reasons).items():
        where = _measured_sizes(rows, acceptance.judged)
        placements = {placement_label(judged.row) for judged in rows}
        if len(placements) == 1 and _has_both_placements(rows, acceptance.judged):
            where = f"{where} {placements.pop()}"
        yield f"{format_count(len(rows), 'row')} ({where}): {reason}"


def _has_both_placements(rows: Iterable[Judged], judged: Iterable[Judged]) -> bool:
    """Return whether calls of the sizes of rows were measured in place and out of place."""
    sizes = {row.row.bytes for row in rows}
    placements = {row.row.in_place for row in judged if row.row.bytes in sizes}
    return len(placements) > 1


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
        is_part = any(names < wider for wider in repositories.values())
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


def _measured_sizes(rows: Sequence[Judged], judged: Iterable[Judged]) -> str:
    """Return the collectives and the sizes of rows, in ranges without sizes that were measured and are not theirs."""
    sizes = {row.row.bytes for row in rows}
    ranges: list[list[int]] = [[]]
    for size in sorted({row.row.bytes for row in judged}):
        if size in sizes:
            ranges[-1].append(size)
        elif ranges[-1]:
            ranges.append([])
    words = [join_ends(map(format_size, sizes_of_range)) for sizes_of_range in ranges]
    names = dict.fromkeys(row.row.collective for row in rows)
    return f"{join_words(names)} {join_words(filter(None, words))}"


def _sizes(rows: Sequence[Judged]) -> str:
    """Return the collectives and the smallest and the largest size of rows: ``all_reduce 8 B to 1 GiB``."""
    names = dict.fromkeys(judged.row.collective for judged in rows)
    sizes = sorted(judged.row.bytes for judged in rows)
    return f"{join_words(names)} {join_ends(map(format_size, sizes))}"
