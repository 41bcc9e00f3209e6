"""Why a case is not measured: needs that the ranks do not meet, variants without effect, equal mappings, equal plans.

The planner, the rank program and the factory of cases ask in this order. Plans leave such cases
out, and launches by hand skip them: every row with the name of a variant was affected by it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from msgspec import UNSET, UnsetType

from hpccoll.cases.algorithm_registry import collective, is_workload
from hpccoll.cases.case import LOAD, LOOPS_OF_PROGRAMS, OSU, Case, Shape
from hpccoll.cases.catalogue import GRAPH, call_of, moved_dtypes, own_parameters
from hpccoll.cases.communicator_settings import COMMUNICATOR_SETTINGS
from hpccoll.cases.library_algorithms import LibraryAlgorithm, library_table
from hpccoll.cases.planned_schedule import mapped_layout, planned_schedule, smallest_message
from hpccoll.cases.requirements import MPI_LIBRARIES, wrong_mpi
from hpccoll.cases.transport_table import TRANSPORTS, unmet_by_transport
from hpccoll.cases.variants import NodeView, Variant, named_variants
from hpccoll.cases.workload import workload
from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import MAX_MPI_LANES
from hpccoll.common.units import format_size
from hpccoll.schedule import MAPPINGS, Layout, Schedule, itemsize, numbering
from hpccoll.schedule.collective import AUTO, NATIVE, check_parameters
from hpccoll.schedule.same_steps import have_same_steps

FIRST_MAPPING = next(iter(MAPPINGS))
"""The mapping that is measured if several mappings number the ranks alike."""

SAME_SCHEDULE = "the same schedule as"
"""The beginning of the reason of a case with the plan of another one, which is measured."""

COLLECTIVE_VARIABLES = re.compile(
    r"NCCL_(ALGO|PROTO|COLLNET_ENABLE|NVLS_ENABLE|SHARP_DISABLE)"
    r"|(SHARP_COLL|UCC|HCOLL)_\w+|OMPI_MCA_coll(_\w+)?|MV[P2]_ENABLE_SHARP"
    r"|MPIR_CVAR_\w+_(ALGORITHM|COMPOSITION|TUNING_JSON_FILE)"
)
"""The variables that affect a library's own collectives only, and not the sends and receives of our schedules.

