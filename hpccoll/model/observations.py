"""Observations: what the model is fitted to and confronted with, one a case that was timed and right."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hpccoll.schedule import Algorithm, CollectiveCall, Cost, Layout, Parameter, numbering
from hpccoll.schedule.collective import NATIVE
from hpccoll.spec.registry import COLLECTIVES
from hpccoll.store.raw import RawResults
from hpccoll.store.statistics import make_row


class Work(NamedTuple):
    """What algorithms have to do to be compared: a call, and how many ranks do it where; empty is what there is not."""

    collective: str
    ranks: int  # workers
    nodes: int
    racks: int
    aggregators: int
    dtype: str
    op: str
    call: str  # the rest of its arguments, in words
    mapping: str = ""  # how ranks were numbered, where all of it have the same

    @property
    def words(self) -> str:
        """The work in words: ``all_reduce of 6 ranks on 6 nodes, float32 sum``."""
        where = f"{self.collective} of {self.ranks} ranks on {self.nodes} node{'s' * (self.nodes > 1)}"
        where += f" in {self.racks} racks" if self.racks > 1 else ""
        beside = f"{self.aggregators} aggregators" if self.aggregators else ""
        mapping = f"mapping {self.mapping}" if self.mapping else ""
        return ", ".join(filter(None, (where, beside, f"{self.dtype} {self.op}".strip(), self.call, mapping)))


@dataclass(frozen=True, slots=True)
class Observation:
    """One case, of all its rounds.

    Args:
        call: the call of a collective.
        algorithm: its algorithm; None for the library's own.
        params: all parameters with the values that were used.
        nbytes: the size S that was moved.
        seconds: the median time.
        layout: where the ranks were, by the numbers that the case gave them.
        transport: how its bytes moved, and on which device where not on the host.
        asked: those of the parameters that the case asked for.
        dtype: of the elements.
        op: by which they were folded.
        in_place: whether contribution and result shared a buffer.
        mapping: how the case numbered the ranks; None where as they were launched.
    """

    call: CollectiveCall
    algorithm: Algorithm | None
    params: Mapping[str, Parameter]
    nbytes: int
    seconds: float
    layout: Layout
    transport: str = "mpi"
    asked: Mapping[str, Parameter] = field(default_factory=dict)
    dtype: str = "float32"
    op: str | None = None
    in_place: bool = False
    mapping: str | None = None

    @property
    def collective(self) -> str:
        return self.call.collective.name

    @property
    def own(self) -> dict[str, Parameter]:
        """The parameters that the algorithm's text takes."""
        known = self.algorithm.parameters if self.algorithm else {}
        return {name: value for name, value in self.params.items() if name in known}

    @property
    def name(self) -> str:
        """The algorithm, the parameters that were asked for, and how ranks were numbered for it."""
        arguments = self.call.collective.arguments
        asked = [f"{name}={value}" for name, value in sorted(self.asked.items()) if name not in arguments]
        mapping = [f"mapping={self.mapping}"] if self.mapping else []
        return " ".join([self.algorithm.name if self.algorithm else NATIVE, *asked, *mapping])

    @property
    def work(self) -> Work:
        """What was done: whatever is of one work and one name differs in its placement alone."""
        call, layout = self.call, self.layout
        arguments = [f"traffic {call.traffic}"] if call.traffic else []
        if call.peer is not None:
            arguments += [f"ranks {call.root} and {call.peer}"]
        elif call.collective.rooted:
            arguments += [f"root {call.root}"]
        return Work(
            self.collective, layout.workers, layout.nodes, layout.racks, layout.aggregators, self.dtype, self.op or "",
            ", ".join(arguments),
        )  # fmt: skip

    @property
    def cost(self) -> Cost | None:
        """What the algorithm declares."""
        return self.algorithm.declared(self.layout.workers, **self.params) if self.algorithm else None

    @property
    def tiers(self) -> frozenset[str]:
        """How far its messages may go: two of its ranks share a node, two nodes a rack, or there are two racks."""
        two, layout = self.call.peer, self.layout
        ranks = range(layout.workers) if two is None else (self.call.root or 0, two)
        nodes = Counter((layout.rack[me], layout.node[me]) for me in ranks)
        racks = Counter(rack for rack, _ in nodes)
        there = {"node": max(nodes.values()) > 1, "rack": max(racks.values()) > 1, "fabric": len(racks) > 1}
        return frozenset(tier for tier, crossed in there.items() if crossed)

    @property
    def shares_uplinks(self) -> bool:
        """Whether several of its nodes are in one rack, and reach other racks by the same uplink."""
        return {"rack", "fabric"} <= self.tiers

    @property
    def tier(self) -> str | None:
        """How far its messages go, where all go equally far."""
        return next(iter(self.tiers)) if len(self.tiers) == 1 else None


def observations(raw: RawResults) -> Iterator[Observation]:
    """Yield what was measured in one raw file, all algorithms of which must be registered; no floor."""
    for attempt, outcome, _ in raw.histories():
        case, timed = outcome.case, make_row(raw.job, attempt, outcome)
        family = COLLECTIVES[case.collective]
        known = case.algorithm in (*family.algorithms, NATIVE)  # others, such as auto, stand for one of these
        if outcome.status != "ok" or outcome.floor or not (known and timed.median_s and outcome.bytes):
            continue
        layout = attempt.layout
        if case.mapping is not None:
            layout = layout.subset(numbering(layout, case.mapping))
        arguments = {name: value for name, value in outcome.params.items() if name in family.arguments}
        yield Observation(
            call=family.call(layout.workers, case.root, **arguments),
            algorithm=family.algorithms.get(case.algorithm),
            params=outcome.params,
            nbytes=outcome.bytes,
            seconds=timed.median_s,
            layout=layout,
            transport=case.transport if case.device == "cpu" else f"{case.transport} on {case.device}",
            asked=case.params,
            dtype=case.dtype,
            op=case.op,
            in_place=case.in_place,
            mapping=case.mapping,
        )
