"""Observations: what the model is fitted to and confronted with, one a case that was timed and right."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpccoll.schedule import COLLECTIVES, Algorithm, Cost, Layout, Parameter, Promise, numbering
from hpccoll.schedule.promise import NATIVE
from hpccoll.store.raw import Raw
from hpccoll.store.summary import row


@dataclass(frozen=True, slots=True)
class Observation:
    """One case, of all its rounds.

    Args:
        promise: what the call promised.
        algorithm: its algorithm; None for the library's own.
        params: all parameters with the values that were used.
        nbytes: the size S that was moved.
        seconds: the median time.
        layout: where the ranks were, by the numbers that the case gave them.
        transport: how its bytes moved.
    """

    promise: Promise
    algorithm: Algorithm | None
    params: Mapping[str, Parameter]
    nbytes: int
    seconds: float
    layout: Layout
    transport: str = "mpi"

    @property
    def collective(self) -> str:
        return self.promise.collective.name

    @property
    def own(self) -> dict[str, Parameter]:
        """The parameters that the algorithm's text takes."""
        known = self.algorithm.parameters if self.algorithm else {}
        return {name: value for name, value in self.params.items() if name in known}

    @property
    def name(self) -> str:
        """The algorithm with those of its own parameters that are not at their defaults."""
        if self.algorithm is None:
            return NATIVE
        known = self.algorithm.parameters
        changed = [f"{name}={value}" for name, value in sorted(self.own.items()) if known[name] != value]
        return " ".join([self.algorithm.name, *changed])

    @property
    def cost(self) -> Cost | None:
        """What the algorithm declares."""
        return self.algorithm.declared(self.layout.workers, **self.params) if self.algorithm else None

    @property
    def tiers(self) -> frozenset[str]:
        """How far its messages may go: two of its ranks share a node, two nodes a rack, or there are two racks."""
        two, layout = self.promise.peer, self.layout
        ranks = range(layout.workers) if two is None else (self.promise.root or 0, two)
        nodes = Counter((layout.rack[me], layout.node[me]) for me in ranks)
        racks = Counter(rack for rack, _ in nodes)
        there = {"node": max(nodes.values()) > 1, "rack": max(racks.values()) > 1, "fabric": len(racks) > 1}
        return frozenset(tier for tier, crossed in there.items() if crossed)

    @property
    def tier(self) -> str | None:
        """How far its messages go, where all go equally far."""
        return next(iter(self.tiers)) if len(self.tiers) == 1 else None


def observations(raw: Raw) -> Iterator[Observation]:
    """Yield what was measured in one raw file, all algorithms of which must be registered; no floor."""
    for attempt, outcome, _ in raw.wholes():
        case, timed = outcome.case, row(raw.job, attempt, outcome)
        family = COLLECTIVES[case.collective]
        known = case.algorithm in (*family.algorithms, NATIVE)  # others, such as auto, stand for one of these
        if outcome.status != "ok" or outcome.floor or not (known and timed.median_s and outcome.bytes):
            continue
        layout = attempt.layout
        if case.mapping is not None:
            layout = layout.among(numbering(layout, case.mapping))
        arguments = {name: value for name, value in outcome.params.items() if name in family.arguments}
        yield Observation(
            promise=family.promise(layout.workers, case.root, **arguments),
            algorithm=family.algorithms.get(case.algorithm),
            params=outcome.params,
            nbytes=outcome.bytes,
            seconds=timed.median_s,
            layout=layout,
            transport=case.transport,
        )
