"""Observations: the measurements that the model is fitted to and validated with, one for each correct case."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hpccoll.cases.algorithm_registry import COLLECTIVES, is_workload
from hpccoll.cases.case import PYTHON, SINGLE
from hpccoll.common.units import format_count, parse_cpu_list
from hpccoll.model.torus_links import Torus
from hpccoll.schedule import Algorithm, CollectiveCall, Layout, Parameter, numbering
from hpccoll.schedule.collective import NATIVE
from hpccoll.schedule.layout import TIERS
from hpccoll.store.case_row import make_row
from hpccoll.store.raw_results import Attempt, Outcome, RawResults
from hpccoll.store.rows import Row, RowKey
from hpccoll.store.schema import IN_TURN, ON_TESTBED, PEERS, PORT_USE


class Work(NamedTuple):
    """The work that algorithms must share to be compared: a call, and its ranks; absent values are empty."""

    collective: str
    ranks: int  # workers
    nodes: int
    racks: int
    aggregators: int
    dtype: str
    op: str
    call: str  # its other arguments, as text
    mapping: str = ""  # how ranks were numbered, if all share it

    @property
    def text(self) -> str:
        """The work as text: ``all_reduce of 6 ranks on 6 nodes, float32 sum``."""
        where = f"{self.collective} of {self.ranks} ranks on {format_count(self.nodes, 'node')}"
        if self.racks > 1:
            where += f" in {self.racks} racks"
        words = [where]
        if self.aggregators:
            words.append(f"{self.aggregators} aggregators")
        words += [f"{self.dtype} {self.op}".strip(), self.call]
        if self.mapping:
            words.append(f"mapping {self.mapping}")
        return ", ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Observation:
    """One case over all its rounds."""

    call: CollectiveCall  # the call of a collective
    algorithm: Algorithm | None  # the algorithm; None for the library's own
    params: Mapping[str, Parameter]  # all parameters with the values used
    nbytes: int  # the size S
    seconds: float  # the median time
    layout: Layout  # the layout of the ranks, as the case numbered them
    transport: str = "mpi"  # the transport, with the device if it is not the host
    # the parameters that the case requested
    requested: Mapping[str, Parameter] = field(default_factory=dict)
    dtype: str = "float32"  # the dtype of the elements
    op: str | None = None  # the reduction, if any
    in_place: bool = False  # whether contribution and result share a buffer
    # the mapping that the case requested; None for the numbering of the launcher
    mapping: str | None = None
    executor: str = PYTHON  # the executor that measured it
    rounds_s: tuple[float, ...] = ()  # the median time of each round, if known
    machine: str = ""  # the machine that was measured
    kind: str = "measured"  # what the measurement is
    oversubscribed: bool = False  # whether ranks outnumbered the CPUs
    cpus: int = 1  # the CPUs of its nodes
    file: str = ""  # the name of its raw file
    key: RowKey = ("", "", "")  # what identifies its row

    @property
    def collective(self) -> str:
        return self.call.collective.name

    @property
    def own_parameters(self) -> dict[str, Parameter]:
        """The algorithm's own parameters."""
        own = self.algorithm.parameters if self.algorithm else {}
        return {name: value for name, value in self.params.items() if name in own}

    @property
    def ports(self) -> int:
        """The ports of a rank that are in use, each with its part of the vector."""
        return int(self.params.get("ports", 1))

    @property
    def ports_at_once(self) -> int:
        """How many ports of a rank are in use at once."""
        in_turn = self.params.get(PORT_USE) == IN_TURN
        return 1 if in_turn else self.ports

    @property
    def folded_segment(self) -> int:
        """The bytes of a segment that is folded while the next one is on its way; 0 if messages are whole.

        The segments of our own programs are channels.
        """
        return 0 if "channels" in self.params else int(self.params.get("segment", 0))

    @property
    def ports_of_link(self) -> int:
        """How many ports of a rank send over the same link of a torus at once."""
        torus = self._torus_of_nodes
        if torus is None or torus.nodes == 1:
            return 1
        return -(-self.ports_at_once // torus.links_of_node)

    @property
    def torus(self) -> Torus | None:
        """The torus of the nodes; None without one, or if messages go to other ranks than those of the schedule."""
        return None if PEERS in self.params else self._torus_of_nodes

    @property
    def _torus_of_nodes(self) -> Torus | None:
        shape = self.params.get("torus")
        if shape is None:
            return None
        torus = Torus.parse(str(shape))
        return torus if torus.nodes == self.layout.nodes else None

    @property
    def name_of_algorithm(self) -> str:
        return self.algorithm.name if self.algorithm else NATIVE

    @property
    def name(self) -> str:
        """The algorithm, the requested parameters and the mapping."""
        arguments = self.call.collective.arguments
        requested = [
            f"{name}={value}"
            for name, value in sorted(self.requested.items())
            if name not in arguments
        ]
        words = [self.name_of_algorithm, *requested]
        if self.mapping:
            words.append(f"mapping={self.mapping}")
        return " ".join(words)

    @property
    def work(self) -> Work:
        """The work: observations of one work and one name differ in their placement only."""
        call, layout = self.call, self.layout
        arguments = [f"traffic {call.traffic}"] if call.traffic else []
        if call.peer is not None:
            arguments += [f"ranks {call.root} and {call.peer}"]
        elif call.concurrent is not None:
            arguments += [f"{format_count(call.concurrent, 'pair')} at once"]
        elif call.collective.rooted:
            arguments += [f"root {call.root}"]
        return Work(
            self.collective,
            layout.workers,
            layout.nodes,
            layout.racks,
            layout.aggregators,
            self.dtype,
            self.op or "",
            ", ".join(arguments),
        )

    @property
    def tiers(self) -> frozenset[str]:
        """The tiers that its messages can cross: inside a node, between nodes of a rack, between racks."""
        call, layout = self.call, self.layout
        if call.peer is not None or call.concurrent is not None:
            partners = {me: call.partner(me) for me in range(layout.workers)}
            pairs = [(me, partner) for me, partner in partners.items() if partner is not None]
            crossed = layout.tier(*np.array(pairs).T).tolist()
            return frozenset(TIERS[tier] for tier in crossed)
        aggregates = self.algorithm is not None and self.algorithm.aggregates
        ranks = range(layout.ranks if aggregates else call.p)
        ranks_of_node = Counter((layout.rack[me], layout.node[me]) for me in ranks)
        nodes_of_rack = Counter(rack for rack, _ in ranks_of_node)
        tiers = set()
        if max(ranks_of_node.values()) > 1:
            tiers.add("node")
        if max(nodes_of_rack.values()) > 1:
            tiers.add("rack")
        if len(nodes_of_rack) > 1:
            tiers.add("fabric")
        return frozenset(tiers)

    @property
    def cpu_share(self) -> float:
        """How many ranks there were to a CPU, at least 1; all hosts of a testbed share the CPUs of one machine."""
        ranks = (
            self.layout.ranks
            if self.kind == ON_TESTBED
            else max(Counter(self.layout.node).values())
        )
        return max(1.0, ranks / self.cpus)

    @property
    def tier(self) -> str | None:
        """The tier that all of its messages cross, if there is only one."""
        return next(iter(self.tiers)) if len(self.tiers) == 1 else None


def observations(
    raw: RawResults, *, imported: bool = False, rows: Mapping[RowKey, Row] | None = None
) -> Iterator[Observation]:
    """Yield the observations of one raw file: of single operations, without floors, predictions, unknown algorithms.

    Training steps are many operations, and left out; so are calls under load, and, unless
    ``imported``, those that another program measured. If ``rows`` of the file are passed, only
    their cases are yielded, and the rows are not made again.
    """
    for history in raw.histories():
        attempt, outcome = history.attempt, history.outcome
        is_wanted = attempt.ours or (imported and attempt.imported)
        if not is_wanted or not _is_observed(outcome):
            continue
        case = outcome.case
        key = raw.job.name, attempt.run_id, case.id
        if rows is None:
            timed: Row | None = make_row(raw.job, history)
        else:
            timed = rows.get(key)
        if timed is None or not timed.median_s or not outcome.bytes:
            continue
        family = COLLECTIVES[case.collective]
        layout = attempt.layout
        if case.mapping is not None:
            layout = layout.subset(numbering(layout, case.mapping))
        arguments = {
            name: value for name, value in outcome.params.items() if name in family.arguments
        }
        call = family.call(layout.workers, case.root, **arguments)
        transport = case.transport
        if case.device != "cpu":
            transport = f"{transport} on {case.device}"
        algorithm = family.algorithms.get(case.algorithm)
        rounds_s = tuple(filter(None, timed.round_medians_s))
        yield Observation(
            call=call,
            algorithm=algorithm,
            params=outcome.params,
            nbytes=outcome.bytes,
            seconds=timed.median_s,
            layout=layout,
            transport=transport,
            requested=case.params,
            dtype=case.dtype,
            op=case.op,
            in_place=case.in_place,
            mapping=case.mapping,
            executor=timed.executor or PYTHON,
            rounds_s=rounds_s,
            machine=attempt.machine,
            kind=attempt.kind,
            oversubscribed=attempt.oversubscribed,
            cpus=_cpus(attempt),
            file=raw.path.name,
            key=key,
        )


def _is_observed(outcome: Outcome) -> bool:
    """Return whether an outcome is that of a single operation, without a load, that has a right result."""
    case = outcome.case
    if is_workload(case.collective) or outcome.load or outcome.floor or outcome.status != "ok":
        return False
    family = COLLECTIVES[case.collective]
    # the row of another name, such as auto, repeats one that has a name of its own
    is_known = case.algorithm in (*family.algorithms, NATIVE)
    return is_known and case.timing == SINGLE


def _cpus(attempt: Attempt) -> int:
    """Return the CPUs of the first node that ranks may use; at least 1."""
    cpus: set[int] = set()
    for place in attempt.places:
        if place.node == 0:
            cpus.update(parse_cpu_list(place.affinity))
    quota = attempt.provenance.get("cpu_quota")
    allowed = min(len(cpus), int(quota)) if isinstance(quota, int | float) else len(cpus)
    return max(1, allowed)
