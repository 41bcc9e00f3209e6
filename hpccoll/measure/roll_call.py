"""The first step of a launch, and of steps that all ranks do together: all answer, and those that do not are named."""

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from mpi4py import MPI

from hpccoll.common.units import format_cpu_list
from hpccoll.host.place_facts import node_name
from hpccoll.measure.mpi_startup import start_deadline, start_timeout_s
from hpccoll.measure.ranks import PAUSE_S, abort_job, print_of_rank
from hpccoll.store.host_names import host_ranges

Answer = TypeVar("Answer")

ROLL_CALL = 32767
"""The tag of a roll call: the largest one that every MPI library allows."""

LATE_S, END_SHARE = 10.0, 0.9
"""After how many seconds missing ranks are named, and after which part of the deadline the launch
ends: the line that names them comes before the deadline of any rank."""

INCOMPLETE = 3
"""The exit code of a launch that lacks a rank."""


def call_roll(comm: MPI.Intracomm, since: str = "MPI_Init") -> None:
    """Wait for all ranks; all of them call this together, first, with a deadline that begins here.

    A collective call does not say for whom it waits. Here rank 0 names the ranks that do not come,
    and rank 1 rank 0; in the end they abort the launch.

    Args:
        comm: the ranks.
        since: what they have done before, in words.
    """
    start_deadline()
    begun = time.monotonic()
    for caller in range(min(2, comm.size)):
        if 0 in (caller, comm.rank) and caller != comm.rank:
            comm.send(node_name(), caller, ROLL_CALL)  # it is short: MPI stores it
    called = {0: range(1, comm.size), 1: range(1)}.get(comm.rank, range(0))
    missing = {rank: comm.irecv(source=rank, tag=ROLL_CALL) for rank in called}
    hosts = [node_name()]
    named_at_s = [LATE_S, END_SHARE * start_timeout_s()]
    while missing:
        for rank, request in list(missing.items()):
            has_come, host = request.test()
            if has_come:
                del missing[rank]
                hosts.append(str(host))
        waited_s = time.monotonic() - begun
        ends = waited_s > named_at_s[-1]
        if missing and (ends or waited_s > named_at_s[0]):
            del named_at_s[:-1]
            if len(missing) == 1:
                who = f"rank {min(missing)} does"
            else:
                who = f"ranks {format_cpu_list(missing)} do"
            answering = ""
            if not comm.rank:
                answering = f"; the others are on {host_ranges(hosts)}"
            end = "; the launch ends by MPI_Abort" if ends else ""
            print_of_rank(
                comm.rank, f"{who} not answer {waited_s:.0f} s after {since}{answering}{end}"
            )
        if missing and ends:
            abort_job(comm, code=INCOMPLETE)
            os._exit(INCOMPLETE)  # under srun MPI_Abort may return
        time.sleep(PAUSE_S if missing else 0)


class NamingComm(MPI.Intracomm):
    """A communicator that calls the roll before the collective calls below, so that a rank that hangs is named."""

    def allgather(self, sendobj: Any) -> list[Any]:
        """As MPI.Intracomm."""
        return self._after_roll_call(lambda: super(NamingComm, self).allgather(sendobj))

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """As MPI.Intracomm."""
        return self._after_roll_call(lambda: super(NamingComm, self).gather(sendobj, root))

    def bcast(self, obj: Any, root: int = 0) -> Any:
        """As MPI.Intracomm."""
        return self._after_roll_call(lambda: super(NamingComm, self).bcast(obj, root))

    def Ibarrier(self) -> MPI.Request:  # noqa: N802  the name of MPI
        """As MPI.Intracomm."""
        return self._after_roll_call(super().Ibarrier)

    def Dup(self, info: MPI.Info | None = None) -> "NamingComm":  # noqa: N802  the name of MPI
        """As MPI.Intracomm."""
        return self._after_roll_call(lambda: super(NamingComm, self).Dup(info))

    def _after_roll_call(self, call: Callable[[], Answer]) -> Answer:
        call_roll(self, "the others")
        return call()
