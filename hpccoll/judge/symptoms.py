"""Symptoms of machines that are slower than expected: what the verdicts on the sizes of a collective have in common."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from hpccoll.common.text import join_words
from hpccoll.common.units import format_count, format_counts, format_per_cent, format_size
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.judge.acceptance import Judged, of_large_sizes
from hpccoll.judge.causes import Cause, Symptom, age_of, facts_of, likeliest_causes, traits_of
from hpccoll.judge.held import MODEL, NEAREST, PHYSICS, RATE, Acceptance
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
        if self.judged[0].row.transport != "nccl":
            return False
        if self.like is None:
            return self.nodes <= 2
        usual = usual_algorithm(self.like, self.nodes)
        return usual is not None and usual.startswith("NVLS")

    @property
    def failed(self) -> list[Judged]:
        """The rows that fail, or are below what is too little for a verdict."""
        return [judgement for judgement in self.judged if judgement.is_low]

    @property
    def failed_sizes(self) -> list[int]:
        return sorted({judgement.row.requested_bytes for judgement in self.failed})

    @property
    def normal_sizes(self) -> set[int]:
        """The sizes that pass in both placements."""
        passed = {
            judgement.row.requested_bytes
            for judgement in self.judged
            if judgement.acceptance is Acceptance.PASS
        }
        return passed.difference(self.failed_sizes)

    @property
    def is_normal(self) -> bool:
        """Whether large sizes pass, and no size fails."""
        return not self.failed and any(size >= LARGE for size in self.normal_sizes)

    @property
    def passing(self) -> set[str]:
        """Which sizes pass, so that none of them fails: ``small`` or ``large``."""
        return _kinds_of_sizes(self.normal_sizes) - _kinds_of_sizes(self.failed_sizes)

    @property
    def of_model(self) -> bool:
        """Whether NCCL's model is what is expected: of the algorithm that ran."""
        return any(
            judgement.expected and judgement.expected.origin == MODEL for judgement in self.judged
        )

    @property
    def of_what(self) -> str:
        """What the share is of, in words."""
        origins = {judgement.expected.origin for judgement in self.failed if judgement.expected}
        return "what was published" if origins == {NEAREST} else "what is expected"

    @property
    def share(self) -> float:
        """The median share of the large sizes: of those that fail, if any does."""
        return median(map(_share, of_large_sizes(self.failed or self.judged)))


def _kinds_of_sizes(sizes: Iterable[int]) -> set[str]:
    """Return which kinds of sizes are among these: ``small``, ``large``, or both."""
    kinds = set()
    for size in sizes:
        if size <= SMALL:
            kinds.add("small")
        elif size >= LARGE:
            kinds.add("large")
    return kinds


def _share(judged: Judged) -> float:
    """Return the measured bandwidth over the expected one, or the expected time over the measured one."""
    if judged.expected is None:
        return 1.0
    if judged.quantity == RATE:
        return judged.measured / judged.expected.value
    return judged.expected.value / judged.measured


def explain(
    judged: Sequence[Judged],
    machine: MachineFile | None = None,
    log: LogRecord | None = None,
    variables: Mapping[str, str] | None = None,
) -> list[Judged]:
    """Return verdicts with the likeliest causes of each fail, from what all of them show together.

    Args:
        judged: the verdicts on the results of one machine.
        machine: the machine, which cannot have every cause; None if it is not described.
        log: the content of the logs of the run.
        variables: the variables of its environment that its file records.
    """
    like = machine.machine_class if machine else None
    rails = machine.geometry.rails if machine and machine.geometry else None
    facts = list(facts_of(log, variables or {}, rails))
    traits = traits_of((judgement.row for judgement in judged), machine)
    places: dict[object, list[Judged]] = defaultdict(list)
    for judgement in judged:
        expected = judgement.expected
        if expected and expected.origin != PHYSICS and judgement.row.usable:
            places[_place(judgement)].append(judgement)
    all_calls = [_Calls(judged_there, like, rails) for judged_there in places.values()]
    causes: dict[int, tuple[Cause, ...]] = {}
    for calls in all_calls:
        if calls.failed:
            symptoms = list(symptoms_of(calls, all_calls))
            likeliest = likeliest_causes(
                symptoms, [*facts, *_ages(calls)], traits, passing=calls.passing
            )
            causes |= {id(judgement): likeliest for judgement in calls.failed}
    possible_faults = "; ".join(
        fact for fact in facts_of(log, {}, rails) if fact.startswith(TELLING)
    )
    explained = []
    for judgement in judged:
        reason = judgement.reason
        is_untold = judgement.acceptance is Acceptance.CANNOT_TELL
        if possible_faults and is_untold and judgement.row.nodes > 1:
            reason = f"{reason}; the log has {possible_faults}"
        explained.append(replace(judgement, causes=causes.get(id(judgement), ()), reason=reason))
    return explained


