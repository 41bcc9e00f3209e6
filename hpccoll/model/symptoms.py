"""Symptoms of machines that are slower than expected: what the verdicts on the sizes of a collective have in common."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from hpccoll.common.text import join_words
from hpccoll.common.units import format_count, format_counts, format_per_cent, format_size
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.model.acceptance import MODEL, RATE, Acceptance, Judged, of_large_sizes
from hpccoll.model.causes import Cause, Symptom, age_of, facts_of, likeliest_causes, traits_of
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import ClassSection
from hpccoll.model.published_rates import usual_algorithm
from hpccoll.store.call_key import CallKey

SMALL, LARGE = 64 << 10, 1 << 20
"""The sizes in bytes up to which latency alone counts, and from which on bandwidth counts more."""
MOST_OF_DIP = 2
"""The most neighbouring sizes that are a dip."""
OF_RAILS = 0.02
"""How far a share may be from that of most rails of all."""
RING_OF_NVLS = 0.7, 0.86
"""The bandwidth of a ring over that of NVLS: H200 367 of 480, B300 695 of 845, two nodes of H100 370 of 452."""
TELLING = "fewer ports than described", "network tcp", "not every hop with GPUDirect RDMA"
"""The facts of a log that may be faults of a network whatever the numbers are, as they begin."""
UNEQUAL = 1.1
"""The ratio from which on two shares, or the times of two rounds, differ."""


@dataclass(frozen=True)
class _Calls:
    """The verdicts on one collective in one place that have an expectation, by size."""

    judged: Sequence[Judged]
    like: ClassSection | None  # the class of the machine
    rails: int | None  # of a node of the machine

    @property
    def collective(self) -> str:
        return self.judged[0].row.collective

    @property
    def nodes(self) -> int:
        return self.judged[0].row.nodes

    @property
    def in_fabric(self) -> bool:
        """Whether one fabric connects all nodes, so that no network takes part."""
        return self.nodes <= (self.like.fabric_nodes if self.like else 1)

    @property
    def usual_is_nvls(self) -> bool:
        """Whether NCCL takes NVLS or NVLSTree without a setting: if no class says it, on one and two nodes."""
        usual = usual_algorithm(self.like, self.nodes) if self.like else "NVLS" if self.nodes <= 2 else None
        return self.judged[0].row.transport == "nccl" and (usual or "").startswith("NVLS")

    @property
    def failed(self) -> list[Judged]:
        return [one for one in self.judged if one.verdict is Acceptance.FAIL]

    @property
    def failed_sizes(self) -> list[int]:
        return sorted({one.row.requested_bytes for one in self.failed})

    @property
    def normal_sizes(self) -> set[int]:
        """The sizes that pass in both placements."""
        passed = {one.row.requested_bytes for one in self.judged if one.verdict is Acceptance.PASS}
        return passed - {*self.failed_sizes}

    @property
    def is_normal(self) -> bool:
        """Whether large sizes pass, and no size fails."""
        return not self.failed and any(size >= LARGE for size in self.normal_sizes)

    @property
    def passing(self) -> set[str]:
        """Which sizes pass, so that none of them fails: ``small`` or ``large``."""
        of_verdict = [
            {"small" if size <= SMALL else "large" for size in sizes if not SMALL < size < LARGE}
            for sizes in (self.normal_sizes, self.failed_sizes)
        ]
        return of_verdict[0] - of_verdict[1]

    @property
    def of_model(self) -> bool:
        """Whether NCCL's model is what is expected: of the algorithm that ran."""
        return any(one.expected and one.expected.origin == MODEL for one in self.judged)

    @property
    def share(self) -> float:
        """The median share of the large sizes: of those that fail, if any does."""
        return median(map(_share, of_large_sizes(self.failed or self.judged)))


def _share(judged: Judged) -> float:
    """Return the measured bandwidth over the expected one, or the expected time over the measured one."""
    expected = judged.expected.value if judged.expected else judged.measured
    return judged.measured / expected if judged.quantity == RATE else expected / judged.measured


