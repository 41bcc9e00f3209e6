"""The charts beside the answers of a collective: bus bandwidth against size, and how it scales."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise
from operator import attrgetter

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.recommendations import Recommendation, RecommendedRange
from hpccoll.analysis.series_points import SeriesPoint, busbw_interval
from hpccoll.analysis.speedups import efficiencies
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count, format_size
from hpccoll.render import chart_base, chart_panels
from hpccoll.render.answers import Answers
from hpccoll.render.chart_base import Chart, ChartRecord, ExtraLayers, distinct, tooltip
from hpccoll.render.chart_panels import busbw_records, chart_record
from hpccoll.render.figure import Figure
from hpccoll.store.rows import RowKey

ANSWER_SUFFIX = "-answer"
"""The end of the names of groups whose charts are beside the answers."""

MOST_ABOVE_CURVES = 2.0
"""The most by which intervals stretch the axis of a scaling curve, as a factor of its highest value."""

ABOVE, BELOW = "above", "below"
"""The sides of a point on which a label may be."""

LABEL_ROOM = 0.08
"""The least distance of two labels, as a part of the highest value."""

BAR_HEIGHT = 7
"""The pixels of the bars of ranges along the axis of sizes."""


def answered_group(
    groups: Iterable[ChartGroup], answers: Answers, collective: str
) -> ChartGroup | None:
    """Return the group of the foremost answers of a collective, for ANSWER_FIGURES; None without answers.

    It has their recommendations only, and leaves out other programs and predicted times.
    """
    if collective not in answers.by_collective:
        return None
    foremost = answers.foremost(collective)
    for group in groups:
        own = tuple(advice for advice in foremost if advice in group.recommendations)
        if own and group.has_size and not group.many_pairs:
            name = f"{group.name}{ANSWER_SUFFIX}"
            return replace(group.fitting, name=name, recommendations=own, imports=())
    return None


def busbw_of_answers(group: ChartGroup) -> Chart | None:
    """Return the bus bandwidth of every choice on the ranks of the answers, with the ranges of the answers.

    None if fewer than two sizes have one.
    """
    shapes = _shapes_of_answers(group)
    points = tuple(point for point in group.points if group.shape_label(point.row) in shapes)
    answered = replace(group, points=points, predictions=(), whole=group.whole or group)
    data = []
    for record in busbw_records(answered):
        entry = group.legend[str(record["series"])]
        is_library = entry.number < 0 and record["line"] == chart_base.MEASURED
        data.append(record | {"line": chart_base.LIBRARY} if is_library else record)
    if len(distinct(data, "bytes")) < 2:
        return None
    limits = chart_panels.guide_lines(data, above=True)
    for recommendation in group.recommendations:
        data += _range_records(group, recommendation, data)
    return chart_panels.curves_over_size(
        answered, data, chart_base.rate_axis, _with_range_bars(limits)
    )


def _shapes_of_answers(group: ChartGroup) -> set[str]:
    rows = {point.row.key: point.row for point in group.usable}
    shapes = set()
    for recommendation in group.recommendations:
        for key in recommendation.measured.rows:
            if key in rows:
                shapes.add(group.shape_label(rows[key]))
    return shapes


def _range_records(
    group: ChartGroup, recommendation: Recommendation, data: Sequence[ChartRecord]
) -> list[ChartRecord]:
    """Return the records of the bars of ranges with advice; ``bytes`` and ``until`` are the ends of a bar."""
    in_place = recommendation.setting.in_place
    placement = {None: "", True: "in place", False: "out of place"}[in_place]
    sizes = list(recommendation.verdicts)
    records: list[ChartRecord] = []
    for advised in recommendation.ranges:
        if not advised.is_advice:
            continue
        series = group.series_of(advised.choice, recommendation)
        curve = next((record for record in data if record["series"] == series), None)
        if curve is None:
            continue
        shared = {
            name: curve[name] for name in ("series", "at", "ranks", "nodes", "machine", "line")
        }
        shared["place"] = placement
        for bar in _bars(advised, min(sizes), max(sizes)):
            records.append(shared | bar)
    return records


def _bars(advised: RecommendedRange, smallest: int, largest: int) -> Iterator[ChartRecord]:
    """Yield the bars of a range: neighbouring sizes at which the choice is clearly faster share one, and the others."""
    first, last = _ends_within(advised, smallest, largest)
    words = f"{format_size(first)} to {format_size(last)}: {advised.strength} evidence"
    runs = [
        (is_clear, list(verdicts))
        for is_clear, verdicts in groupby(advised.verdicts, key=attrgetter("is_clear"))
    ]
    begins = [first]
    for (_, before), (_, after) in pairwise(runs):
        # in the middle of two measured sizes, on the logarithmic axis
        begins.append(math.isqrt(before[-1].nbytes * after[0].nbytes))
    for (is_clear, _), begin, end in zip(runs, begins, [*begins[1:], last], strict=True):
        if begin >= end:
            continue
        bar: ChartRecord = {"bytes": begin, "until": end, "use": words}
        if not is_clear:
            bar |= {"tone": chart_base.PALE, "use": f"{words}, not clearly faster here"}
        yield bar


def _ends_within(advised: RecommendedRange, smallest: int, largest: int) -> tuple[int, int]:
    """Return the ends of a range, cut to the measured sizes."""
    first = max(advised.sizes.first, smallest)
    below = advised.sizes.below
    last = largest if below is None else min(below, largest)
    return first, last


def _with_range_bars(limits: ExtraLayers) -> ExtraLayers:
    """Return the layers of limits, and below them a bar in its colour along the axis for each range."""

    def layers(base: alt.Chart) -> list[alt.Chart]:
        ranges = base.transform_filter("isValid(datum.until)")
        rules = ranges.mark_rule(strokeWidth=BAR_HEIGHT, yOffset=-BAR_HEIGHT / 2)
        bars = rules.encode(
            x2=alt.X2("until:Q"),
            y=alt.YValue("height"),
            tooltip=tooltip("series", "use"),
        )
        return [bars, *(limits(base) if limits else [])]

    return layers


def busbw_against_ranks(group: ChartGroup) -> Chart | None:
    """Return the bus bandwidth over ranks or nodes at one size, with the efficiency at the ends of the curves."""
    size = scaling_size(group)
    return None if size is None else busbw_chart(group, size)


def busbw_chart(group: ChartGroup, size: int) -> Chart:
    """Return the bus bandwidth over ranks or nodes at a size, with the efficiency at the ends of the curves."""
    efficiency_of: dict[RowKey, float] = {}
    for efficiency in efficiencies(group.points):
        efficiency_of[efficiency.point.row.key] = efficiency.value
    points = _points_of_size(group, size)
    label_sides = _label_sides(group, [point for point in points if point.row.key in efficiency_of])
    data: list[ChartRecord] = []
    for point in points:
        record = chart_record(group, point, point.row.busbw_Bps or 0.0, busbw_interval(point))
        if point.row.key in efficiency_of:
            record["efficiency"] = f"{efficiency_of[point.row.key]:.0%}"
        if point.row.key in label_sides:
            record["label_side"] = label_sides[point.row.key]
        data.append(record)
    for point in group.predictions:
        if point.row.requested_bytes == size and point.row.busbw_Bps:
            data.append(chart_record(group, point, point.row.busbw_Bps, busbw_interval(point)))
    return chart_panels.group_curves(
        group,
        data,
        chart_panels.counts_of(group),
        partial(_axis_with_intervals, upper_ends(data)),
        titles=(),
        columns=1,
        below=_efficiency_labels,
    )


def upper_ends(data: Iterable[ChartRecord]) -> list[float]:
    """Return the upper ends of the intervals of records."""
    ends = []
    for record in data:
        high = record.get("high")
        if isinstance(high, float):
            ends.append(high)
    return ends


def _axis_with_intervals(uppers: Sequence[float], values: Iterable[float]) -> alt.Y:
    """Return the axis of bus bandwidth that has intervals whole, but keeps half of its height for the curves."""
    numbers = list(values)
    highest = min(max(uppers, default=0.0), MOST_ABOVE_CURVES * max(numbers))
    return chart_base.rate_axis_from_zero([*numbers, highest])


def scaling_size(group: ChartGroup) -> int | None:
    """Return the largest size with a bus bandwidth at the most counts of ranks or nodes; None if that is one count."""
    if group.pairs:
        return None
    counts: dict[int, set[int]] = {}
    for point in group.best_placements:
        if point.row.busbw_Bps:
            at = counts.setdefault(point.row.requested_bytes, set())
            at.add(group.axis_value(point.row))
    number_of_counts = Counter({size: len(at) for size, at in counts.items()})
    most = max(number_of_counts.values(), default=0)
    if most < 2:
        return None
    return max(size for size, number in number_of_counts.items() if number == most)


def _points_of_size(group: ChartGroup, size: int) -> list[SeriesPoint]:
    """Return the points of a size with a bus bandwidth, the faster of both placements."""
    return [
        point
        for point in group.best_placements
        if point.row.requested_bytes == size and point.row.busbw_Bps
    ]


def _label_sides(group: ChartGroup, points: Iterable[SeriesPoint]) -> dict[RowKey, str]:
    """Return on which side the last point of each curve has its label: ABOVE the highest curve, and BELOW others.

    A label that would touch that of a curve right above is left out.
    """
    ends: dict[tuple[str, str], SeriesPoint] = {}
    for point in points:
        curve = point.series, group.machine_label(point)
        if curve not in ends or point.row.ranks > ends[curve].row.ranks:
            ends[curve] = point
    falling = sorted(ends.values(), key=_busbw, reverse=True)
    sides = {point.row.key: ABOVE for point in falling[:1]}
    lowest = math.inf
    for point in falling[1:]:
        if _busbw(point) < lowest - LABEL_ROOM * _busbw(falling[0]):
            sides[point.row.key] = BELOW
            lowest = _busbw(point)
    return sides


def _busbw(point: SeriesPoint) -> float:
    return point.row.busbw_Bps or 0.0


def _efficiency_labels(base: alt.Chart) -> list[alt.Chart]:
    """Return the efficiency at the last point of each curve."""
    layers = []
    for side, distance in {ABOVE: -12, BELOW: 16}.items():
        labelled = base.transform_filter(f"datum.label_side === '{side}'")
        texts = labelled.mark_text(align="right", dx=-8, dy=distance, fontSize=11)
        layers.append(texts.encode(text=alt.Text("efficiency:N")))
    return layers


def scaling_title(group: ChartGroup) -> str:
    """Return the title of the scaling curve, with its size."""
    size = scaling_size(group)
    where = f" at {format_size(size)}" if size else ""
    return f"bus bandwidth against {group.unit}{where}"


def answers_title(group: ChartGroup) -> str:
    """Return the title of the bus bandwidth of the answers, with their ranks."""
    return f"bus bandwidth against size on {join_words(sorted(_shapes_of_answers(group)))}"


def without_busbw(group: ChartGroup) -> str:
    """Return a sentence on the counts of ranks or nodes that have no bus bandwidth; empty without any."""
    measured = {group.axis_value(point.row) for point in group.usable if not point.row.floor}
    drawn = {group.axis_value(point.row) for point in group.usable if point.row.busbw_Bps}
    missing = sorted(measured - drawn)
    if not missing:
        return ""
    counts = join_words([*missing[:-1], format_count(missing[-1], group.unit.removesuffix("s"))])
    return (
        f"Not drawn: {counts}, where nothing crosses between ranks and there is no bus bandwidth."
    )


ANSWER_FIGURES = (
    Figure(
        "busbw",
        answers_title,
        busbw_of_answers,
        "The bar along the bottom has the colour of the choice for these sizes, where the evidence is strong or fair, "
        "and is pale where the choice is not clearly faster. A curve is the median; the area around it is its 95 % "
        "interval, and short ticks are the medians of single rounds. The library's own call is dashed. A dashed grey "
        "line is a limit of the hardware: the memory of the node or the wires between nodes. Higher is faster. "
        "busbw = algbw times the factor of the collective, "
        "as in nccl-tests; GB/s are 1e9 bytes per second.",
    ),
    Figure(
        "scaling",
        scaling_title,
        busbw_against_ranks,
        "A level curve scales perfectly. The number at its end is the parallel efficiency: busbw there over busbw on "
        "the fewest ranks or nodes. Each series has the faster of its placements. Dashed curves are predicted.",
        note=without_busbw,
    ),
)
"""The charts beside the answers."""
