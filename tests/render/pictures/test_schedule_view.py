"""The view of a schedule: the layout of its ranks, its call and its parameters."""

import pytest

from hpccoll.render.pictures.schedule_view import view_of


@pytest.mark.parametrize(
    ("racks", "aggregators", "rack"),
    [
        (1, 2, (0, 0, 0, 0, 0, 0)),
        (2, 0, (0, 0, 1, 1)),
        (2, 1, (0, 0, 1, 1, 2)),
        (2, 3, (0, 0, 1, 1, 0, 1, 4)),
        (4, 0, (0, 1, 2, 3)),
    ],
)
def test_nodes_are_dealt_to_racks_in_blocks_and_switches_are_in_racks_or_above_them(racks, aggregators, rack):
    layout = view_of("ring", "all_reduce", 4, ranks_per_node=1, racks=racks, aggregators=aggregators).layout
    assert layout.rack == rack
    assert layout.node == (*range(4 + aggregators),)


def test_a_root_plays_its_role():
    one = view_of("binomial", "broadcast", 4, root=3)
    assert (one.root, one.source_units(3, 4), one.source_units(0, 4)) == (3, range(4), range(0))


def test_a_parameter_goes_to_the_call_or_to_the_algorithm():
    assert view_of("ping_pong", "send_recv", 4, parameters=["peer=2"]).call.peer == 2
    assert len(view_of("torus", "all_reduce", 6, parameters=["rows=3"]).slices) == 2


def test_what_is_declared_is_that_of_the_parameters():
    assert [view_of("torus", "all_reduce", 8, parameters=[f"rows={r}"]).declared.rounds for r in (1, 2)] == [14, 8]
    assert view_of("hierarchical", "all_reduce", 4).declared is None


def test_the_first_sentence_of_the_page_is_what_it_says():
    assert view_of("null", "all_reduce", 4).sentence == "Null: nothing is sent."