def explain(
    judged: Sequence[Judged], machine: MachineFile | None = None, log: LogRecord | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[Judged]:  # fmt: skip
    """Return verdicts with the likeliest causes of each fail, from what all of them show together.

    Args:
        judged: the verdicts on the results of one machine.
        machine: the machine, which cannot have every cause; None if it is not described.
        log: the content of the logs of the run.
        variables: the variables of its environment that its file records.
    """
    rails = machine.geometry.rails if machine and machine.geometry else None
    facts, traits = [*facts_of(log, variables or {}, rails)], traits_of((one.row for one in judged), machine)
    places: dict[object, list[Judged]] = defaultdict(list)
    for one in judged:
        if one.expected and one.row.usable:
            places[_place(one)].append(one)
    every = [_Calls(calls, machine.machine_class if machine else None, rails) for calls in places.values()]
    causes: dict[int, tuple[Cause, ...]] = {}
    for calls in every:
        if calls.failed:
            ages = {age for one in calls.failed if one.expected for age in age_of(one.library, one.expected.libraries)}
            found = likeliest_causes([*symptoms_of(calls, every)], [*facts, *ages], traits, passing=calls.passing)
            causes |= {id(one): found for one in calls.failed}
    shown = [fact for fact in facts_of(log, {}, rails) if fact.startswith(TELLING)]
    explained = []
    for one in judged:
        reason = one.reason
        if shown and one.verdict is Acceptance.CANNOT_TELL and one.row.nodes > 1:
            reason = f"{reason}; the log has {'; '.join(shown)}"
        explained.append(replace(one, causes=causes.get(id(one), ()), reason=reason))
    return explained


def _place(judged: Judged) -> object:
    call = CallKey.of(judged.row).only("collective", "arguments", "dtype", "nodes", "ranks", "device")
    return call, judged.row.algorithm


def symptoms_of(calls: _Calls, every: Collection[_Calls]) -> Iterator[Symptom]:
    """Yield the symptoms of calls that fail, the most specific first."""
    for name, words in SYMPTOMS.items():
        if said := words(calls, every):
            yield Symptom(name, said, calls.share if name in _BY_SHARE else None)


def _large(calls: _Calls) -> str:
    """Return what all symptoms of large sizes begin with."""
    where = f"{calls.collective} on {format_count(calls.nodes, 'node')}"
    return f"{where} has {format_per_cent(calls.share)} of what is expected"


def _dip(calls: _Calls, _every: Collection[_Calls]) -> str:
    sizes, normal = calls.failed_sizes, calls.normal_sizes or {0}
    is_dip = len(sizes) <= MOST_OF_DIP and min(normal) < sizes[0] and sizes[-1] < max(normal)
    return f"only {join_words(map(format_size, sizes))} fails: sizes below and above are normal" if is_dip else ""


def _placement(calls: _Calls, _every: Collection[_Calls]) -> str:
    shares = {CallKey.of(one.row): _share(one) for one in calls.judged}
    placements = {one.row.in_place for one in calls.failed}
    others = [
        shares.get(replace(CallKey.of(one.row), in_place=not one.row.in_place), 0) / _share(one) for one in calls.failed
    ]
    if len(placements) > 1 or min(others) < UNEQUAL:
        return ""
    return f"only calls {'in place' if placements == {True} else 'out of place'} fail"


def _small(calls: _Calls, _every: Collection[_Calls]) -> str:
    largest = calls.failed_sizes[-1]
    return f"only sizes up to {format_size(largest)} fail" if largest < LARGE else ""


def _small_nodes(calls: _Calls, every: Collection[_Calls]) -> str:
    said, inside = _small(calls, every), _inside(calls, every)
    if calls.in_fabric or not said or any(other.failed for other in inside):
        return ""
    normal = "; one node is normal" if any("small" in other.passing for other in inside) else ""
    return f"{said}, on {format_count(calls.nodes, 'node')}{normal}"


def _all_to_all(calls: _Calls, every: Collection[_Calls]) -> str:
    alone = calls.collective == "all_to_all" and not any(other.failed for other in _other_collectives(calls, every))
    return f"no other collective fails; {_large(calls)}" if alone else ""


def _collective(calls: _Calls, every: Collection[_Calls]) -> str:
    normal = [other.collective for other in _other_collectives(calls, every) if other.is_normal]
    return f"{join_words(normal)} on as many nodes is normal; {_large(calls)}" if normal else ""


def _other_collectives(calls: _Calls, every: Collection[_Calls]) -> list[_Calls]:
    return [other for other in every if other.nodes == calls.nodes and other.collective != calls.collective]


def _with_nodes(calls: _Calls, every: Collection[_Calls]) -> str:
    of_nodes = {other.nodes: other.share for other in every if other.collective == calls.collective and other.nodes > 1}
    shares = [of_nodes[nodes] for nodes in sorted(of_nodes)]
    falls = len(shares) > 2 and all(one > UNEQUAL * other for one, other in pairwise(shares))
    if not falls:
        return ""
    parts = ", ".join(map(format_per_cent, shares))
    return f"on {format_counts(sorted(of_nodes), 'node')} it has {parts} of what is expected"


def _unstable(calls: _Calls, _every: Collection[_Calls]) -> str:
    rounds = [[time for time in one.row.round_medians_s if time] for one in calls.failed]
    unequal = any(max(times) > UNEQUAL * min(times) for times in rounds if times)
    return f"its runs differ by more than {format_per_cent(UNEQUAL - 1)}" if unequal else ""


def _rails(calls: _Calls, _every: Collection[_Calls]) -> str:
    rails = calls.rails or 1
    used = round(calls.share * rails)
    near = rails < 2 * used < 2 * rails and abs(calls.share - used / rails) <= OF_RAILS
    return f"{_large(calls)}, about {used} of {rails} rails" if near and not calls.in_fabric else ""


def _ring_level(calls: _Calls, _every: Collection[_Calls]) -> str:
    low, high = RING_OF_NVLS
    known = any(one.row.requested or one.row.executed != UNKNOWN for one in calls.failed) or calls.of_model
    at_ring = calls.collective == "all_reduce" and calls.usual_is_nvls and not known and low <= calls.share <= high
    return f"{_large(calls)}, as a ring has where NVLS is normal" if at_ring and calls.failed_sizes[-1] >= LARGE else ""


def _node(calls: _Calls, every: Collection[_Calls]) -> str:
    failed = [other for other in _inside(calls, every) if other.failed]
    return _large(failed[0]) if failed and calls.failed_sizes[-1] >= LARGE else ""


def _nodes(calls: _Calls, every: Collection[_Calls]) -> str:
    inside = _inside(calls, every)
    if calls.in_fabric or calls.failed_sizes[-1] < LARGE or any(other.failed for other in inside):
        return ""
    return f"{_large(calls)}{'; one node is normal' if any(other.is_normal for other in inside) else ''}"


def _inside(calls: _Calls, every: Collection[_Calls]) -> list[_Calls]:
    """Return the calls of the same collective that need no network, from the fewest nodes on."""
    same = [other for other in every if other.in_fabric and other.collective == calls.collective]
    return sorted(same, key=lambda other: other.nodes)


SYMPTOMS: dict[str, Callable[[_Calls, Collection[_Calls]], str]] = {
    "dip": _dip, "placement": _placement, "small_nodes": _small_nodes, "small": _small, "with_nodes": _with_nodes,
    "all_to_all": _all_to_all, "collective": _collective, "unstable": _unstable, "rails": _rails,
    "ring_level": _ring_level, "node": _node, "nodes": _nodes,
}  # fmt: skip
"""The symptoms that causes.toml names, the most specific first; each returns its words, empty if it is not shown."""
_BY_SHARE = "all_to_all", "node", "nodes"
"""The symptoms whose causes differ in how much bandwidth they leave."""