def _ages(calls: _Calls) -> set[str]:
    """Return as facts how old the libraries of failed calls are next to those of published figures."""
    ages: set[str] = set()
    for judgement in calls.failed:
        if judgement.expected:
            ages.update(age_of(judgement.library, judgement.expected.libraries))
    return ages


def _place(judged: Judged) -> object:
    call = CallKey.of(judged.row).only(
        "collective", "arguments", "dtype", "nodes", "ranks", "device"
    )
    return call, judged.row.algorithm


def symptoms_of(calls: _Calls, all_calls: Collection[_Calls]) -> Iterator[Symptom]:
    """Yield the symptoms of calls that fail, the most specific first."""
    for name, words_for in SYMPTOMS.items():
        words = words_for(calls, all_calls)
        if words:
            yield Symptom(name, words, calls.share if name in _BY_SHARE else None)


def _large(calls: _Calls) -> str:
    """Return what all symptoms of large sizes begin with."""
    where = f"{calls.collective} on {format_count(calls.nodes, 'node')}"
    return f"{where} has {format_per_cent(calls.share)} of {calls.of_what}"


def _dip(calls: _Calls, _all_calls: Collection[_Calls]) -> str:
    sizes = calls.failed_sizes
    normal = calls.normal_sizes or {0}
    is_dip = len(sizes) <= MOST_OF_DIP and min(normal) < sizes[0] and sizes[-1] < max(normal)
    return (
        f"only {join_words(map(format_size, sizes))} is slow: sizes below and above are normal"
        if is_dip
        else ""
    )


def _placement(calls: _Calls, _all_calls: Collection[_Calls]) -> str:
    placements = {judgement.row.in_place for judgement in calls.failed}
    if len(placements) > 1:
        return ""
    shares = {CallKey.of(judgement.row): _share(judgement) for judgement in calls.judged}
    for judgement in calls.failed:
        in_other_placement = replace(CallKey.of(judgement.row), in_place=not judgement.row.in_place)
        if shares.get(in_other_placement, 0) / _share(judgement) < UNEQUAL:
            return ""
    placement = "in place" if placements == {True} else "out of place"
    return f"only calls {placement} are slow"


def _small(calls: _Calls, _all_calls: Collection[_Calls]) -> str:
    largest = calls.failed_sizes[-1]
    return f"only sizes up to {format_size(largest)} are slow" if largest < LARGE else ""


def _small_nodes(calls: _Calls, all_calls: Collection[_Calls]) -> str:
    words = _small(calls, all_calls)
    inside = _inside(calls, all_calls)
    if calls.in_fabric or not words or any(inner.failed for inner in inside):
        return ""
    normal = "; one node is normal" if any("small" in inner.passing for inner in inside) else ""
    return f"{words}, on {format_count(calls.nodes, 'node')}{normal}"


def _all_to_all(calls: _Calls, all_calls: Collection[_Calls]) -> str:
    if calls.collective != "all_to_all":
        return ""
    if any(place.failed for place in _other_collectives(calls, all_calls)):
        return ""
    return f"no other collective is slow; {_large(calls)}"


def _collective(calls: _Calls, all_calls: Collection[_Calls]) -> str:
    places = _other_collectives(calls, all_calls)
    normal = [place.collective for place in places if place.is_normal]
    if not normal:
        return ""
    return f"{join_words(normal)} on as many nodes is normal; {_large(calls)}"


