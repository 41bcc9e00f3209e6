"""Labels of the call of a row: the placement of buffers and the node of a rank."""

import pytest

from hpccoll.render import call_arguments


def test_the_buffers_of_a_library_that_has_one_are_no_placement(make_row):
    native = make_row("native", collective="broadcast", in_place=True)
    assert call_arguments.placement_label(native) == ""
    assert call_arguments.placement_label(make_row(collective="broadcast", in_place=True)) == "in place"
    assert call_arguments.placement_label(make_row(collective="send_recv")) == ""


@pytest.mark.parametrize(
    ("mapping", "nodes"), [("block", (0, 0, 1, 1)), ("cyclic", (0, 1, 0, 1)), ("mixed", (None,) * 4)]
)
def test_a_rank_is_on_the_node_that_its_mapping_says(make_row, mapping, nodes):
    row = make_row(ranks=4, nodes=2, ranks_per_node=2, mapping=mapping)
    assert tuple(call_arguments.node_of_rank(row, rank) for rank in range(4)) == nodes
