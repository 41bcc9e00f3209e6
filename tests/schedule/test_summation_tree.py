"""Summation trees: expressions, equality, digests and evaluation."""

import numpy as np
import pytest

from hpccoll.schedule.summation_tree import (
    chain,
    leaf,
    leaf_digests,
    node,
    node_digests,
    parse_tree,
)


@pytest.mark.parametrize(
    "text", ["0", "(0 1)", "((0 1) (2 3))", "(((0 1) 2) 3)", "((0 1 2 3) 4 5 6 7)", "(0 (1 12))"]
)
def test_an_expression_is_read_as_it_is_written(text):
    assert str(parse_tree(text)) == text


def test_trees_that_differ_only_in_the_order_of_children_are_one():
    assert parse_tree("((3 2) (1 0))") is parse_tree("((0 1) (2 3))")
    assert node(leaf(1), node(leaf(2), leaf(0))) is parse_tree("((0 2) 1)")


def test_trees_that_add_in_another_order_differ_and_have_other_digests():
    texts = ["((0 1) (2 3))", "((0 2) (1 3))", "((0 3) (1 2))", "(((0 1) 2) 3)", "(0 1 2 3)"]
    trees = {parse_tree(text) for text in texts}
    assert len(trees) == len(texts)
    assert len({tree.digest for tree in trees}) == len(texts)


@pytest.mark.parametrize("text", ["", "(", "(0 1", "0 1)", "(0)", "0 1", "(0 a)", "()", "(0 -1)"])
def test_a_text_that_is_not_one_expression_is_refused(text):
    with pytest.raises(ValueError, match=r"not|without|children"):
        parse_tree(text)


def test_depth_and_ranks_are_those_of_the_leaves():
    tree = parse_tree("((4 1) (2 (3 0)))")
    assert tree.depth == 3
    assert tree.ranks == (0, 1, 2, 3, 4)
    assert tree.least == 0
    assert not tree.has_fused_sums
    assert parse_tree("(0 1 2)").has_fused_sums


def test_digests_of_arrays_are_those_of_trees():
    ranks = np.arange(4)
    pairs = node_digests(leaf_digests(ranks[::2]), leaf_digests(ranks[1::2]))
    assert pairs.tolist() == [parse_tree("(0 1)").digest, parse_tree("(2 3)").digest]
    whole = node_digests(pairs[1:], pairs[:1])
    assert whole.tolist() == [parse_tree("((0 1) (2 3))").digest]


def test_a_digest_never_changes():
    assert f"{parse_tree('((0 1) (2 3))').digest:016x}" == "4c2cb5147e4a8746"


def test_a_tree_adds_in_its_order():
    values = [np.float32(v) for v in (1e8, 1, -1e8, 1)]
    assert parse_tree("(((0 1) 2) 3)").evaluate(values, np.add) == 1
    assert parse_tree("((0 2) (1 3))").evaluate(values, np.add) == 2


def test_a_fused_sum_is_added_by_its_own_function():
    tree = parse_tree("((0 1 2) 3)")
    with pytest.raises(ValueError, match="fused"):
        tree.evaluate([1, 2, 3, 4], lambda a, b: a + b)
    assert tree.evaluate([1, 2, 3, 4], lambda a, b: a + b, fused=sum) == 10


def test_a_chain_of_thousands_of_ranks_is_written_read_and_added():
    tree = chain(range(5000))
    assert tree.depth == 4999
    assert parse_tree(str(tree)) is tree
    assert tree.evaluate(range(5000), lambda a, b: a + b) == sum(range(5000))
