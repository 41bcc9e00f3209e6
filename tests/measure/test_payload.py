"""The payload is exact in any order of reduction, and its diagnosis names the fault."""

from dataclasses import replace
from functools import cache, reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.measure.run.payload import (
    GENERATIONS,
    PERIOD,
    Payload,
    bits,
    concatenated,
    contribution,
)
from hpccoll.schedule import BFLOAT16, COLLECTIVES, DTYPES, REDUCTIONS, collective, dtype_of

EVERY = (*DTYPES, BFLOAT16)
RANKS = (1, 2, 3, 4, 7, 16, 300, 3000)
N = 8192
"""Positions that every rank count is tried at; all of them are below."""


def payload(op="sum", dtype="float32", count=40, p=4, me=1, name="all_reduce", **more):
    return Payload(collective(name).call(p), REDUCTIONS[op], dtype_of(dtype), count, me, **more)


def source(one):
    return concatenated(one.source(), one.dtype)


def expected(one, *, in_place=False):
    return concatenated(one.expected(in_place=in_place), one.dtype)


def assert_same(some, others):
    """See that two lists of units hold the same bits."""
    assert [len(unit) for unit in some] == [len(unit) for unit in others]
    assert all((bits(a) == bits(b)).all() for a, b in zip(some, others, strict=True))


@cache
def contributions(op, dtype, p, n):
    positions = np.arange(n)
    return tuple(contribution(1, origin, positions, p, dtype_of(dtype), op) for origin in range(p))


def folded_in_integers(values, op):
    """Fold as Python's integers do, which never round."""
    fold = {"sum": sum, "avg": sum, "min": min, "max": max}[op]
    return [fold(map(int, column)) for column in zip(*values, strict=True)]


@given(
    st.sampled_from(EVERY),
    st.sampled_from([*REDUCTIONS]),
    st.sampled_from([*range(1, 40), 300, 3000]),
    st.randoms(use_true_random=False),
)
def test_any_tree_over_any_permutation_gives_the_bits_of_unbounded_integers(dtype, op, p, random):
    values = list(contributions(op, dtype, p, 50))
    folded = reduce(REDUCTIONS[op].fold, values)
    assert np.isfinite(folded).all()
    if op != "prod":
        assert [*map(int, folded)] == folded_in_integers(values, op)
    while len(values) > 1:
        random.shuffle(values)
        some = len(values) if p > 40 else 2  # of many ranks, one permutation is enough
        values.append(reduce(REDUCTIONS[op].fold, [values.pop() for _ in range(some)]))
    assert (bits(values[0]) == bits(folded)).all()


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("dtype", EVERY)
def test_one_rank_decides_each_element_of_a_minimum_or_maximum_and_the_others_have_the_next_number(
    dtype, op
):
    for p in RANKS[1:5]:
        values = np.stack(contributions(op, dtype, p, N))
        patterns = np.abs(values).view(f"u{values.itemsize}").astype(np.int64)
        extreme = patterns.min(axis=0)
        assert ((patterns == extreme).sum(axis=0) == 1).all()
        assert (patterns - extreme <= 1).all()
        assert (patterns.argmin(axis=0) == -np.arange(N) % p).all()


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", EVERY)
def test_the_sentinel_is_never_a_result_of_up_to_3000_ranks(dtype, op):
    for p in RANKS:
        one = payload(op, dtype, 64, p)
        values = contributions(op, dtype, p, 64)
        folded = np.array([*values, reduce(REDUCTIONS[op].fold, values)])
        assert not (bits(folded) == bits(one.sentinel())).any()
        if np.issubdtype(one.dtype, np.integer) and op == "sum":
            assert p * (1 << 16) < one.sentinel()[0]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_longer_block_continues_with_the_values_of_the_next_generations(name):
    for count in (1, 100, PERIOD - 3, PERIOD + 3):
        one = payload(count=count, p=3, name=name)
        for wide, of_turn in (
            (
                one.expected(in_place=True, extra=GENERATIONS - 1),
                lambda q: q.expected(in_place=True),
            ),
            (one.initial(in_place=True, extra=GENERATIONS - 1), lambda q: q.initial(in_place=True)),
            (one.source(GENERATIONS - 1), lambda q: q.source()),
        ):
            for generation in range(GENERATIONS):
                now = [
                    unit[generation : len(unit) - (GENERATIONS - 1) + generation] for unit in wide
                ]
                assert_same(now, of_turn(replace(one, generation=generation)))


def broken(one, fault):
    dst = expected(one)
    if fault == "poison":
        dst[8:] = one.sentinel()
    elif fault == "own":
        dst[8:] = source(one)[8:]
    elif fault == "earlier":
        dst[8:] = expected(replace(one, generation=3))[8:]
    elif fault == "garbage":
        dst[8:] = dst[8:][::-1].copy()
    else:
        origin, times = fault
        values = [
            source(replace(one, me=me))
            for me in range(one.p)
            for _ in range(times if me == origin else 1)
        ]
        dst[8:] = reduce(one.reduction.fold, values)[8:]
        one.reduction.scale(dst[8:], one.p)
    return dst


@pytest.mark.parametrize(("op", "dtype"), [*zip(REDUCTIONS, EVERY, strict=False)])
def test_a_diagnosis_names_the_rank_whose_contribution_is_missing(op, dtype):
    one = payload(op, dtype, 4000, p=4)
    for origin in range(4):
        words = one.diagnose(broken(one, (origin, 0)), in_place=False)
        assert f"the contribution of rank {origin} is missing" in words
        assert words.startswith("rank 1: ")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("poison", "never written"),
        ("own", "still the rank's own contribution"),
        ("earlier", "left by an earlier operation"),
        ("garbage", "no single cause explains it"),
        ((2, 2), "the contribution of rank 2 is counted twice"),
    ],
)
def test_a_diagnosis_names_the_cause(fault, words):
    one = payload(count=4000, generation=5)
    said = one.diagnose(broken(one, fault), in_place=True)
    assert words in said
    assert "from 32 B on" in said
    assert one.diagnose(expected(one, in_place=True), in_place=True) is None
    for other in (payload(p=1, me=0), payload(floor=True)):
        assert "no single cause" in other.diagnose(
            np.full_like(expected(other), 12345), in_place=False
        )