The protocol of NCCL's sends and receives depends on NCCL_P2P_LL_THRESHOLD instead (addP2pToPlan in
src/enqueue.cc, 2.20.5 to 2.30.7).
"""


def planned_nodes(shape: Shape, nvlink_nodes: int) -> NodeView:
    """Return the nodes of a launch as NCCL counts them, if it fills one NVLink domain after the other."""
    domains = -(-shape.nodes // nvlink_nodes)
    hosts_per_domain = min(shape.nodes, nvlink_nodes)
    return NodeView.of(domains, hosts_per_domain * shape.ranks_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """What is known of a launch when its cases are chosen: at planning less than on its ranks."""

    shape: Shape  # its ranks and nodes
    # the name of a known variant or of one of the sweep, None for no variant
    variant: str | None = None
    # the environment variables and communicator settings of the variant
    sets: Mapping[str, object] = field(default_factory=dict)
    # its nodes as NCCL counts them; None if unknown: any number of its hosts may be of one NVLink
    # domain
    nccl_nodes: NodeView | None = None
    mpi: str | None = None  # the version string of the MPI library; None if unknown
    # whether the layout has the racks of the nodes, on which the numbers of ranks depend
    racks_known: bool = True


def skip_reason(
    case: Case, layout: Layout, facts: LaunchFacts, resolved: Case | None = None
) -> str | None:
    """Return the reason why ``case`` is not measured in a launch, None if it can be.

    A reason that holds on every machine comes first; callers add what their machine lacks.

    Args:
        case: the case as requested.
        layout: the layout of the ranks as the launcher numbers them.
        facts: what is known of the launch.
        resolved: the case with the algorithm that a table chose, if the requested one is ``auto``.

    Raises:
        BadInputError: for a value that is invalid on every layout.
    """
    mapped = mapped_layout(layout, case.mapping)
    reason = unmet_needs(resolved or case, mapped) or _variant_reason(case, mapped, facts)
    if reason:
        return reason
    return redundant_mapping(case, layout) if facts.racks_known else None


def unmet_needs(case: Case, layout: Layout) -> str | None:
    """Return the reason why ``case`` cannot run on ``layout``, None if it can.

    Raises:
        BadInputError: for a value that is invalid on every layout.
    """
    family = collective(case.collective)
    if family.elements(case.bytes, itemsize(case.dtype), layout.workers) < 1:
        few = f"{format_size(case.bytes)} is less than one {case.dtype} for each of {layout.workers} ranks"
        return f"{few} of {case.collective}"
    if reason := _unmet_by_timing(case):
        return reason
    try:
        call_of(case, layout.workers)
        if is_workload(case.collective):
            workload(case.collective).check_layout(case, layout)
        dtypes = moved_dtypes(case, layout.workers)
    except BadInputError as error:
        return str(error)
    if case.algorithm == AUTO:
        return None  # the algorithm is chosen in the job, where its needs are checked
    if case.algorithm == NATIVE:
        return unmet_by_transport(case.transport, case.device, dtypes, case.timing, layout, None)
    algorithm, parameters = family.algorithm(case.algorithm), own_parameters(case)
    check_parameters(algorithm, parameters)
    unmet = unmet_by_transport(case.transport, case.device, dtypes, case.timing, layout, parameters)
    unmet = unmet or algorithm.unmet(layout, **parameters) or algorithm.unmet_size(case.bytes)
    return unmet or _too_many_lanes(case, layout)


def _unmet_by_timing(case: Case) -> str | None:
    """Return the reason if the program whose loop is the timing of ``case`` has no such operation, else None."""
    if case.timing not in LOOPS_OF_PROGRAMS:
        return None
    if is_workload(case.collective):
        return f"timing {case.timing} is of a collective, not of a workload"
    if case.timing == OSU and "peer" in collective(case.collective).arguments:
        return f"timing {OSU} is of a collective: OSU times messages between two ranks without barriers"
    return None


def _too_many_lanes(case: Case, layout: Layout) -> str | None:
    """Return the reason if MPI has too few tags for the lanes of ``case``, else None."""
    over_mpi = TRANSPORTS[case.transport].channels == "messages"
    planned = planned_schedule(case, layout) if over_mpi else None
    if planned is None or planned.lanes <= MAX_MPI_LANES:
        return None
    expected = f"at most {MAX_MPI_LANES} lanes, it makes {planned.lanes}"
    if segment := case.params.get("segment"):
        larger = f"a larger one: {planned.channels} channels follow from it ({expected})"
        return str(BadInputError("parameter segment", format_size(int(segment)), larger))
    return str(BadInputError("parameter channels", planned.channels, expected))


def redundant_mapping(case: Case, layout: Layout) -> str | None:
    """Return the reason why the mapping of ``case`` is skipped, None if it is not.

    It is skipped if another mapping, which is measured, numbers the ranks alike.
    """
    if case.mapping in (None, FIRST_MAPPING) or numbering(layout, case.mapping) != numbering(
        layout, FIRST_MAPPING
    ):
        return None
    racks = len(layout.groups("rack"))
    distributions = {layout.workers: "one on each node", 1: "all on one node"}
    distribution = distributions.get(layout.nodes, f"{layout.workers} on {layout.nodes} nodes")
    in_racks = f" in {racks} racks" if racks > 1 else ""
    return f"mapping {case.mapping} numbers these ranks as {FIRST_MAPPING} does: {distribution}{in_racks}"


def _variant_reason(case: Case, layout: Layout, facts: LaunchFacts) -> str | None:
    """Return the reason why a variant has no effect on ``case``, or does not support it; None if it is measured."""
    if facts.variant is None or case.algorithm == AUTO:
        return None
    variant = named_variants().get(facts.variant)
    over = _affected_transport(variant, facts.sets)
    if over and _library_of(over) != _library_of(case.transport):
        return f"{facts.variant}: its settings affect cases over {over}, not over {case.transport}"
    is_native = case.algorithm == NATIVE
    if not is_native and facts.sets and all(map(_of_collectives, facts.sets)):
        return f"{facts.variant}: the variant affects the library's own collectives only"
    if variant is None:
        return None
    reason = None
    if is_native and variant.algorithms:
        reason = _unmet_by_algorithm(variant, case, layout, facts.mpi)
    if not reason:
        reason = _exceeded_limit(variant.with_added(facts.sets), case, layout, facts)
    return f"{facts.variant}: {reason}" if reason else None


def _library_of(transport: str) -> str:
    """Return the library whose settings affect cases over a transport; peer is affected by those of none."""
    if transport in ("nccl", "peer"):
        return transport
    return "mpi"


def _affected_transport(variant: Variant | None, sets: Mapping[str, object]) -> str | None:
    """Return the transport that a variant, or settings without a known one, change; None if that is unknown."""
    if variant:
        return variant.transport
    is_of_nccl = sets and all(
        name.startswith("NCCL_") or name in COMMUNICATOR_SETTINGS for name in sets
    )
    return "nccl" if is_of_nccl else None


def _exceeded_limit(variant: Variant, case: Case, layout: Layout, facts: LaunchFacts) -> str | None:
    """Return which limit of a variant a case exceeds, as a sentence; None if it exceeds none."""
    shape = facts.shape
    view = NodeView.of(shape.nodes, shape.ranks_per_node)
    if variant.transport == "nccl":
        view = facts.nccl_nodes or NodeView((1, shape.nodes), (shape.ranks_per_node, shape.ranks))
    message = smallest_message(case, layout) if variant.limits_messages else None
    call = None
    # over staged, MPI's on host memory is called
    if case.algorithm == NATIVE and case.transport == variant.transport:
        call = case.collective, case.dtype, case.op
    return variant.violation(call, view, message)


HOLDS: Mapping[str, Callable[[Case, Layout, int], bool]] = {
    "pow2": lambda _case, layout, _: layout.workers.bit_count() == 1,
    "even": lambda _case, layout, _: layout.workers % 2 == 0,
    "two": lambda _case, layout, _: layout.ranks == 2,  # also in calls of ours
    "count": lambda _case, layout, elements: elements >= 1 << layout.workers.bit_length() - 1,
    "ranks": lambda _case, layout, elements: elements >= layout.workers,
    "inplace": lambda case, *_: case.in_place,
    "noinplace": lambda case, *_: not case.in_place,
    "gpu": lambda case, *_: case.device == "cuda" and case.transport != "staged",
    "parent": lambda _case, layout, _: layout.nodes < layout.workers,
}
"""Whether a case meets a need of ``library_algorithms.toml``, by the elements of its call. All
operations of ours meet the needs of operations."""


def _unmet_by_algorithm(
    variant: Variant, case: Case, layout: Layout, mpi: str | None
) -> str | None:
    """Return why the library of a variant cannot run ``case`` with its algorithm, and would run another one or fail."""
    library = variant.requirements[0]
    algorithm = variant.algorithms.get(case.collective)
    if mpi:
        wrong = wrong_mpi(library, mpi, algorithm.since if algorithm else "")
        if wrong:
            return wrong
    if algorithm is None:
        title, _ = MPI_LIBRARIES[library]
        return f"{title} has no such algorithm of {case.collective}"
    unmet = unmet_need(algorithm, case, layout)
    return f"for {case.collective} it needs {unmet}" if unmet else None


def unmet_need(algorithm: LibraryAlgorithm, case: Case, layout: Layout) -> str | None:
    """Return what an algorithm of a library needs and ``case`` does not give, as a noun; None if it gives all."""
    elements = collective(case.collective).elements(
        case.bytes, itemsize(case.dtype), layout.workers
    )
    for need in algorithm.needs:
        if need in HOLDS and not HOLDS[need](case, layout, elements):
            return str(library_table()["needs"][need])
    return None


def _of_collectives(name: str) -> bool:
    """Return whether a variable or a setting of communicators affects the library's own collectives only."""
    if name in COMMUNICATOR_SETTINGS:
        return COMMUNICATOR_SETTINGS[name].library_only
    return bool(COLLECTIVE_VARIABLES.fullmatch(name))


