"""Trees are revealed from the results of masked inputs: any tree, fused sums, exact sums, and sums without a tree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_trees import fused_sum, trees

from hpccoll.common.errors import BadInputError
from hpccoll.order.masks import MASKS, leaves_below, mask_of, masked_value, pairs_of
from hpccoll.order.revealed import Block, LeafCounts, joined, reveal
from hpccoll.schedule import dtype_of
from hpccoll.schedule.summation_tree import chain, parse_tree


def counts_of(sums, ranks, dtype="float32"):
    """Return the counts of all pairs of a black box, which sums one vector of each rank."""
    mask, kind = mask_of(dtype, ranks), dtype_of(dtype)
    counts = LeafCounts(ranks, len(sums([np.zeros(SIZE, kind)] * ranks)))
    for pair in pairs_of(ranks):
        vectors = [np.full(SIZE, masked_value(mask, pair, me), kind) for me in range(ranks)]
        counts.add(leaves_below(sums(vectors), mask, ranks))
    return counts


SIZE = 12


@pytest.mark.parametrize("dtype", MASKS)
@given(tree=trees())
def test_any_tree_is_revealed_in_every_type(dtype, tree):
    def sums(vectors):
        return tree.evaluate(vectors, np.add)

    ranks = len(tree.ranks)
    assert counts_of(sums, ranks, dtype).blocks() == [Block(0, SIZE, "tree", tree)]


@given(tree=trees(most_parts=4))
def test_sums_of_more_than_two_at_once_are_revealed_as_such(tree):
    def sums(vectors):
        return tree.evaluate(vectors, np.add, fused_sum(np.float32))

    kind = "fused" if tree.has_fused_sums else "tree"
    assert counts_of(sums, len(tree.ranks)).blocks() == [Block(0, SIZE, kind, tree)]


@given(tree=trees())
def test_a_wider_accumulator_that_rounds_in_the_end_does_not_hide_the_tree(tree):
    def sums(vectors):
        wide = [vector.astype(np.float64) for vector in vectors]
        return tree.evaluate(wide, np.add).astype(np.float32)

    assert counts_of(sums, len(tree.ranks)).blocks() == [Block(0, SIZE, "tree", tree)]


@given(data=st.data(), ranks=st.integers(2, 6), cut=st.integers(1, SIZE - 1))
def test_every_element_is_revealed_by_the_same_calls(data, ranks, cut):
    left, right = (chain(data.draw(st.permutations(range(ranks)))) for _ in range(2))

    def sums(vectors):
        first = left.evaluate([vector[:cut] for vector in vectors], np.add)
        return np.concatenate([first, right.evaluate([vector[cut:] for vector in vectors], np.add)])

    expected = joined([Block(0, cut, "tree", left), Block(cut, SIZE, "tree", right)])
    assert counts_of(sums, ranks).blocks() == expected


@pytest.mark.parametrize("ranks", [3, 5, 8])
def test_an_exact_sum_has_no_tree(ranks):
    def sums(vectors):
        return np.array(
            [float(sum(map(int, column))) for column in zip(*vectors, strict=True)], np.float32
        )

    assert counts_of(sums, ranks).blocks() == [Block(0, SIZE, "exact")]


@given(tree=trees(most=7), data=st.data())
def test_a_result_that_no_tree_gives_is_unexplained(tree, data):
    ranks = len(tree.ranks)

    def sums(vectors):
        return tree.evaluate(vectors, np.add)

    counts = counts_of(sums, ranks)
    columns = [int(values[0]) for values in counts._counts]
    wrong = data.draw(st.integers(0, len(columns) - 1))
    columns[wrong] = 0
    assert reveal(np.array(columns, np.int32), ranks) == ("unexplained", None)


def test_trees_of_128_ranks_are_revealed():
    ranks = 128
    deep = chain(range(ranks))
    matrix = np.maximum.outer(np.arange(ranks), np.arange(ranks)) + 1
    counts = np.array([matrix[i, j] for i, j in pairs_of(ranks)], np.int32)
    assert reveal(counts, ranks) == ("tree", deep)


def test_no_elements_have_no_blocks():
    counts = LeafCounts(3, 0)
    for _ in pairs_of(3):
        counts.add(np.zeros(0, np.int32))
    assert counts.blocks() == []


def test_two_ranks_have_one_tree():
    assert reveal(np.array([2], np.int32), 2) == ("tree", parse_tree("(0 1)"))


@pytest.mark.parametrize(("dtype", "ranks"), [("int32", 4), ("bfloat16", 300), ("float16", 4096)])
def test_types_without_an_order_or_with_too_few_bits_are_refused(dtype, ranks):
    with pytest.raises(BadInputError, match=dtype):
        mask_of(dtype, ranks)
