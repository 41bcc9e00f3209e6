"""The map of what to use: a cell for each size and number of ranks, in the colour of the choice."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import altair as alt

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.analysis.recommendations import Recommendation, SizeVerdict
from hpccoll.common.units import format_seconds
from hpccoll.render.answers import Answers
from hpccoll.render.chart_base import Chart, ChartRecord, choice_cells, distinct, facet_chart, present
from hpccoll.render.colours import INK, PAPER, WHITE, entry_colour, group_colours


def choice_map(group: ChartGroup) -> Chart | None:
    """Return the map; None if nothing was compared."""
    compared = [each for each in group.recommendations if each.is_compared]
    if not compared or group.many_pairs:
        return None
    data = [cell for each in compared for cell in _choice_cells(group, each, compared)]
    sizes = list(dict.fromkeys(group.size_label(n) for n in sorted({n for e in compared for n in e.verdicts})))[::-1]
    hollow = f"(indexof({group.oversubscribed_counts}, datum.value) < 0 ? '' : '\u25cb ') + datum.label"
    x = alt.X("at:O", title=group.unit_title, axis=alt.Axis(labelAngle=0, labelExpr=hollow))
    chart = choice_cells(
        data, present(group_colours(group.legend), data), x, sizes, ("size", "on", "series", "time", "second")
    )
    panels = distinct(data, "panel")
    return facet_chart(chart, data, panels if len(panels) > 1 else (), 2)


def _choice_cells(
    group: ChartGroup, recommendation: Recommendation, compared: Sequence[Recommendation]
) -> Iterator[ChartRecord]:
    """Yield a cell for each size; a choice for both placements is in the panels of both if others are separate."""
    setting = recommendation.setting
    placements = dict.fromkeys(each.setting.in_place for each in compared)
    own = (setting.in_place,) if setting.in_place is not None or len(placements) == 1 else (False, True)
    answers = Answers(replace(each, setting=replace(each.setting, in_place=None)) for each in compared)
    details = answers.setting_details(replace(recommendation, setting=replace(setting, in_place=None)))
    for in_place in own:
        placement = "" if in_place is None else "in place" if in_place else "out of place"
        for verdict in recommendation.verdicts.values():
            yield {
                "panel": ", ".join(filter(None, (*details, placement))),
                "at": setting.ranks if group.ranks_per_node is None else setting.nodes,
                "on": setting.shape_label,
                "size": group.size_label(verdict.nbytes),
                "series": group.series_of(verdict.choice, recommendation),
                "time": format_seconds(verdict.seconds),
            } | _verdict_fields(group, verdict, recommendation)


def _verdict_fields(group: ChartGroup, verdict: SizeVerdict, recommendation: Recommendation) -> ChartRecord:
    """Return the fields of a cell that say how sure it is; its text colour keeps its contrast in dark mode."""
    if verdict.runner_up is None or verdict.lead is None:
        return {"lead": "alone", "second": "none", "clear": False, "text_colour": INK}
    clear = verdict.verdict == "clear"
    on_ink = entry_colour(group.legend[group.series_of(verdict.choice, recommendation)]) == INK
    return {
        "lead": "tie" if verdict.verdict == "tie" else f"{verdict.lead:.2f}x",
        "second": f"{group.series_of(verdict.runner_up, recommendation)}, {verdict.lead:.2f} times as long",
        "clear": clear,
        "text_colour": INK if not clear else PAPER if on_ink else WHITE,
    }
