"""The procedure of one size, driven by all ranks of a simulated library."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_trees import fused_sum, trees

from hpccoll.order.procedure import ProbedCall, reveal_at_size
from hpccoll.order.revealed import CANNOT_TELL, Block, digest_of, join_ranks, joined, pack, unpack
from hpccoll.schedule.summation_tree import chain, parse_tree

ELEMENTS = 24


def reveal(library, ranks, *, scattered=False, dtype="float32"):
    """Run the procedure on all ranks in step; return the joined blocks, whether ranks agree, and whether in place does.

    Args:
        library: returns the sums of one call, given the vectors of all ranks and whether it is in place.
        ranks: how many there are.
        scattered: whether each rank gets a part of the sums.
        dtype: the type of the elements.
    """
    share = ELEMENTS // ranks if scattered else ELEMENTS
    firsts = [rank * share if scattered else 0 for rank in range(ranks)]
    procedures = [
        reveal_at_size(ProbedCall(rank, ranks, np.dtype(dtype), ELEMENTS, first, share))
        for rank, first in enumerate(firsts)
    ]
    calls = [next(procedure) for procedure in procedures]
    while True:
        sums = library([call.vector for call in calls], in_place=calls[0].in_place)
        parts = [sums[first : first + share] for first in firsts]
        try:
            calls = [
                procedure.send(part.copy())
                for procedure, part in zip(procedures, parts, strict=True)
            ]
        except StopIteration as end:
            orders = [end.value]
        else:
            continue
        for procedure, part in zip(procedures[1:], parts[1:], strict=True):
            with pytest.raises(StopIteration) as ended:
                procedure.send(part.copy())
            orders.append(ended.value.value)
        blocks, agree = join_ranks(unpack(pack(order.blocks)) for order in orders)
        return blocks, agree, all(order.in_place_agrees for order in orders)


@given(tree=trees(), dtype=st.sampled_from(["float32", "float64", "float16"]))
def test_a_tree_is_revealed_and_confirmed(tree, dtype):
    def library(vectors, *, in_place):  # noqa: ARG001
        return tree.evaluate(vectors, np.add)

    blocks = [Block(0, ELEMENTS, "tree", tree)]
    assert reveal(library, len(tree.ranks), dtype=dtype) == (blocks, True, True)


@given(data=st.data(), ranks=st.sampled_from([2, 3, 4, 6]))
def test_parts_of_ranks_are_joined(data, ranks):
    share = ELEMENTS // ranks
    orders = [chain(data.draw(st.permutations(range(ranks)))) for _ in range(ranks)]

    def library(vectors, *, in_place):  # noqa: ARG001
        sums = [
            order.evaluate([vector[k * share : (k + 1) * share] for vector in vectors], np.add)
            for k, order in enumerate(orders)
        ]
        return np.concatenate(sums)

    parts = [Block(k * share, (k + 1) * share, "tree", o) for k, o in enumerate(orders)]
    assert reveal(library, ranks, scattered=True) == (joined(parts), True, True)


@given(ranks=st.integers(3, 7), seed=st.integers(0, 1 << 30))
def test_a_library_that_reorders_from_call_to_call_has_no_order(ranks, seed):
    rng = np.random.default_rng(seed)

    def library(vectors, *, in_place):  # noqa: ARG001
        return chain(rng.permutation(ranks).tolist()).evaluate(vectors, np.add)

    blocks, _, _ = reveal(library, ranks)
    assert {block.kind for block in blocks} <= {*CANNOT_TELL}
    assert digest_of(blocks) is None


def test_a_library_that_changes_once_while_it_is_probed_has_no_order():
    calls = 0

    def library(vectors, *, in_place):  # noqa: ARG001
        nonlocal calls
        calls += 1
        text = "((0 1) (2 3))" if calls < 4 else "((0 2) (1 3))"
        return parse_tree(text).evaluate(vectors, np.add)

    blocks, _, _ = reveal(library, 4)
    assert [block.kind for block in blocks] == ["unexplained"]


def test_another_order_in_place_is_noticed():
    def library(vectors, *, in_place):
        return chain([3, 2, 1, 0] if in_place else range(4)).evaluate(vectors, np.add)

    blocks, agree, in_place_agrees = reveal(library, 4)
    assert (blocks, agree) == ([Block(0, ELEMENTS, "tree", chain(range(4)))], True)
    assert not in_place_agrees


def test_sums_of_several_at_once_are_fused_and_need_no_confirmation():
    tree = parse_tree("((0 1 2) (3 4))")

    def library(vectors, *, in_place):  # noqa: ARG001
        return tree.evaluate(vectors, np.add, fused_sum(np.float32))

    assert reveal(library, 5)[0] == [Block(0, ELEMENTS, "fused", tree)]


def test_ranks_with_other_bits_disagree():
    chains = [Block(0, 4, "tree", chain(range(3)))], [Block(0, 4, "tree", chain([2, 1, 0]))]
    assert join_ranks([chains[0], [], chains[0]]) == (chains[0], True)
    assert join_ranks(chains) == (chains[0], False)


def test_digests_depend_on_where_trees_are_but_not_on_the_size_with_one_tree():
    left, right = chain(range(3)), chain([2, 1, 0])
    both = [Block(0, 4, "tree", left), Block(4, 8, "tree", right)]
    assert digest_of([Block(0, 4, "tree", left)]) == digest_of([Block(0, 9, "tree", left)])
    assert digest_of(both) != digest_of([Block(0, 3, "tree", left), Block(3, 8, "tree", right)])
    assert digest_of([*both, Block(8, 9, "varying")]) is None
