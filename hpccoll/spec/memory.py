"""How much memory a case takes, told before it is allocated: a rank that is killed for it takes the others with it."""

from collections.abc import Iterable
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from hpccoll.errors import BadInputError
from hpccoll.schedule import Algorithm, Copy, Layout, Schedule, Send, itemsize
from hpccoll.schedule.step import drop_null_peers
from hpccoll.spec.case import Case, Parameter
from hpccoll.spec.catalogue import call_of, own_parameters
from hpccoll.spec.channels import plan_channels
from hpccoll.spec.registry import collective
from hpccoll.units import format_size

SAMPLE_ELEMENTS = 1 << 20
"""Elements of the mean block, to see how unequal others are."""

PERIOD = 65521
"""Elements after which the values in buffers repeat: a prime, so that no displacement by whole cache lines below 8 MiB
goes unnoticed."""
GENERATIONS = 16
"""Operations after which the values repeat: a result that any of the last 15 left in a buffer is not taken for the
result of this one."""
SHORT_BLOCK = PERIOD // GENERATIONS
"""The largest block, in elements, whose values never repeat within one operation."""
VECTOR_BYTES = 16
"""Bytes that a GPU thread of the check moves at once."""

GPU_SPARE_FRACTION = 0.1
"""The part of a GPU's free memory that cases leave: NCCL and MPI take buffers of their own when they connect, for eight
ranks of NCCL one or two GiB, and the tables of folds are there, some MiB."""


class _Held(NamedTuple):
    """What an algorithm makes ranks hold, in S.

    Args:
        own: of its own, at each rank.
        arrive: in one step at the rank of most, its root.
        gathered: the same at each aggregator, the most first.
        slices: of the buffer.
    """

    own: float = 0.0
    arrive: float = 1.0
    gathered: tuple[float, ...] = ()
    slices: tuple[Schedule, ...] = ()


@lru_cache
def _held(algorithm: Algorithm, workers: int, aggregators: int, parameters: tuple[tuple[str, Parameter], ...]) -> _Held:
    layout, own = Layout.of(workers, aggregators=aggregators), dict(parameters)
    if algorithm.unmet(layout, **own):
        return _Held()
    slices = algorithm.slices(layout, **own)
    has_tmp, arrive = _at(slices, 0)
    gathered = (_at(slices, rank)[1] for rank in range(workers, layout.ranks)) if algorithm.aggregates else ()
    return _Held(float(has_tmp), max(1.0, arrive), tuple(sorted(gathered, reverse=True)), slices)


def _at(slices: tuple[Schedule, ...], rank: int) -> tuple[bool, float]:
    """Return whether a rank has a buffer of the algorithm's own, and how many S arrive there in the step of most."""
    has_tmp, arrive = False, 0.0
    for schedule in slices:
        for step in map(drop_null_peers, schedule.steps(rank)):
            parts = [a.target if isinstance(a, Copy) else a.part for a in step.actions if not isinstance(a, Send)]
            has_tmp |= any(part.buffer == "tmp" for part in parts)
            units = sum(int(r.last) - int(r.first) for part in parts for r in part.ranges)
            arrive = max(arrive, units / schedule.units)
    return has_tmp, arrive


