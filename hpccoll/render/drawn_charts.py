"""Which charts of a report are drawn: many settings would make the page slow to build and to open.

A chart takes about half a second, and its PNG as long. What is not drawn is in the table of rows,
and the page says so.
"""

from collections.abc import Collection, Sequence

from hpccoll.analysis.chart_groups import ChartGroup
from hpccoll.render.answers import Answers

MOST_GROUPS = 8
"""The settings whose charts are drawn, unless there are more collectives: each has those of its foremost setting."""
MOST_PNGS = 12
"""The pictures that are also PNG files; all are SVG files."""


def drawn_groups(groups: Sequence[ChartGroup], answers: Answers) -> Collection[str]:
    """Return the names of the groups whose charts are drawn.

    These are the foremost of each collective, then others with answers, then any others, up to
    MOST_GROUPS.
    """
    names = [group.name for group in groups]
    if len(groups) <= MOST_GROUPS:
        return set(names)
    collectives = dict.fromkeys(group.collective for group in groups)
    foremost = [_foremost_group(groups, answers, name) for name in collectives]
    with_answers = [group.name for group in groups if group.recommendations]
    order = list(dict.fromkeys([*foremost, *with_answers, *names]))
    return set(order[: max(MOST_GROUPS, len(foremost))])


def _foremost_group(groups: Sequence[ChartGroup], answers: Answers, collective: str) -> str:
    """Return the name of the group with the first answer of a collective, or of its first group."""
    members = [group for group in groups if group.collective == collective]
    if collective not in answers.by_collective:
        return members[0].name
    answer = answers.foremost(collective)[0]
    named = [group.name for group in members if any(own is answer for own in group.recommendations)]
    return [*named, members[0].name][0]
