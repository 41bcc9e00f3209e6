"""The timing nccl-tests: its counts here, and on the test library of NCCL the calls of nccl_tests_ranks.py."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases.case import Effort
from hpccoll.measure.run.nccl_tests_timing import (
    NcclTestsCounts,
    nccl_tests_effort,
    places_of_calls,
)

COUNTS = st.integers(0, 50)


@given(st.none() | COUNTS, st.none() | st.integers(1, 50))
def test_the_numbers_are_those_of_nccl_tests_unless_the_user_gives_others(warmup, calls):
    found = NcclTestsCounts.of(
        Effort(warmup=7, max_iterations=30, loop_warmup=warmup, loop_iterations=calls)
    )
    assert found == NcclTestsCounts(1 if warmup is None else warmup, 20 if calls is None else calls)


def test_a_round_is_one_batch():
    effort = nccl_tests_effort(Effort(rounds=3))
    assert (effort.warmup, effort.min_iterations, effort.max_iterations) == (0, 1, 1)


@given(st.integers(1, 1 << 20), st.integers(0, 1 << 24), COUNTS, st.integers(1, 50))
def test_calls_take_as_many_places_as_the_buffer_has_and_they_need(nbytes, largest, warmup, calls):
    places = places_of_calls(nbytes, largest, NcclTestsCounts(warmup, calls))
    in_buffer = max(1, largest // nbytes)
    offsets = [nbytes * (number % in_buffer) for number in range(max(warmup, calls))]
    assert offsets == [nbytes * (number % places) for number in range(max(warmup, calls))]
    assert places <= max(1, largest // nbytes, 1)


@pytest.mark.mpi
def test_the_calls_are_those_of_nccl_tests(mpiexec, nccl_library):
    ran = mpiexec(2, Path(__file__).with_name("nccl_tests_ranks.py"), nccl_library)
    assert ran.returncode == 0, ran.stdout + ran.stderr
