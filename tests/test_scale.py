"""What thousands of ranks take: to plan, to count and to compile grows with the ranks, not with their square.

Work is the number of function calls, which is the same on every machine.
"""

import cProfile
import pstats
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
from schedule_examples import ALGORITHMS, Algorithm, Case, Collective, cases

from hpccoll.schedule import Layout, crossings

FEW, MANY = 64, 256
GROWTH = 2 * MANY / FEW
"""How many times the work of few is allowed for many: the square would be 16 times, logarithms add a quarter."""


def work(task: Callable[[], object]) -> int:
    """Return how many functions are called by ``task``."""
    profile = cProfile.Profile()
    profile.runcall(task)
    return pstats.Stats(profile).total_calls


def compiled(case: Case) -> None:
    """Compile two lanes at rank 0, which is the root where there is one."""
    from hpccoll.transports.mpi.lowering import MpiLowering  # where there is an MPI

    count = 2 * case.call.p if case.call.collective.units == "divisible" else 2
    requested = case.operation(count, channels=2, window=2, in_place=False)
    lowering = MpiLowering(
        0,
        requested,
        *(np.zeros(requested.elements(name, 0), requested.dtype) for name in ("src", "dst")),
    )
    lowering.sequences()
    for datatype in lowering.datatypes:
        datatype.Free()


def tasks(collective: Collective, algorithm: Algorithm, ranks: int) -> Iterator[int]:
    """Yield the work of a plan, a count and a compilation."""
    layout = Layout.of(ranks, 8, aggregators=ranks // 16 if algorithm.aggregates else 0)
    found: list[Case] = []
    yield work(lambda: found.append(next(cases(collective, algorithm, layout))))
    (case,) = found
    yield work(lambda: [crossings(schedule) for schedule in case.slices])
    yield work(partial(compiled, case))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.usefixtures("mpiexec")
def test_the_work_for_four_times_the_ranks_is_not_that_of_every_rank_with_every_other(name):
    few, many = (list(tasks(*ALGORITHMS[name], ranks)) for ranks in (FEW, MANY))
    assert all(more < GROWTH * less for less, more in zip(few, many, strict=True)), (few, many)