class MeasuredPlans:
    """The plans of the cases of one launch that are measured: of equal plans, the first.

    On two ranks, most algorithms of a textbook coincide, and whoever compares them there sees the
    noise between runs of one plan. An algorithm that the user names is measured all the same, but
    not over NCCL: there a case costs GPU time, and its variants multiply the cases.

    Args:
        layout: the layout of the ranks as the launcher numbers them.
        shape: its ranks and nodes.
        named: the algorithms that the user names beside ``all``; UNSET if all are named.
    """

    def __init__(
        self, layout: Layout, shape: Shape, named: tuple[str, ...] | UnsetType = UNSET
    ) -> None:
        self._layout = layout
        self._shape = shape
        self._named = named
        self._measured: dict[object, list[tuple[str, tuple[Schedule, ...]]]] = {}

    def skip_reason(self, case: Case) -> str | None:
        """Return the reason if ``case`` has the plan of an earlier one; else remember it as measured and return None.

        Cases are given in the order of the job, if they can run and are not skipped for another
        reason.
        """
        if case.transport != "nccl" and self._named is UNSET:
            return None
        planned = planned_schedule(case, mapped_layout(self._layout, case.mapping))
        if planned is None or planned.algorithm.floor:
            return None
        same = (*collective(case.collective).arguments, GRAPH, LOAD)
        same_but_plan = (
            replace(case, algorithm="", params={}).id,
            *(case.params.get(name) or 0 for name in same),
        )
        window = min(planned.window, planned.channels)
        lowered_alike = len(planned.slices), planned.channels, window, planned.protocol
        earlier = self._measured.setdefault((*same_but_plan, *lowered_alike), [])
        is_measured_anyway = case.transport != "nccl" and self._is_named(case.algorithm)
        for name, slices in earlier:
            if not is_measured_anyway and all(map(_have_same_steps, slices, planned.slices)):
                return f"{SAME_SCHEDULE} {name} on {self._shape.text}"
        parameters = [
            f"{name}={value}" for name, value in sorted(case.params.items()) if name not in same
        ]
        name = " ".join([case.algorithm, *parameters])
        earlier.append((name, planned.slices))
        return None

    def _is_named(self, algorithm: str) -> bool:
        return self._named is UNSET or algorithm in self._named


_have_same_steps = lru_cache(4096)(have_same_steps)
