"""The kind of picture follows from who talks to whom and where they are, not from the name of the algorithm."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from drawing_examples import NAMES, view, views
from golden_page import assert_golden

from hpccoll.render.pictures.communication_diagram import message_graphs, rank_positions, route
from hpccoll.render.pictures.message_graph import Graph
from hpccoll.render.pictures.message_timeline import Grid, arrows
from hpccoll.render.pictures.picture import picture
from hpccoll.render.pictures.schedule_view import view_of
from hpccoll.render.pictures.style import RADIUS, Style
from hpccoll.render.pictures.svg import LineStyle
from hpccoll.schedule import Copy, Layout, Recv, RecvReduce, Schedule, Send, Step, dst, tmp
from hpccoll.schedule.walk import trace_schedule


def graph(one):
    return Graph.of([trace_schedule(schedule) for schedule in one.slices])


def positions(one):
    return rank_positions(graph(one), one.layout, one.root)


SOME = """
all_reduce-ring@1 all_reduce-ring@2 all_reduce-recursive_doubling@8 all_at_once@5 all_reduce-null@4
all_reduce-ring@3 all_reduce-ring@8 all_reduce-bidirectional_ring@7 all_gather-ring@5 all_gather-bruck@4
broadcast-binomial@2 broadcast-binomial@13 reduce-binomial@8 gather-binomial@2 broadcast-chain@6
all_reduce-binomial_tree@8 all_reduce-double_binary_tree@7 line@6 all_reduce-star@6 scatter-direct@5
send_recv-ping_pong@5 all_reduce-torus@12 nodes@8 leaders_of_nodes@7 racks@8 flat@8 one_switch@9 switches@9
"""


def copy(me):
    yield Step(Copy(dst[me], tmp[0]))


def test_the_kinds_roots_and_lines_of_some_pictures_are_the_golden_page():
    lines = []
    copying = replace(view("all_gather-ring", 1), slices=(Schedule(Layout.of(1), 1, copy),))
    named = {name: view(name.split("@")[0], int(name.split("@")[1])) for name in SOME.split()}
    for name, one in {**named, "a copy": copying}.items():
        traces = [trace_schedule(schedule) for schedule in one.slices]
        where, style, grid = positions(one), Style.of(traces), Grid.of(traces)
        graphs, top = (
            len(message_graphs(traces, style, one.root)),
            min(where.at, key=lambda me: where.at[me].y),
        )
        lines.append(f"{name}: {where.kind}, {graphs} graph(s), rank {top} on top")
        drawn = [
            arrow
            for number, trace in enumerate(traces)
            for arrow in arrows(trace, number, grid, style)
        ]
        lines.append(
            f"  {len(drawn)} arrows, {len({arrow.pieces[-1].end for arrow in drawn})} ends"
        )
        lines += sorted({f"  {arrow.pieces[0].line_style}" for arrow in drawn})
        lines += [f"  legend: {entry}" for entry in ENTRIES if entry in picture(one)]
    assert_golden("pictures", lines)


ENTRIES = (
    "the arrival is reduced",
    "the arrival replaces",
    "a loop is a copy",
    "inside a node",
    "slice 1",
)


@pytest.mark.parametrize(
    "name", ["broadcast-binomial", "reduce-binomial", "gather-binomial", "broadcast-chain"]
)
def test_the_root_of_a_tree_is_on_top(name):
    collective, algorithm = name.split("-")
    at = positions(view_of(algorithm, collective, 8, root=3)).at
    assert min(at, key=lambda me: at[me].y) == 3


@pytest.mark.parametrize(("arrival", "root"), [(RecvReduce, 0), (Recv, 2)])
def test_a_line_has_its_root_where_a_sum_ends_and_where_a_message_begins(arrival, root):
    def steps(me):  # a message from rank 2 to rank 1, and from there to rank 0
        if me < 2:
            yield Step(arrival(me + 1, 0))
        if me > 0:
            yield Step(Send(me - 1, 0))

    ((top, _),) = Graph.of([trace_schedule(Schedule(Layout.of(3), 1, steps))]).trees()
    assert top == root


def test_two_rings_are_no_ring_and_no_torus_and_one_is_drawn_in_its_own_order():
    def steps(me):
        first = me // 3 * 3
        yield Step(Send(first + (me + 1) % 3, 0), Recv(first + (me - 1) % 3, 0))

    two = Graph.of([trace_schedule(Schedule(Layout.of(6), 1, steps))])
    assert (two.cycle(), two.torus()) == (None, None)
    ring = graph(view("all_reduce-ring", 5))
    order = ring.cycle()
    assert {(order[i], order[(i + 1) % 5]) for i in range(5)} == {*ring.first}


@pytest.mark.parametrize("name", NAMES)
def test_all_ranks_have_a_place_of_their_own(name):
    for one in (each for ranks in (1, 2, 5, 8, 16, 25, 33) for each in views(name, ranks)):
        where = positions(one)
        assert sorted(where.at) == list(range(one.layout.ranks))
        for a, b in combinations(where.at, 2):
            assert np.hypot(*np.subtract(where.at[a], where.at[b])) > where.radius(
                a
            ) + where.radius(b)


@pytest.mark.parametrize(
    "name",
    ["nodes", "all_reduce-torus", "broadcast-binomial", "line", "all_reduce-ring", "all_at_once"],
)
def test_lines_pass_no_rank_that_they_do_not_join(name):
    one = view(name, 12)
    where = positions(one)
    for a, b in graph(one).first:
        curve = route(where, a, b, 0.0, LineStyle("black"))
        for me in set(where.at) - {a, b}:
            away = min(np.hypot(*np.subtract(curve.at(i / 50), where.at[me])) for i in range(51))
            assert away > RADIUS, (a, b, me)
