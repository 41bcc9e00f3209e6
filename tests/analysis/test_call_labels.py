"""Labels of the call of a row: the placement of buffers and the node of a rank."""

import pytest
from row_examples import make_row

from hpccoll.analysis.call_labels import node_of_rank, placement_label


def test_the_buffers_of_a_library_that_has_one_are_no_placement():
    native = make_row("native", collective="broadcast", in_place=True)
    assert placement_label(native) == ""
    assert placement_label(make_row(collective="broadcast", in_place=True)) == "in place"
    assert placement_label(make_row(collective="send_recv")) == ""


@pytest.mark.parametrize(
    ("mapping", "nodes"), [("block", (0, 0, 1, 1)), ("cyclic", (0, 1, 0, 1)), ("mixed", (None,) * 4)]
)
def test_a_rank_is_on_the_node_that_its_mapping_says(mapping, nodes):
    row = make_row(ranks=4, nodes=2, ranks_per_node=2, mapping=mapping)
    assert tuple(node_of_rank(row, rank) for rank in range(4)) == nodes
