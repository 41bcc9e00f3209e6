"""A revealed order as text."""

from golden_page import assert_golden
from revealed_examples import CHAINS, epoch, order_of_sizes, ranges_of_chains, revealed

from hpccoll.render.revealed_order import revealed_order_lines


def test_the_table_says_where_the_order_changes_and_what_it_depends_on():
    cannot = order_of_sizes(
        [96, 4096], kinds=("varying", "unexplained", "exact"), trees=(), blocks=((0, -1),),
        in_place_agrees=False, same_bits_as=(), history=(),
    )  # fmt: skip
    fused = order_of_sizes(
        [8192], kinds=("fused",), trees=("(0 1 2)",), ranks_agree=False, same_bits_as=()
    )
    record = revealed([*ranges_of_chains(), cannot, fused], variant="mpich-ring")
    assert_golden("revealed-order", revealed_order_lines(record))


def test_one_size_and_an_algorithm_of_ours_that_adds_otherwise():
    record = revealed([order_of_sizes([64], same_bits_as=(), as_scheduled=False)], algorithm="ring")
    assert_golden("revealed-order-of-ours", revealed_order_lines(record))


def sentences(subject, *ranges):
    start = f"  {subject}: "
    lines = revealed_order_lines(revealed(ranges))
    return [line.removeprefix(start) for line in lines if line.startswith(start)]


def test_first_calls_without_a_tree_are_not_said_to_be_as_later_ones():
    history = epoch(1, 4, as_later=False), epoch(5, 100)
    (sentence,) = sentences("History", order_of_sizes([8], history=history))
    assert "calls 1 to 4" in sentence
    assert "cannot be told" in sentence
    varying = [epoch(call, call, as_later=False) for call in range(1, 101)]
    (sentence,) = sentences("History", order_of_sizes([8], history=tuple(varying)))
    assert "99 times" in sentence


def test_several_trees_at_all_sizes_are_not_one_order():
    blocks = (0, 0), (4, 1), (8, 2)
    (one,) = sentences("Size", order_of_sizes([48, 96]))
    (several,) = sentences("Size", order_of_sizes([48, 96], trees=CHAINS, blocks=blocks))
    assert "one order at 2" in one
    assert "one order" not in several
    assert "3 trees" in several
