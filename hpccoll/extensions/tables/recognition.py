"""Recognises the algorithm of an MPI library's own collective by what each rank sends when the library is forced.

No log of MPICH or Open MPI names the algorithm of a call. But both let a running program force each
of their algorithms (control variables: MPI 5.0, section 15.3), and the kernel counts what a process
sends on each TCP connection. A call runs an algorithm if each rank sends as much on each connection
as when that is forced, in the same processes and with the same buffers. What ranks send within a
node through shared memory, or by RDMA, is not seen.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import NamedTuple

from mpi4py import MPI

from hpccoll.cases.library_algorithms import library_algorithms, library_collective, library_table
from hpccoll.cases.requirements import MPI_LIBRARIES, wrong_mpi
from hpccoll.cases.skip_reason import unmet_need
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count
from hpccoll.evidence.verdict import UNKNOWN
from hpccoll.host.tcp_connections import Ends, read_sent_bytes
from hpccoll.measure.run.prepared_case import PreparedCase
from hpccoll.measure.timing_loop import RankProgress
from hpccoll.transports.mpi.control_variables import ControlVariable
from hpccoll.transports.mpi.vendor import MpiVendorPlan, MpiVendorTransport
from hpccoll.transports.transport_interface import TransportPlan

PASS_S = 0.02
MOST_CALLS = 8
MOST_S = 2.0
"""How long the counted calls of an algorithm take together, how many there are at most, and how long one may take."""

RECOGNITION_S = 30.0
"""How long the recognition of a call may take in all: a forced algorithm may be much slower than the chosen one."""

PASS_BYTES = 64 << 10
"""The bytes of the counted calls together, if MOST_CALLS have as many: beside more, those of a barrier are nothing."""

SAME, ALIKE = 0.001, 0.05
"""The greatest difference on a connection, as a part of what a rank sends on its busiest one, of
calls that send the same messages, and of those that may differ in the segments of messages: each
has a header."""

MOST_RANKS, MOST_ENDS = 64, 8
"""The most ranks whose sent bytes are kept, and the most connections of each."""

MAX_NAMED = 3
"""The most algorithms that are named if all send the same; on two ranks nearly all do."""

BARRIER_BYTES = 128
"""What of the barriers around the calls may count on one connection for one algorithm and not for another."""

Sent = Mapping[Ends, float]
"""The bytes that this rank sends in a call, by connection."""


class Recognition(NamedTuple):
    """What a call was recognised as."""

    library: str  # its name for people
    # the algorithms with which all ranks send the same, in the library's words and order
    matching: tuple[str, ...]
    different: int  # the number of algorithms with which some rank sends something else
    exact: bool = True  # whether the messages are the same; else their segments may differ
    # the bytes that each rank sends on its busiest connections: of the call (""), and with each
    # algorithm
    traffic: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({})
    ended: str = ""  # why nothing was recognised, although that had begun

    def executed(self, requested: str | None) -> str:
        """Return the algorithm: the requested one if it is among those that send the same, else all that do.

        It is unknown if there are none, or more than MAX_NAMED, and if forcing any of them changes
        nothing.
        """
        if not self.different:
            return UNKNOWN
        if requested in self.matching:
            return str(requested)
        if 0 < len(self.matching) <= MAX_NAMED:
            return "/".join(self.matching)
        return UNKNOWN

    @property
    def evidence(self) -> str:
        """What shows it, as a sentence."""
        if self.ended:
            return self.ended
        if not self.different:
            forced = (
                f"forcing {self.library} to any of {format_count(len(self.matching), 'algorithm')}"
            )
            return f"{forced} changes nothing of what ranks send on TCP connections"
        noun = "other algorithm" if self.matching else "algorithm"
        alternatives = f"{format_count(self.different, noun)} that were forced"
        if not self.matching:
            return f"each rank sends something else on its TCP connections than with {alternatives} of {self.library}"
        same = "what it sends, but for segments,"
        if self.exact:
            same = "what it sends"
        forced = f"{self.library} is forced to {join_words(self.matching, 'or')}"
        return f"each rank sends on each TCP connection {same} if {forced}, and something else with {alternatives}"


def recognise(prepared: PreparedCase, call_s: float, progress: RankProgress) -> Recognition | None:
    """Return what the library's call of a case is; all ranks of the case call this together.

    Args:
        prepared: the case.
        call_s: how long a call takes in seconds, equal on all ranks.
        progress: kept up to date for the watchdog.

    Returns:
        None if it is not a call of a known library, takes longer than MOST_S, or shows nothing on
        TCP connections.
    """
    transport = prepared.transport
    version = MPI.Get_library_version()
    library = next(
        (name for name in library_table()["variants"] if not wrong_mpi(name, version)), None
    )
    call = library and library_collective(library, prepared.case.collective)
    if not (library and call and isinstance(transport, MpiVendorTransport)) or call_s > MOST_S:
        return None
    comm = transport.comm
    title = MPI_LIBRARIES[library][0]
    wanted = max(PASS_S / max(call_s, 1e-9), PASS_BYTES / max(prepared.bytes, 1), 1)
    counter = _Counter(comm, int(min(wanted, MOST_CALLS)), progress)
    begun = time.monotonic()
    own = counter.sent(prepared.plan)
    if (
        not comm.allreduce(len(own), MPI.MAX)
        or counter.difference(own, counter.sent(prepared.plan)) > SAME
    ):
        return None
    differences: dict[str, float] = {}
    sent_of_calls: dict[str, Sent] = {"": own}
    for word, settings in _algorithms(library, call, prepared).items():
        with _forced(comm, settings) as forced:
            plan = MpiVendorPlan(forced, prepared.operation, prepared.src, prepared.dst)
            sent_of_calls[word] = counter.sent(plan)
            plan.close()
        differences[word] = counter.difference(own, sent_of_calls[word])
        if comm.allreduce(time.monotonic() - begun, MPI.MAX) > RECOGNITION_S:
            ended = f"to force the algorithms of {title} takes longer than {RECOGNITION_S:g} s: none is recognised"
            # what the rest sends is not known
            return Recognition(title, (), 0, traffic={}, ended=ended)
    traffic = counter.traffic(sent_of_calls)
    for most in (SAME, ALIKE):
        matching = tuple(word for word, difference in differences.items() if difference <= most)
        if matching:
            different = len(differences) - len(matching)
            return Recognition(title, matching, different, most == SAME, traffic)
    if not differences:
        return None
    return Recognition(title, (), len(differences), traffic=traffic)


class _Counter:
    """Counts what this rank sends in a call."""

    def __init__(self, comm: MPI.Intracomm, calls: int, progress: RankProgress) -> None:
        self._comm = comm
        self._calls = calls
        self._progress = progress

    def sent(self, plan: TransportPlan) -> Sent:
        """Return what this rank sends in the call of a plan: only its own program decides when, and nothing waits."""
        self._progress.enter("in a call whose algorithm is to be recognised")
        plan.run()  # connections are made
        self._wait()
        before = read_sent_bytes()
        for _ in range(self._calls):
            plan.run()
        self._wait()
        changes = {ends: sent - before.get(ends, 0) for ends, sent in read_sent_bytes().items()}
        return {
            ends: change / self._calls for ends, change in changes.items() if change > BARRIER_BYTES
        }

    def _wait(self) -> None:
        self._comm.Ibarrier().Wait()  # whatever MPI_Barrier is forced to

    def difference(self, first: Sent, second: Sent) -> float:
        """Return the largest difference on a connection of any rank, as a part of what is sent on its busiest one."""
        busiest = max([*first.values(), *second.values()], default=0.0)
        largest = 0.0
        for ends in {*first, *second}:
            largest = max(largest, abs(first.get(ends, 0) - second.get(ends, 0)))
        beyond = max(0.0, largest - BARRIER_BYTES / self._calls)
        part = beyond / busiest if beyond else 0.0
        return float(self._comm.allreduce(part, MPI.MAX))

    def traffic(self, sent_of_calls: Mapping[str, Sent]) -> Mapping[str, Sequence[Sequence[int]]]:
        """Return the bytes of each call on the busiest connections of the first MOST_RANKS, descending."""
        mine = {}
        for word, sent in sent_of_calls.items():
            descending = sorted(map(round, sent.values()), reverse=True)
            mine[word] = descending[:MOST_ENDS]
        all_ranks = self._comm.allgather(mine if self._comm.rank < MOST_RANKS else None)
        kept = [traffic for traffic in all_ranks if traffic]
        return {word: [traffic[word] for traffic in kept] for word in sent_of_calls}


Settings = list[tuple[ControlVariable, int]]


def _algorithms(library: str, call: str, prepared: PreparedCase) -> dict[str, Settings]:
    """Return the algorithms that can run a case, in the library's order, with the variables that force each."""
    names = library_table()["variants"][library]
    variable = _variable(names["variable"].format(call=call, CALL=call.upper()))
    if variable is None:
        return {}
    always: Settings = []
    for name, value in names.get("environment", {}).items():
        further = _variable(name)
        if further:
            always.append((further, int(value)))
    settings: dict[str, Settings] = {}
    for word, algorithm in library_algorithms(library)[call].items():
        cannot_run = algorithm.inter or unmet_need(algorithm, prepared.case, prepared.layout)
        if word in variable.words and not cannot_run:
            settings[word] = [*always, (variable, variable.words[word])]
    return settings


def _variable(name: str) -> ControlVariable | None:
    """Return the variable that one of the environment sets; that of Open MPI has a prefix there."""
    return ControlVariable.find(name.removeprefix("OMPI_MCA_"))


@contextmanager
def _forced(comm: MPI.Intracomm, settings: Settings) -> Iterator[MPI.Intracomm]:
    """Yield a communicator for whose calls variables are set; Open MPI reads them when it is made."""
    with ExitStack() as stack:
        for variable, value in settings:
            stack.enter_context(variable.set_to(value))
        forced = comm.Dup()
        stack.callback(forced.Free)
        yield forced
