"""The table of all choices at every size, one for each column of the choice map."""

from dataclasses import dataclass

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.choice_times import ComparedTime
from hpccoll.analysis.recommendations import Recommendation
from hpccoll.common.units import format_interval, seconds_unit
from hpccoll.render.chart_maps import column_label


@dataclass(frozen=True, slots=True)
class TimeCell:
    """A cell: a time in the unit of its column, and what it is compared with."""

    time: str
    key: float  # the seconds, by which rows are sorted
    factor: str
    interval: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class ChoiceTable:
    """The table of a setting: a row for each choice, a column for each size."""

    setting: str
    sizes: tuple[tuple[str, str], ...]  # each with the unit of its times
    rows: tuple[tuple[str, tuple[TimeCell | None, ...]], ...]  # None: not measured


def choice_tables(group: ChartGroup) -> list[ChoiceTable]:
    """Return the tables of the settings that the map of ``group`` has."""
    if group.many_pairs:
        return []
    compared = [
        recommendation for recommendation in group.recommendations if recommendation.is_compared
    ]
    return [
        _table(group, recommendation, column_label(group, recommendation))
        for recommendation in compared
    ]


def _table(group: ChartGroup, recommendation: Recommendation, setting: str) -> ChoiceTable:
    by_size = recommendation.times
    headings = []
    scales = {}
    for size, times in by_size.items():
        fastest = min(time.seconds for time in times.values())
        scales[size], unit = seconds_unit(fastest)
        headings.append((group.size_label(size), unit))
    choices = list(
        dict.fromkeys(choice for times in reversed(by_size.values()) for choice in times)
    )
    rows = []
    for choice in choices:
        cells = tuple(_cell(times.get(choice), scales[size]) for size, times in by_size.items())
        rows.append((group.series_of(choice, recommendation), cells))
    return ChoiceTable(setting, tuple(headings), tuple(rows))


def _cell(time: ComparedTime | None, scale: float) -> TimeCell | None:
    if time is None:
        return None
    interval = format_interval(time.interval) if time.interval else "too few iterations"
    number = time.seconds / scale
    return TimeCell(
        f"{number:.3g}" if number < 999.5 else f"{number:,.0f}",
        time.seconds,
        f"{time.factor:.2f}x",
        interval,
        time.chosen,
    )
