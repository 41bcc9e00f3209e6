"""The file of a revealed order: what it says about a size, and what is wrong with another file."""

from dataclasses import replace

import pytest
from revealed_examples import epoch, order_of_sizes, ranges_of_chains, revealed

from hpccoll.common.errors import BadInputError
from hpccoll.order.order_file import RevealedOrder, is_order_file


def test_a_file_is_read_as_it_was_written(tmp_path):
    record = revealed()
    record.save(tmp_path / "a.json")
    assert RevealedOrder.load(tmp_path / "a.json", "--order") == record


def test_a_size_between_probed_ones_has_their_order_but_is_not_probed():
    order = revealed().of("all_reduce")
    assert order.range_at(8) is order.range_at(6) is order.ranges[0]
    assert order.is_probed(8)
    assert not order.is_probed(6)
    assert order.range_at(1 << 30) is None
    assert revealed().of("reduce") is None


def test_an_answer_needs_a_tree_of_every_element_and_of_ours_that_of_the_schedule():
    record = revealed()
    assert record.is_answered
    (order, *rest) = record.collectives[0].ranges
    for change in ({"kinds": ("tree", "varying")}, {"ranks_agree": False}, {"as_scheduled": False}):
        ranges = replace(order, **change), *rest
        collectives = (replace(record.collectives[0], ranges=ranges),)
        assert not replace(record, collectives=collectives).is_answered


@pytest.mark.parametrize(
    ("before", "after"),
    [("((0 1) 2)", "((0 1 2"), ("hpccoll-order 1.0", "other"), ("ranges", "rows")],
)
def test_what_is_not_such_a_file_is_refused(tmp_path, before, after):
    path = tmp_path / "a.json"
    revealed().save(path)
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(BadInputError, match="--order"):
        RevealedOrder.load(path, "--order")


def test_first_calls_that_add_otherwise_are_history():
    assert [order.depends_on_history for order in ranges_of_chains()] == [True, False]
    untold = epoch(1, 4, as_later=False), epoch(5, 100)
    assert order_of_sizes([8], history=untold).depends_on_history


def test_only_files_of_orders_are_taken_for_such(tmp_path):
    path = tmp_path / "a.json"
    revealed().save(path)
    assert is_order_file(path)
    path.write_text(path.read_text()[:-20])
    assert is_order_file(path)  # so that what is wrong with it is said
    path.write_text('{"schema": "hpccoll-tuning 2.0"}')
    assert not is_order_file(path)
    assert not is_order_file(tmp_path)
    assert not is_order_file(tmp_path / "missing.json")
