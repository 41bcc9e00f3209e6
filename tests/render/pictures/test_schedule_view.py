"""The view of a schedule: the layout of its ranks, its call and its parameters."""

import pytest

from hpccoll.render.pictures.schedule_view import view_of


@pytest.mark.parametrize(
    ("racks", "aggregators", "rack"),
    [
        (1, 2, (0, 0, 0, 0, 0, 0)),
        (2, 1, (0, 0, 1, 1, 2)),
        (2, 3, (0, 0, 1, 1, 0, 1, 4)),
        (4, 0, (0, 1, 2, 3)),
    ],
)
def test_nodes_are_dealt_to_racks_in_blocks_and_switches_are_in_racks_or_above_them(racks, aggregators, rack):
    layout = view_of("ring", "all_reduce", 4, ranks_per_node=1, racks=racks, aggregators=aggregators).layout
    assert (layout.node, layout.rack) == ((*range(4 + aggregators),), rack)


def test_arguments_reach_the_call_the_algorithm_and_its_declared_cost():
    assert view_of("binomial", "broadcast", 4, root=3).root == 3
    assert view_of("ping_pong", "send_recv", 4, parameters=["peer=2"]).call.peer == 2
    assert [view_of("torus", "all_reduce", 8, parameters=[f"rows={r}"]).declared.rounds for r in (1, 2)] == [14, 8]
    assert view_of("hierarchical", "all_reduce", 4).declared is None