def memory_needed(case: Case, workers: int, ranks: int, device: str = "cpu", aggregators: int = 0) -> int:
    """Return the bytes that the ``ranks`` of a node take for ``case``, some of all there are, whichever they are.

    Each has both buffers, scratch, what fills them, what is expected, and the check; a root takes in more at once. An
    aggregator has one buffer and what its children send it at once, which may be more than a worker has. On a GPU what
    fills buffers and what is expected are tables of each unit, which repeat.

    Args:
        case: to be measured.
        workers: of the case.
        ranks: that share the memory.
        device: whose memory it is: of a case on a GPU the host has what is staged there, and the GPU all else.
        aggregators: beside the workers.
    """
    family = collective(case.collective)
    # What is expected of blocks is copied once more, before the check takes a byte for each element.
    check = 1 / itemsize(case.dtype) if family.units == "divisible" else 1
    held = _Held()
    if case.algorithm in family.algorithms:
        own = tuple(sorted(own_parameters(case).items()))
        held = _held(family.algorithm(case.algorithm), workers, aggregators, own)
    tmp, arrive, gathered, _ = held
    buffers, tables = 6 + check, 0.0
    if case.device == "cuda":
        moves = device == ("cpu" if case.transport == "staged" else "cuda")  # where messages are, and their scratch
        if not moves and device == "cpu":
            return 0
        buffers, tmp, arrive, gathered = (3.0, tmp, arrive, gathered) if moves else (2.0, 0.0, 1.0, ())
        tables = ranks * _tables(case, workers) if device == "cuda" else 0.0
    each = buffers + tmp
    try:
        unequal = call_of(case, workers).blocks(SAMPLE_ELEMENTS)
    except BadInputError:
        return 0  # it will not run
    if unequal is None:
        at_once = _in_flight(case, workers, held.slices) if gathered else 0.0
        more = sum(max(0.0, 1 + at_once * arrives - each) for arrives in gathered[:ranks])
        return int(case.bytes * (ranks * each + arrive - 1 + more) + tables)
    there, here = (float((unequal.sum(axis) / unequal.sum() * workers).max()) for axis in (1, 0))
    most = 2 * there + (each - 2) * here
    return int(case.bytes * min(ranks * most, workers * each) + tables)


def _in_flight(case: Case, workers: int, slices: tuple[Schedule, ...]) -> float:
    """Return the part of a message that is on its way at once."""
    pipelined, queued = collective(case.collective).algorithm(case.algorithm).pipelined, case.transport == "nccl"
    channels, window = plan_channels(
        case.params, case.bytes, Layout.of(workers), slices, pipelined=pipelined, queued=queued
    )
    return min(1.0, window / channels)


def _tables(case: Case, workers: int) -> float:
    """Return the bytes of a check's tables: of what fills each unit, and of what is expected there."""
    units = 1 if collective(case.collective).units == "divisible" else workers
    return 2 * units * table_bytes(case.bytes / units / itemsize(case.dtype))


def table_bytes(elements: float) -> float:
    """Return the most bytes that the check's table of a unit takes on a GPU.

    A short unit has a row for each turn, of up to 8 bytes an element; any other has PERIOD vectors. The smaller of the
    two bounds is concave in the number of elements: for units of several lengths their mean is enough.

    Args:
        elements: of the unit, or of the mean unit.
    """
    return min(
        PERIOD * VECTOR_BYTES,
        PERIOD * VECTOR_BYTES / (SHORT_BLOCK - GENERATIONS) * elements + 2 * GENERATIONS * VECTOR_BYTES,
    )


def check_memory(
    cases: Iterable[Case], workers: int, ranks: int, available: int, device: str = "cpu", aggregators: int = 0
) -> None:
    """See that ``ranks`` ranks of one node, or GPU, of all there are, find room for the largest of the cases.

    On a GPU they leave a part of what is free.

    Raises:
        BadInputError: names what it takes and what there is.
    """
    taken = ((memory_needed(case, workers, ranks, device, aggregators), case) for case in cases)
    needed, case = max(taken, key=itemgetter(0))
    usable = int(available * (1 - GPU_SPARE_FRACTION)) if device == "cuda" else available
    if needed > usable:
        largest = case.bytes * usable // needed
        where = f" on their GPU, {GPU_SPARE_FRACTION:.0%} of it for libraries" if device == "cuda" else ""
        raise BadInputError(
            "bytes", format_size(case.bytes),
            f"{ranks} ranks need {needed / 2**30:.3g} GiB for it and {available / 2**30:.3g} GiB are free{where}: "
            f"at most about {largest / 2**20:.0f} MiB",
        )  # fmt: skip
