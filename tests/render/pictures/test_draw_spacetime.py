"""The picture over time: arrows go from who sends to who hears, from the step of one to that of the other."""

import pytest
from drawing_examples import NAMES, view, views

from hpccoll.render.pictures.message_timeline import Grid, arrows
from hpccoll.render.pictures.schedule_view import view_of
from hpccoll.render.pictures.style import Style
from hpccoll.schedule.walk import trace_schedule


def drawn(one):
    traces = [trace_schedule(schedule) for schedule in one.slices]
    grid, style = Grid.of(traces), Style.of(traces)
    return grid, [
        arrow for number, trace in enumerate(traces) for arrow in arrows(trace, number, grid, style)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_arrows_begin_and_end_at_the_lines_of_their_ranks_in_their_steps(name):
    for one in (each for ranks in (2, 5, 8) for each in views(name, ranks)):
        grid, all_arrows = drawn(one)
        for arrow in all_arrows:
            m, start, end = arrow.message, arrow.pieces[0].start, arrow.pieces[-1].end
            xs = [grid.point(me, 0).x for me in (m.source, m.target)]
            assert (start.x, end.x) == pytest.approx(xs, abs=2)
            assert m.departs * grid.down <= start.y < (m.departs + 1) * grid.down
            assert m.lands * grid.down < end.y <= (m.lands + 1) * grid.down


def test_only_a_rotation_goes_round_the_back():
    _, ring = drawn(view("all_reduce-ring", 6))
    wrapped = {
        (arrow.message.source, arrow.message.target) for arrow in ring if len(arrow.pieces) == 2
    }
    assert wrapped == {(5, 0)}
    straight = [
        view(name, p)
        for name in ("all_reduce-recursive_doubling", "broadcast-binomial", "line")
        for p in (5, 8)
    ]
    straight.append(view_of("ring", "all_reduce", 4, aggregators=1))  # aggregators stand between
    assert {len(arrow.pieces) for one in straight for arrow in drawn(one)[1]} == {1}
