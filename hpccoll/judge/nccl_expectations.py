"""What is expected of calls of NCCL and RCCL, and what is said where nothing can be expected.

The first known line of this table counts, under an origin of its own:

| origin | what it follows from |
| --- | --- |
| published | two independent sources that have the class of the machine, the call and the size |
| model | NCCL's own model, on two nodes and more, if a log or a setting names the ring or the tree |
| nearest | one source, or figures that differ in a thing or two: no verdict |
| physics | what the wires carry at most: no verdict, except on what is above it |
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from statistics import median

from hpccoll.common.errors import BadInputError
from hpccoll.common.text import in_brackets, join_ends, join_words
from hpccoll.common.units import format_count, format_rate
from hpccoll.evidence.log_record import NCCL_LIBRARIES
from hpccoll.judge.held import MODEL, NEAREST, PHYSICS, PUBLISHED, Expected
from hpccoll.judge.wire_bounds import WireBound, highest_possible, ring_below, wire_bound
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.nccl_candidates import modelled_busbw
from hpccoll.model.nearest_rates import NEWER, NearestRates, nearest_rates
from hpccoll.model.published_rates import (
    NEAR,
    OLD,
    SCALES,
    PublishedCall,
    SourceRates,
    is_old,
    larger_classes,
    node_class,
    rates_by_source,
    usual_for,
    version_of,
)
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row

LARGE = 1 << 30
"""The size from which on healthy machines of one class agree: the 79 published figures that have
two other sources are between 0.98 times the lowest and 1.03 times the highest other figure."""

NEEDED = 2
"""The independent sources that make a range."""

NO_EXCUSE = 0.5
"""An NCCL before OLD, or fewer nodes than the next class has, is an excuse from this share of the
low end of others on: below it something else is at fault, such as one port of eight in use
(nccl-tests#112: 5 % of the wire)."""

BEYOND = 1.05
"""The multiple of what the wires carry above which a rate cannot be: rates are printed with three
digits, and the rates of wires are nominal."""

OF_FIGURES = "sum", "avg"
"""The reductions of published figures; NVLS has no others (NCCL's device.h, ncclNvlsSupported)."""

OTHER_NODES = {2: (4,), 3: (2,), 4: (2,)}
"""The numbers of nodes whose figures are named beside a number of nodes, although algorithms may differ: half or twice
as many, if one of both is FEW_NODES."""

NAME_A_CLASS = (
    "do: name a cluster with your GPUs (hpccoll list clusters),"
    " or give the file a section class with fabric and network (hpccoll list machine)"
)
"""What to do if the machine that the user names has no class."""

OWN_REFERENCE = "do: hold it against runs of your own: hpccoll compare --make-reference"
"""What to do if nobody published anything."""

Expectation = tuple[Expected | None, str]
"""What is expected of a row, and why nothing is, or why it decides nothing."""


def expected_of_nccl(
    row: Row, machine: MachineFile, library: str, ran: tuple[str | None, str]
) -> Expectation:
    """Return what is expected of a call of NCCL or RCCL, or what can be said of it.

    Args:
        row: the row.
        machine: the machine.
        library: the library, with its version; empty if it is unknown.
        ran: the algorithm that a log or a setting names, and why it is in doubt.
    """
    algorithm, doubt = ran
    reason = doubt or _other_calls(row, machine, library)
    if reason:
        return None, reason
    call = _call(row, algorithm, library)
    bound = wire_bound(machine, *_place(call), algorithm)
    published = rates_by_source(machine, call)
    expected = _too_fast(row, machine)
    if expected is None:
        expected = _known_of(row, machine, call, published, bound.rate if bound else None)
    if expected:
        return expected, ""
    too_few = _too_few(machine, call, published)
    if bound is None:
        return None, too_few
    if (row.busbw_Bps or 0.0) > bound.rate:  # the usual algorithm did not run
        bound = highest_possible(machine, *_place(call)) or bound
    lacking = f"not judged for lack of published figures: {too_few}; {OWN_REFERENCE}"
    return _beside_ring(_of_wires(bound, lacking), row, machine, call), ""


def _known_of(
    row: Row,
    machine: MachineFile,
    call: PublishedCall,
    published: Mapping[str, SourceRates],
    wire: float | None,
) -> Expected | None:
    """Return the best that is known of a call but what the wires carry; None if nothing is."""
    if len(published) >= NEEDED:
        return _published(published, PUBLISHED, wire)
    return (
        _far_below(row, machine, call, wire)
        or _modelled(row, machine, call, wire)
        or _nearest(machine, call, wire)
    )


def _call(row: Row, algorithm: str | None, library: str) -> PublishedCall:
    return PublishedCall(
        collective=row.collective,
        nodes=row.nodes,
        ranks_per_node=row.ranks_per_node or 1,
        nbytes=row.bytes,
        dtype=row.dtype,
        in_place=row.in_place,
        algorithm=algorithm,
        library=library,
    )


def _place(call: PublishedCall) -> tuple[str, int, int]:
    return call.collective, call.nodes, call.ranks_per_node


def _beside_ring(
    expected: Expected, row: Row, machine: MachineFile, call: PublishedCall
) -> Expected:
    """Return a bound of wires with that of a ring, if a ring may have run."""
    if call.algorithm:
        return expected
    ring = ring_below(machine, expected.high, *_place(call))
    if ring is None or (row.busbw_Bps or 0.0) > BEYOND * ring.rate:
        return expected
    return replace(expected, ring_Bps=ring.rate, ring_wires=ring.wires)


def _of_wires(bound: WireBound, lacking: str = "") -> Expected:
    """Return the bound of wires; nothing is expected of what is below it."""
    return Expected(
        low=0.0,
        value=bound.rate,
        high=bound.rate,
        origin=PHYSICS,
        sources=(bound.wires,),
        wire_Bps=bound.rate,
        lacking=lacking,
    )


def _too_fast(row: Row, machine: MachineFile) -> Expected | None:
    """Return the bound of the wires if a row is above it whatever algorithm ran; else None."""
    bound = highest_possible(machine, row.collective, row.nodes, row.ranks_per_node or 1)
    if bound is None or (row.busbw_Bps or 0.0) <= BEYOND * bound.rate:
        return None
    return _of_wires(bound)


def _modelled(
    row: Row, machine: MachineFile, call: PublishedCall, wire: float | None
) -> Expected | None:
    """Return what NCCL's own model expects of an algorithm that is known; None if it says nothing."""
    algorithm = call.algorithm
    if not algorithm or row.transport != "nccl" or call.nbytes < LARGE:
        return None
    modelled = None
    with suppress(BadInputError):  # the machine does not have such nodes
        modelled = modelled_busbw(machine, *_place(call), call.nbytes, call.dtype, algorithm)
    if modelled is None:
        return None
    return Expected(*modelled, MODEL, (f"{algorithm}, which a log or a setting names",), wire)


def _nearest(machine: MachineFile, call: PublishedCall, wire: float | None) -> Expected | None:
    """Return the nearest figures, whose sources are named with what differs; None without any."""
    nearest = nearest_rates(machine, call)
    if nearest is None:
        return None
    expected = _published(nearest.by_source, NEAREST, wire)
    unlike = list(nearest.unlike)
    excuse = ""
    if NEWER in unlike:
        unlike.remove(NEWER)
        excuse = _old_words(call)
    sources: list[str] = []
    for source in expected.sources:
        how = "interpolated" if source in nearest.interpolated else ""
        sources.append(f"{source}{in_brackets(*unlike, how)}")
    lacking = excuse or _lacking_of(nearest, unlike)
    return replace(expected, sources=tuple(sources), lacking=lacking, excuse=excuse)


def _lacking_of(nearest: NearestRates, unlike: Collection[str]) -> str:
    """Return why the nearest figures make no verdict: what was counted of their sources."""
    number = len(nearest.by_source)
    if unlike and number > 1:
        return f"{NEEDED} independent sources of exactly such calls are needed for a verdict, and they all differ"
    if number > 1:
        counted = number - len(nearest.interpolated)
        has = "has" if counted == 1 else "have"
        near = f"{counted} of the {number} {has} figures near this size"
        return f"{NEEDED} independent sources are needed for a verdict, and {near}"
    return f"{NEEDED} independent sources of such calls are needed for a verdict"


def _far_below(
    row: Row, machine: MachineFile, call: PublishedCall, wire: float | None
) -> Expected | None:
    """Return what others reach, if a row is too far below for an old NCCL or a few nodes less to excuse it; else None.

    Of a number of nodes that no class has, others are those of the nearest larger class with enough
    sources.
    """
    candidates = larger_classes(machine.machine_class, call.nodes)
    if is_old(call.library):
        candidates = [call.nodes]
    for nodes in candidates:
        published = rates_by_source(machine, replace(call, nodes=nodes, library=""))
        if len(published) >= NEEDED:
            expected = _published(published, PUBLISHED, wire)
            rate = row.busbw_Bps or 0.0
            return expected if rate < NO_EXCUSE * expected.low else None
    return None


def _published(rates: Mapping[str, SourceRates], origin: str, wire: float | None) -> Expected:
    """Return the range of what several sources published."""
    every_rate: list[float] = []
    medians: list[float] = []
    gpus: set[str] = set()
    libraries: set[str] = set()
    for source in rates.values():
        every_rate += source.rates
        medians.append(median(source.rates))
        gpus.update(figure.gpu for figure in source.figures)
        libraries.update(figure.library for figure in source.figures)
    gpus.discard("")
    return Expected(
        low=min(every_rate),
        value=median(medians),
        high=max(every_rate),
        origin=origin,
        sources=tuple(rates),
        wire_Bps=wire,
        gpus=tuple(sorted(gpus)),
        libraries=tuple(sorted(libraries, key=version_of)),
    )


def _other_calls(row: Row, machine: MachineFile, library: str) -> str:
    """Return why nothing that is known of NCCL and RCCL is about a row; empty if some of it is."""
    if row.algorithm != NATIVE or row.transport not in NCCL_LIBRARIES:
        return f"{machine.name} says nothing of {row.algorithm} over {row.transport}"
    if library and library.partition(" ")[0].lower() not in (*NCCL_LIBRARIES, "unknown"):
        return f"its library is {library}, and figures are of NCCL and RCCL"
    like = machine.machine_class
    if like and row.transport != like.library:
        expected = like.library.upper()
        return f"the call was one of {row.transport.upper()}, and figures of {machine.name} are of {expected}"
    if row.ranks_per_node is None:
        return "its nodes have different numbers of ranks"
    if row.op not in (None, *OF_FIGURES):
        return f"it folds by {row.op}, and figures are of {join_words(OF_FIGURES, 'or')}: NVLS folds by no other"
    return "" if row.busbw_Bps else f"{row.collective} has no bus bandwidth"


def _too_few(machine: MachineFile, call: PublishedCall, sources: Iterable[str]) -> str:
    """Return why nothing published is expected of a call.

    ``sources`` are those that published figures of its class and size: too few of them.
    """
    like = machine.machine_class
    if like is None and not machine.published:
        return f"{machine.name} has no class of machines with published figures; {NAME_A_CLASS}"
    uses_network, scale = node_class(like, call.nodes)
    nodes = format_count(call.nodes, "node")
    if scale is None:
        fabrics = f" domains of {like.fabric_nodes} nodes" if like and like.fabric_nodes > 1 else ""
        classes = f"no class has {nodes}: 1, 2, 4, and 8 and more{fabrics} are classes"
        return classes + _on_other_nodes(machine, call)
    algorithm = _by_algorithm(machine, call)
    words = f"{call.collective}{algorithm} of {call.dtype} on {nodes} x {call.ranks_per_node}"
    is_largest_class = uses_network and scale == SCALES[0]
    if is_largest_class:
        words += f" (or {1 / NEAR:g} to {NEAR} times as many nodes)"
    gpus = in_brackets(join_words(like.gpus)) if like else ""
    needed = f"{NEEDED} independent sources are needed"
    if uses_network and is_old(call.library):
        needed += f"; {_old_words(call)}"
    if call.algorithm:
        needed += "; NCCL's model has the ring and the tree, on two nodes and more, from 1 GiB on"
    needed += _on_other_nodes(machine, call)
    who = join_words(list(sources)) or "no source"
    return f"{who} published {words} of this size on machines of this class{gpus}: {needed}"


def _on_other_nodes(machine: MachineFile, call: PublishedCall) -> str:
    """Return what was published of a call on a number of nodes that is near, but decides nothing; empty if nothing was.

    Up to FEW_NODES the library may take algorithms that it does not take on more nodes, so these
    figures are only named.
    """
    like = machine.machine_class
    crosses, _ = node_class(like, call.nodes)
    for nodes in OTHER_NODES.get(call.nodes, ()):
        other_crosses, _ = node_class(like, nodes)
        if other_crosses != crosses:
            continue
        published = rates_by_source(machine, replace(call, nodes=nodes))
        if not published:
            continue
        range_there = _published(published, NEAREST, None)
        rates = join_ends((format_rate(range_there.low), format_rate(range_there.high)))
        who = format_count(len(published), "source")
        return f"; on {nodes} nodes, where other algorithms may run, {who} published {rates}"
    return ""


def _old_words(call: PublishedCall) -> str:
    """Return what an old NCCL excuses, in words."""
    oldest = ".".join(map(str, OLD))
    return f"on several nodes NCCL before {oldest} was slower, and the output is of {call.library}"


def _by_algorithm(machine: MachineFile, call: PublishedCall) -> str:
    """Return the words on the algorithm of a call: the one that a log or a setting names, or else the usual one."""
    if call.algorithm:
        return f" by {call.algorithm}"
    usual = usual_for(machine.machine_class, call)
    return f" by default ({usual})" if usual else ""
