"""A chart of the report: a function of a group of rows, with its title and how to read it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from altair.utils.schemapi import debug_mode

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.rank_pairs import map_sizes
from hpccoll.render import chart_base
from hpccoll.render.chart_base import Chart
from hpccoll.render.definitions import heading_lines, heading_of

MANY_SERIES = (
    "The choices of the map are first in the legend, next to the library's own; pale curves are the series that come "
    "closest to the fastest one at any size. Not drawn: {left_out} more series, which the table of rows has."
)


def series_of(group: ChartGroup) -> list[str]:
    """Return the name of the series of each point that is drawn."""
    return [point.series for point in group.drawn]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart of the report.

    Its title is a function of the group, or a format string with ``{unit}`` (ranks or nodes),
    ``{by}`` (the unit and the size), ``{least}`` and ``{most}`` (the smallest and the largest size
    of pairs of ranks).
    """

    name: str  # unique, and valid in a file name
    title: str | Callable[[ChartGroup], str]
    draw: Callable[[ChartGroup], Chart | None]  # None: there is nothing to draw
    caption: str  # how to read the chart, with the definition of derived quantities
    # the caption if lines stand for several pairs of ranks; empty: the same
    pairs_caption: str = ""
    model_caption: str = ""  # an addition to the caption if a library's own model predicts times
    # whether curves run over ranks: the folded chart has all of them, to join them
    over_ranks: bool = False
    # whether it has a curve or a bar for each series, and not all of them may be drawn
    has_series: bool = True
    lines: Callable[[ChartGroup], Iterable[str]] = series_of  # the names of what is drawn
    # returns what the chart of a group leaves out, as the end of its caption
    note: Callable[[ChartGroup], str] | None = None

    def group_caption(self, group: ChartGroup) -> str:
        """Return the caption for ``group``."""
        caption = self.pairs_caption if group.many_pairs and self.pairs_caption else self.caption
        parts = [caption]
        if self.model_caption and group.modelled:
            parts.append(self.model_caption)
        left_out = len(group.series) - len(group.series_tones)
        if self.has_series and group.series_tones:
            parts.append(MANY_SERIES.format(left_out=left_out))
        if self.note:
            parts.append(self.note(group))
        return " ".join(filter(None, parts))

    def folded_part(self, group: ChartGroup) -> ChartGroup | None:
        """Return the part of ``group`` whose chart is folded, on a scale of its own; None without one."""
        return group if group.crowded and self.over_ranks else group.crowded

    def specification(self, group: ChartGroup) -> dict[str, object] | None:
        """Return the Vega-Lite specification for ``group``; None if there is nothing to draw."""
        with debug_mode(arg=False):  # no validation by schema: the tests do that
            drawn = group.of_few_series if self.has_series else group
            chart = self.draw(drawn)
            title = f"{heading_of(group.collective)}: {self.title_of(group)}"
            return (
                chart_base.apply_theme(chart, title, heading_lines(group), self.lines(drawn))
                if chart
                else None
            )

    def title_of(self, group: ChartGroup) -> str:
        """Return the title for ``group``, without its collective."""
        if callable(self.title):
            return self.title(group)
        least, most = map_sizes(group)
        by = f"{group.unit} and size" if group.has_size else group.unit
        return self.title.format(unit=group.unit, by=by, least=least, most=most)
