"""The memory that a case needs, estimated before it is allocated: running out of memory kills the whole job."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from hpccoll.cases.algorithm_registry import collective, is_workload
from hpccoll.cases.catalogue import call_of, own_parameters
from hpccoll.cases.planned_schedule import choose_channels, planned_schedule
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.cases.workload import workload
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_size
from hpccoll.schedule import Algorithm, Copy, Cut, Layout, Schedule, Send, itemsize
from hpccoll.schedule.count import received_bytes
from hpccoll.schedule.step import drop_null_peers, parts_of

if TYPE_CHECKING:
    from hpccoll.cases.case import Case, Parameter

SAMPLE_ELEMENTS = 1 << 20
"""The elements of the mean block with which the inequality of blocks is computed."""

PERIOD = 65521
"""The number of elements after which the values in buffers repeat: a prime, so that any
displacement by whole cache lines below 8 MiB is detected."""

GENERATIONS = 16
"""The number of operations after which the values repeat: a result that one of the last 15
operations left in a buffer is not taken for the result of this one."""

SHORT_BLOCK = PERIOD // GENERATIONS
"""The elements of the largest block whose values do not repeat within one operation."""
VECTOR_BYTES = 16
"""The bytes that a GPU thread of the check moves at once."""

WORDS_OF_RECEIVED = 4
"""The bytes of the words over peer in the protocol ll, for each byte that a rank receives: 8 for 4 bytes
of data, once for even and once for odd operations."""

GPU_SPARE_FRACTION = 0.1
"""The fraction of a GPU's free memory that cases leave to libraries: NCCL and MPI allocate buffers
when they connect, for eight ranks of NCCL one or two GiB, and the tables of reductions take some
MiB."""


class _AlgorithmMemory(NamedTuple):
    """The memory that an algorithm needs, in units of S."""

    tmp: float = 0.0  # the scratch buffer at each rank
    arrivals: float = 1.0  # the data that arrives in one step at the rank with most, its root
    common_arrivals: float = 1.0  # what arrives in one step at every rank, at least
    aggregator_arrivals: tuple[float, ...] = ()  # the same for each aggregator, the largest first
    slices: tuple[Schedule, ...] = ()  # the slices of the algorithm


@lru_cache
def _algorithm_memory(
    algorithm: Algorithm,
    workers: int,
    aggregators: int,
    parameters: tuple[tuple[str, "Parameter"], ...],
) -> _AlgorithmMemory:
    layout = Layout.of(workers, aggregators=aggregators)
    values = dict(parameters)
    if algorithm.unmet(layout, **values):
        return _AlgorithmMemory()
    slices = algorithm.slices(layout, **values)
    has_tmp, arrivals = _memory_of_rank(slices, 0)
    _, arrivals_at_last = _memory_of_rank(slices, workers - 1)
    most_arrivals = max(1.0, arrivals, arrivals_at_last)
    common_arrivals = max(1.0, min(arrivals, arrivals_at_last))
    gathered = []
    if algorithm.aggregates:
        for rank in range(workers, layout.ranks):
            _, arrivals_at_aggregator = _memory_of_rank(slices, rank)
            gathered.append(arrivals_at_aggregator)
    gathered.sort(reverse=True)
    return _AlgorithmMemory(float(has_tmp), most_arrivals, common_arrivals, tuple(gathered), slices)


def _memory_of_rank(slices: tuple[Schedule, ...], rank: int) -> tuple[bool, float]:
    """Return whether a rank has a buffer tmp, and the data in S that arrives there in the step with most."""
    has_tmp = False
    arrivals = 0.0
    for schedule in slices:
        for step in map(drop_null_peers, schedule.steps(rank)):
            units = 0
            for action in step.actions:
                for part in parts_of(action):
                    has_tmp |= part.buffer == "tmp"
                if isinstance(action, Send):
                    continue
                part = action.target if isinstance(action, Copy) else action.part
                units += sum(
                    int(unit_range.last) - int(unit_range.first) for unit_range in part.ranges
                )
            arrivals = max(arrivals, units / schedule.units)
    return has_tmp, arrivals


def memory_needed(
    case: "Case",
    workers: int,
    ranks: int,
    device: str = "cpu",
    aggregators: int = 0,
    models: Mapping[str, Any] | None = None,
) -> int:
    """Return the bytes that ``ranks`` ranks of a node or a GPU need for ``case``, whichever of its ranks they are.

    Each rank has both buffers, scratch, the values to fill and to compare, and the check; a root
    receives more at once. An aggregator has one buffer and all data that its children send at once,
    which may be more than a worker has. On a GPU the values to fill and to compare are periodic
    tables for each unit, and over peer in the protocol ll all that a rank receives has words of its
    own. A workload has the buffers of all its operations, each estimated as those of an all-reduce
    of S bytes. ``models`` are the files of the user that it names.

    ``device`` is that of the memory: of a case on a GPU, ``cpu`` has the staged buffers, and
    ``cuda`` all others.
    """
    family = collective(case.collective)
    if is_workload(case.collective):
        try:
            case = replace(
                case, bytes=workload(case.collective).buffer_bytes(case, workers, models or {})
            )
        except BadInputError:
            return 0  # the case will be skipped
    # The expected values of blocks are copied once more, before the check allocates one byte per
    # element.
    check = 1 / itemsize(case.dtype) if family.units == "divisible" else 1
    memory = _memory_of_schedule(case, workers, aggregators)
    tmp, arrivals, common_arrivals, gathered, slices = memory
    buffers = 6 + check
    further_bytes = 0.0  # that do not follow from rank_buffers
    if case.device == "cuda":
        device_of_messages = "cpu" if case.transport == "staged" else "cuda"
        if device == "cpu" and device_of_messages == "cuda":
            return 0
        if device == device_of_messages:
            buffers = 3.0
        else:  # messages and their scratch are in the other memory
            buffers = 2.0
            tmp = 0.0
            arrivals = 1.0
            common_arrivals = 1.0
            gathered = ()
        if device == "cuda":
            further_bytes = ranks * _tables(case, workers)
    rank_buffers = buffers + tmp + common_arrivals - 1
    try:
        unequal = call_of(case, workers).blocks(SAMPLE_ELEMENTS)
    except BadInputError:
        return 0  # the case will be skipped
    if slices and device == "cuda":
        further_bytes += _words(case, Layout.of(workers, aggregators=aggregators), ranks)
    if unequal is None:
        at_once = _in_flight(case, workers, slices) if gathered else 0.0
        aggregator_buffers = sum(
            max(0.0, 1 + at_once * share - rank_buffers) for share in gathered[:ranks]
        )
        return int(
            case.bytes * (ranks * rank_buffers + arrivals - common_arrivals + aggregator_buffers)
            + further_bytes
        )
    largest_src = float((unequal.sum(1) / unequal.sum() * workers).max())
    largest_dst = float((unequal.sum(0) / unequal.sum() * workers).max())
    most = 2 * largest_src + (rank_buffers - 2) * largest_dst
    return int(case.bytes * min(ranks * most, workers * rank_buffers) + further_bytes)


def _memory_of_schedule(case: "Case", workers: int, aggregators: int) -> _AlgorithmMemory:
    family = collective(case.collective)
    if case.algorithm not in family.algorithms:
        return _AlgorithmMemory()
    parameters = tuple(sorted(own_parameters(case).items()))
    return _algorithm_memory(family.algorithm(case.algorithm), workers, aggregators, parameters)


def _in_flight(case: "Case", workers: int, slices: tuple[Schedule, ...]) -> float:
    """Return the share of S that is under way at once."""
    pipelined = collective(case.collective).algorithm(case.algorithm).pipelined
    rule = TRANSPORTS[case.transport].channels
    layout = Layout.of(workers)
    channels, window = choose_channels(
        case.params, case.bytes, layout, slices, pipelined=pipelined, rule=rule
    )
    return min(1.0, window / channels)


def _words(case: "Case", layout: Layout, ranks: int) -> int:
    """Return the bytes of the words that peers write for ``ranks`` ranks, those that receive most; 0 without words."""
    planned = planned_schedule(case, layout)
    if planned is None or planned.protocol != "ll":
        return 0
    call = call_of(case, layout.workers)
    size = itemsize(case.dtype)
    elements = call.collective.elements(case.bytes, size, layout.workers)
    slices = planned.slices
    cut = Cut(call, elements, slices[0].units, len(slices), size)
    received = sorted(received_bytes(slices, cut))
    return WORDS_OF_RECEIVED * int(sum(received[-ranks:]))


def _tables(case: "Case", workers: int) -> float:
    """Return the bytes of the tables of a check on a GPU: for each unit one to fill and one to compare."""
    units = workers
    if collective(case.collective).units == "divisible":
        units = 1
    elements = case.bytes / units / itemsize(case.dtype)
    return 2 * units * table_bytes(elements)


def table_bytes(elements: float) -> float:
    """Return the maximum number of bytes of the check's table of a unit on a GPU.

    The table of a short unit has one row per generation with up to 8 bytes per element; any other
    table has PERIOD vectors. The smaller bound is concave in the number of elements, so that the
    mean unit is enough for several lengths.
    """
    long_unit = PERIOD * VECTOR_BYTES
    short_unit = long_unit / (SHORT_BLOCK - GENERATIONS) * elements + 2 * GENERATIONS * VECTOR_BYTES
    return min(long_unit, short_unit)


def check_memory(
    cases: Iterable["Case"],
    workers: int,
    ranks: int,
    available: int,
    device: str = "cpu",
    aggregators: int = 0,
    models: Mapping[str, Any] | None = None,
) -> None:
    """Check that the largest of the cases fits into the memory of ``ranks`` ranks of one node or GPU.

    On a GPU a fraction of the free memory is left to libraries.

    Raises:
        BadInputError: if it does not fit; names the needed and the free memory.
    """
    estimates = (
        (memory_needed(case, workers, ranks, device, aggregators, models), case) for case in cases
    )
    needed, case = max(estimates, key=itemgetter(0))
    usable = available
    free = f"{available / 2**30:.3g} GiB are free"
    if device == "cuda":
        usable = int(available * (1 - GPU_SPARE_FRACTION))
        free += f" on their GPU, {GPU_SPARE_FRACTION:.0%} of it for libraries"
    if needed > usable:
        largest = case.bytes * usable // needed
        expected = f"{ranks} ranks need {needed / 2**30:.3g} GiB for it and {free}: at most about "
        raise BadInputError(
            "bytes", format_size(case.bytes), f"{expected}{largest / 2**20:.0f} MiB"
        )
