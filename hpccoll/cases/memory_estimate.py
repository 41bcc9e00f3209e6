"""The memory that a case needs, estimated before it is allocated: running out of memory kills the whole job."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from hpccoll.cases.algorithm_registry import WORKLOADS, collective
from hpccoll.cases.catalogue import call_of, own_parameters
from hpccoll.cases.planned_schedule import choose_channels
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_size
from hpccoll.schedule import Algorithm, Copy, Layout, Schedule, Send, itemsize
from hpccoll.schedule.step import drop_null_peers

if TYPE_CHECKING:
    from hpccoll.cases.case import Case, Parameter
    from hpccoll.training.model_shape import ModelShape

SAMPLE_ELEMENTS = 1 << 20
"""The elements of the mean block with which the inequality of blocks is computed."""

PERIOD = 65521
"""The number of elements after which the values in buffers repeat: a prime, so that any displacement by whole cache
lines below 8 MiB is detected."""

GENERATIONS = 16
"""The number of operations after which the values repeat: a result that one of the last 15 operations left in a buffer
is not taken for the result of this one."""

SHORT_BLOCK = PERIOD // GENERATIONS
"""The elements of the largest block whose values do not repeat within one operation."""
VECTOR_BYTES = 16
"""The bytes that a GPU thread of the check moves at once."""

GPU_SPARE_FRACTION = 0.1
"""The fraction of a GPU's free memory that cases leave to libraries: NCCL and MPI allocate buffers when they connect,
for eight ranks of NCCL one or two GiB, and the tables of reductions take some MiB."""


class _AlgorithmMemory(NamedTuple):
    """The memory that an algorithm needs, in units of S."""

    tmp: float = 0.0  # the scratch buffer at each rank
    arrivals: float = 1.0  # the data that arrives in one step at the rank with most, its root
    aggregator_arrivals: tuple[float, ...] = ()  # the same for each aggregator, the largest first
    slices: tuple[Schedule, ...] = ()  # the slices of the algorithm


@lru_cache
def _algorithm_memory(
    algorithm: Algorithm, workers: int, aggregators: int, parameters: tuple[tuple[str, "Parameter"], ...]
) -> _AlgorithmMemory:
    layout, values = Layout.of(workers, aggregators=aggregators), dict(parameters)
    if algorithm.unmet(layout, **values):
        return _AlgorithmMemory()
    slices = algorithm.slices(layout, **values)
    has_tmp, arrivals = _memory_of_rank(slices, 0)
    gathered = (
        (_memory_of_rank(slices, rank)[1] for rank in range(workers, layout.ranks)) if algorithm.aggregates else ()
    )
    return _AlgorithmMemory(float(has_tmp), max(1.0, arrivals), tuple(sorted(gathered, reverse=True)), slices)


def _memory_of_rank(slices: tuple[Schedule, ...], rank: int) -> tuple[bool, float]:
    """Return whether a rank has a buffer tmp, and the data in S that arrives there in the step with most."""
    has_tmp, arrivals = False, 0.0
    for schedule in slices:
        for step in map(drop_null_peers, schedule.steps(rank)):
            parts = [a.target if isinstance(a, Copy) else a.part for a in step.actions if not isinstance(a, Send)]
            has_tmp |= any(part.buffer == "tmp" for part in parts)
            units = sum(int(r.last) - int(r.first) for part in parts for r in part.ranges)
            arrivals = max(arrivals, units / schedule.units)
    return has_tmp, arrivals


def memory_needed(
    case: "Case", workers: int, ranks: int, device: str = "cpu", aggregators: int = 0,
    models: Mapping[str, "ModelShape"] | None = None,
) -> int:  # fmt: skip
    """Return the bytes that ``ranks`` ranks of a node or a GPU need for ``case``, whichever of its ranks they are.

    Each rank has both buffers, scratch, the values to fill and to compare, and the check; a root receives more at once.
    An aggregator has one buffer and all data that its children send at once, which may be more than a worker has. On a
    GPU the values to fill and to compare are periodic tables for each unit. A training step has the buffers of all its
    operations, each estimated as those of an all-reduce of S bytes.

    ``device`` is that of the memory: of a case on a GPU, ``cpu`` has the staged buffers, and ``cuda`` all others.
    """
    family = collective(case.collective)
    if case.collective in WORKLOADS:
        from hpccoll.training.workload import Workload  # most ranks run no training steps

        try:
            programs = Workload.of(case.params).programs(workers, case.dtype, models)
        except BadInputError:
            return 0  # the case will be skipped
        case = replace(case, bytes=max(each.buffer_bytes for each in programs))
    # The expected values of blocks are copied once more, before the check allocates one byte per element.
    check = 1 / itemsize(case.dtype) if family.units == "divisible" else 1
    memory = _AlgorithmMemory()
    if case.algorithm in family.algorithms:
        parameters = tuple(sorted(own_parameters(case).items()))
        memory = _algorithm_memory(family.algorithm(case.algorithm), workers, aggregators, parameters)
    tmp, arrivals, gathered, slices = memory
    buffers, tables = 6 + check, 0.0
    if case.device == "cuda":
        moves = device == (
            "cpu" if case.transport == "staged" else "cuda"
        )  # whether messages and their scratch are in this memory
        if not moves and device == "cpu":
            return 0
        buffers, tmp, arrivals, gathered = (3.0, tmp, arrivals, gathered) if moves else (2.0, 0.0, 1.0, ())
        tables = ranks * _tables(case, workers) if device == "cuda" else 0.0
    each = buffers + tmp
    try:
        unequal = call_of(case, workers).blocks(SAMPLE_ELEMENTS)
    except BadInputError:
        return 0  # the case will be skipped
    if unequal is None:
        at_once = _in_flight(case, workers, slices) if gathered else 0.0
        more = sum(max(0.0, 1 + at_once * share - each) for share in gathered[:ranks])
        return int(case.bytes * (ranks * each + arrivals - 1 + more) + tables)
    largest_src, largest_dst = (float((unequal.sum(axis) / unequal.sum() * workers).max()) for axis in (1, 0))
    most = 2 * largest_src + (each - 2) * largest_dst
    return int(case.bytes * min(ranks * most, workers * each) + tables)


def _in_flight(case: "Case", workers: int, slices: tuple[Schedule, ...]) -> float:
    pipelined, queued = collective(case.collective).algorithm(case.algorithm).pipelined, case.transport == "nccl"
    channels, window = choose_channels(
        case.params, case.bytes, Layout.of(workers), slices, pipelined=pipelined, queued=queued
    )
    return min(1.0, window / channels)


def _tables(case: "Case", workers: int) -> float:
    """Return the bytes of the tables of a check on a GPU: for each unit one to fill and one to compare."""
    units = 1 if collective(case.collective).units == "divisible" else workers
    return 2 * units * table_bytes(case.bytes / units / itemsize(case.dtype))


def table_bytes(elements: float) -> float:
    """Return the maximum number of bytes of the check's table of a unit on a GPU.

    The table of a short unit has one row per generation with up to 8 bytes per element; any other table has PERIOD
    vectors. The smaller bound is concave in the number of elements, so that the mean unit is enough for several
    lengths.
    """
    return min(
        PERIOD * VECTOR_BYTES,
        PERIOD * VECTOR_BYTES / (SHORT_BLOCK - GENERATIONS) * elements + 2 * GENERATIONS * VECTOR_BYTES,
    )


def check_memory(
    cases: Iterable["Case"], workers: int, ranks: int, available: int, device: str = "cpu", aggregators: int = 0,
    models: Mapping[str, "ModelShape"] | None = None,
) -> None:  # fmt: skip
    """Check that the largest of the cases fits into the memory of ``ranks`` ranks of one node or GPU.

    On a GPU a fraction of the free memory is left to libraries.

    Raises:
        BadInputError: if it does not fit; names the needed and the free memory.
    """
    estimates = ((memory_needed(case, workers, ranks, device, aggregators, models), case) for case in cases)
    needed, case = max(estimates, key=itemgetter(0))
    usable = int(available * (1 - GPU_SPARE_FRACTION)) if device == "cuda" else available
    if needed > usable:
        largest = case.bytes * usable // needed
        where = f" on their GPU, {GPU_SPARE_FRACTION:.0%} of it for libraries" if device == "cuda" else ""
        raise BadInputError(
            "bytes", format_size(case.bytes),
            f"{ranks} ranks need {needed / 2**30:.3g} GiB for it and {available / 2**30:.3g} GiB are free{where}: "
            f"at most about {largest / 2**20:.0f} MiB",
        )  # fmt: skip
