"""Sentences about the times in which ranks created communicators: of each, of what delayed it, of their growth."""

from collections.abc import Iterator, Sequence
from statistics import median

from hpccoll.common.text import first_few, in_brackets, join_ends
from hpccoll.common.units import format_count, format_cpu_list, format_seconds
from hpccoll.evidence.creation_delays import (
    CreationDelay,
    CreationGrowth,
    creation_delays,
    creation_times_s,
    known_values,
)
from hpccoll.evidence.log_record import CommunicatorCreation

MAX_CREATIONS = 4
"""The number of communicators whose times are printed: those that took longest."""

_MAX_HOSTS = 4
"""The number of hosts that a sentence names."""

_PHASES = {
    "kernels": "loading NCCL's kernels",
    "alloc": "memory and plugins",
    "topo": "detecting the topology of the node",
    "graphs": "searching rings and trees",
    "connections": "connecting with peers",
    "rest": "setting the device",
}
"""What a rank does in a phase, in src/init.cc of NCCL 2.30: ncclCommInitRankFunc, commAlloc and initTransportsRank."""

_SHOWN_S = 0.005
"""The smallest median of a phase that is printed: NCCL logs hundredths of a second."""


def longest_creations(creations: Sequence[CommunicatorCreation]) -> list[CommunicatorCreation]:
    """Return the communicators that took longest, the longest first."""
    return sorted(creations, key=_longest_s, reverse=True)[:MAX_CREATIONS]


def _longest_s(creation: CommunicatorCreation) -> float:
    return max(creation_times_s(creation))


def creation_summary(creations: Sequence[CommunicatorCreation]) -> str:
    """Return the sentences about the communicators that took longest, and about what delayed them, in one line."""
    sentences: list[str] = []
    for creation in longest_creations(creations):
        sentences += [creation_sentence(creation), *delay_sentences(creation)]
    return "; ".join(sentences)


def creation_sentence(creation: CommunicatorCreation) -> str:
    """Return how long a communicator took: the range over its ranks, and the medians of its phases."""
    times = creation_times_s(creation)
    parts = [f"{_name(creation)}, in {_range_text(times)}"]
    if len(times) < creation.size:
        parts.append(f"of {format_count(len(times), 'rank')} in the log")
    if creation.phases_s:
        parts.append(f"medians of its phases: {_phases_text(creation)}")
    logged = known_values(creation.logged_s)
    if logged:
        parts.append(f"from Init START to COMPLETE by the clock of the log {_range_text(logged)}")
    return "; ".join(parts)


def _name(creation: CommunicatorCreation) -> str:
    ranks = format_count(creation.size, "rank")
    return f"{creation.name} of {ranks}" if creation.name else ranks


def _range_text(times: Sequence[float]) -> str:
    ends = map(format_seconds, (min(times), max(times)))
    return join_ends(ends)


def _phases_text(creation: CommunicatorCreation) -> str:
    medians: list[tuple[float, str]] = []
    for phase, times in creation.phases_s.items():
        medians.append((median(known_values(times)), phase))
    medians.sort(reverse=True)
    return ", ".join(
        f"{phase} {format_seconds(time_s)}" for time_s, phase in medians if time_s >= _SHOWN_S
    )


def delay_sentences(creation: CommunicatorCreation) -> Iterator[str]:
    """Yield which ranks delayed a communicator; nothing if its ranks are alike."""
    for delay in creation_delays(creation):
        yield f"{_ranks_text(delay)} {_delay_text(delay)} (communicator {_name(creation)})"


def _ranks_text(delay: CreationDelay) -> str:
    noun = "ranks" if len(delay.ranks) > 1 else "rank"
    ranks = f"{noun} {format_cpu_list(delay.ranks)}"
    hosts = ", ".join(first_few(delay.hosts, _MAX_HOSTS, "host"))
    return f"{ranks} on {hosts}" if hosts else ranks


def _delay_text(delay: CreationDelay) -> str:
    if delay.phase is None:
        return f"began up to {format_seconds(delay.delay_s)} after the others, which waited"
    meaning = in_brackets(_PHASES.get(delay.phase, ""))
    longest, usual = format_seconds(delay.longest_s), format_seconds(delay.usual_s)
    return f"took up to {longest} for {delay.phase}{meaning}, the median is {usual}"


def growth_sentence(growth: CreationGrowth) -> str:
    """Return how the time grows with the ranks: each size with its time, and the exponent."""
    rows = ", ".join(
        f"{format_count(ranks, 'rank')} {format_seconds(time)}"
        for ranks, time in growth.seconds.items()
    )
    return f"{rows}: as ranks^{growth.exponent:.2f}, by least squares of the logarithms"