def _other_collectives(calls: _Calls, all_calls: Collection[_Calls]) -> list[_Calls]:
    places = []
    for place in all_calls:
        if place.nodes == calls.nodes and place.collective != calls.collective:
            places.append(place)
    return places


def _with_nodes(calls: _Calls, all_calls: Collection[_Calls]) -> str:
    shares = {}
    for place in all_calls:
        if place.collective == calls.collective and place.nodes > 1:
            shares[place.nodes] = place.share
    nodes = sorted(shares)
    falls = [shares[small] > UNEQUAL * shares[large] for small, large in pairwise(nodes)]
    if len(nodes) <= 2 or not all(falls):
        return ""
    parts = [format_per_cent(shares[number]) for number in nodes]
    return f"on {format_counts(nodes, 'node')} it has {', '.join(parts)} of what is expected"


def _unstable(calls: _Calls, _all_calls: Collection[_Calls]) -> str:
    for judgement in calls.failed:
        times = [time for time in judgement.row.round_medians_s if time]
        if times and max(times) > UNEQUAL * min(times):
            return f"its runs differ by more than {format_per_cent(UNEQUAL - 1)}"
    return ""


def _rails(calls: _Calls, _all_calls: Collection[_Calls]) -> str:
    rails = calls.rails or 1
    used = round(calls.share * rails)
    are_most_rails = rails < 2 * used < 2 * rails
    if calls.in_fabric or not are_most_rails or abs(calls.share - used / rails) > OF_RAILS:
        return ""
    return f"{_large(calls)}, about {used} of {rails} rails"


def _ring_level(calls: _Calls, _all_calls: Collection[_Calls]) -> str:
    """Return that an all-reduce has the bandwidth of a ring where NVLS is usual, and nothing says what ran."""
    if (
        calls.collective != "all_reduce"
        or not calls.usual_is_nvls
        or calls.failed_sizes[-1] < LARGE
    ):
        return ""
    rows = [judgement.row for judgement in calls.failed]
    is_known = calls.of_model or any(row.requested or row.executed != UNKNOWN for row in rows)
    low, high = RING_OF_NVLS
    if is_known or not low <= calls.share <= high:
        return ""
    return f"{_large(calls)}, as a ring has where NVLS is normal"


def _node(calls: _Calls, all_calls: Collection[_Calls]) -> str:
    failed = [inner for inner in _inside(calls, all_calls) if inner.failed]
    return _large(failed[0]) if failed and calls.failed_sizes[-1] >= LARGE else ""


def _nodes(calls: _Calls, all_calls: Collection[_Calls]) -> str:
    inside = _inside(calls, all_calls)
    if calls.in_fabric or calls.failed_sizes[-1] < LARGE or any(inner.failed for inner in inside):
        return ""
    normal = "; one node is normal" if any(inner.is_normal for inner in inside) else ""
    return f"{_large(calls)}{normal}"


def _inside(calls: _Calls, all_calls: Collection[_Calls]) -> list[_Calls]:
    """Return the calls of the same collective that need no network, from the fewest nodes on."""
    inside = []
    for place in all_calls:
        if place.in_fabric and place.collective == calls.collective:
            inside.append(place)
    return sorted(inside, key=lambda place: place.nodes)


SYMPTOMS: dict[str, Callable[[_Calls, Collection[_Calls]], str]] = {
    "dip": _dip,
    "placement": _placement,
    "small_nodes": _small_nodes,
    "small": _small,
    "with_nodes": _with_nodes,
    "all_to_all": _all_to_all,
    "collective": _collective,
    "unstable": _unstable,
    "rails": _rails,
    "ring_level": _ring_level,
    "node": _node,
    "nodes": _nodes,
}
"""The symptoms that causes.toml names, the most specific first; each returns its words, empty if it is not shown."""
_BY_SHARE = "all_to_all", "node", "nodes"
"""The symptoms whose causes differ in how much bandwidth they leave."""
