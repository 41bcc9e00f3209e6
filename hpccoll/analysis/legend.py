"""The number of each series in charts, from which its colour and its mark follow."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpccoll.analysis.row_labels import fell_back
from hpccoll.schedule.collective import NATIVE

if TYPE_CHECKING:
    from hpccoll.analysis.series_points import SeriesPoint


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """What distinguishes a series in all charts of a report."""

    number: int = -1  # its number from 0; -1 of the library's own, and of floors
    is_floor: bool = False  # whether it is a floor
    is_predicted: bool = False  # whether it was predicted: it has the number of the series that it predicts


def legend_entries(points: Iterable["SeriesPoint"], answers: Collection[str]) -> dict[str, LegendEntry]:
    """Return the entry of every series, in the order of legends.

    Series of different collectives may share a number, because the palette is limited; ``answers`` are those that share
    the charts of all collectives.
    """
    points = sorted(points, key=lambda point: not point.row.predicted)  # the rows of measured series count
    rows = {point.colour_of or point.series: point.row for point in points}
    charts: dict[str, set[str]] = defaultdict(set)
    for point in points:
        charts[point.row.collective].add(point.colour_of or point.series)
    predictions = {point.series: point.colour_of for point in points if point.colour_of}
    floors = [name for name in sorted(rows) if rows[name].floor]
    native_names = (name for name in rows if rows[name].algorithm == NATIVE)
    native = sorted(native_names, key=lambda name: (fell_back(rows[name]), name))[:1]
    by_name = sorted(rows, key=lambda name: (rows[name].predicted, name))
    others = [name for name in by_name if name not in floors and name not in native]
    numbers = _assign_numbers(others, [*charts.values(), answers])
    legend = dict.fromkeys(native, LegendEntry()) | {name: LegendEntry(number) for name, number in numbers.items()}
    legend |= dict.fromkeys(floors, LegendEntry(is_floor=True))
    return legend | {name: replace(legend[of], is_predicted=True) for name, of in predictions.items()}


def _assign_numbers(names: Iterable[str], groups: Iterable[Iterable[str]]) -> dict[str, int]:
    """Return for each name, in their order, the lowest number that no other name in one of its groups has."""
    neighbours: Mapping[str, set[str]] = defaultdict(set)
    for group in map(set, groups):
        for name in group:
            neighbours[name] |= group
    numbers: dict[str, int] = {}
    for name in names:
        used = {numbers.get(other) for other in neighbours[name]}
        numbers[name] = next(i for i in range(len(used) + 1) if i not in used)
    return numbers
