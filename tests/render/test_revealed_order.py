"""A revealed order as text."""

from golden_page import assert_golden
from revealed_examples import order_of_sizes, ranges_of_chains, revealed

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
