"""What each rank reports of its machine for the record of an attempt, and of what else uses its host meanwhile."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from hpccoll.host.cpu_and_memory import cpu_model, cpu_quotas, testbed_facts
from hpccoll.host.place_facts import boot_id, node_name, rack_name
from hpccoll.measure.rank_report import RankReport
from hpccoll.measure.ranks import Ranks

if TYPE_CHECKING:
    from hpccoll.host.machine_load import LoadSample
    from hpccoll.store.raw_results import Attempt


def gather_attempt(
    ranks: Ranks, number: int, gpu: Mapping[str, Any], aggregators: int = 0
) -> "Attempt":
    """Return the record of an attempt; all ranks call this together and get the same one.

    ``gpu`` is the record of this rank's GPU (``RankGpus.provenance``).
    """
    report = RankReport(
        node_name(),
        boot_id(),
        rack_name(),
        os.getpid(),
        frozenset(os.sched_getaffinity(0)),
        cpu_quotas(),
        cpu=f"{os.cpu_count()} CPUs of {cpu_model()}",
        testbed=testbed_facts(),
        ports=_ports_of_host(ranks),
        gpu=gpu,
    )
    reports = ranks.comm.gather(report)
    # rank 0 has those of all
    return ranks.run_at_root(lambda: _assembled(reports or (), number, aggregators))


def _ports_of_host(ranks: Ranks) -> Sequence[Mapping[str, object]]:
    """Return the facts about the ports of this host at its first rank; nothing at the others."""
    if ranks.local_rank:
        return ()
    from hpccoll.host.network_ports import port_facts

    return port_facts()


def _assembled(reports: Sequence[RankReport], number: int, aggregators: int) -> "Attempt":
    from hpccoll.measure.run.attempt_record import assemble_attempt  # only rank 0 knows all reports

    return assemble_attempt(reports, number, aggregators)


class LoadRecorder:
    """Records what else uses the hosts of an attempt; created and used on all of its ranks together.

    The first rank of each clock domain samples its machine: hosts of a testbed share one.
    """

    def __init__(self, comm: MPI.Intracomm, attempt: "Attempt") -> None:
        clocks = [place.clock for place in attempt.places]
        mine = attempt.places[comm.rank].clock
        self._comm = comm
        self._host = attempt.places[comm.rank].host
        self._own = {place.pid for place in attempt.places if place.clock == mine}
        if clocks.index(mine) == comm.rank:
            self._before = _load_now()
        else:
            self._before = None

    def gather_start(self) -> list[Mapping[str, object]]:
        """Return, at rank 0, the load average of each host at the beginning; empty on other ranks."""
        before = None
        if self._before:
            before = {"host": self._host, "load_average": [self._before.load_average]}
        return [load for load in self._comm.gather(before) or () if load is not None]

    def gather_end(self) -> list[Mapping[str, object]]:
        """Return, at rank 0, what else used each host since the beginning; empty on other ranks."""
        return [load for load in self._comm.gather(self.end()) or () if load is not None]

    def end(self) -> Mapping[str, object] | None:
        """Return what else used the host of this rank since the beginning; None if another rank samples it."""
        if self._before is None:
            return None
        from hpccoll.host.machine_load import load_between

        after = _load_now()
        used = None
        if after:
            used = load_between(self._before, after, self._own)
        if used is None:
            return None
        return {"host": self._host, **used}


def _load_now() -> "LoadSample | None":
    """Return the load of this machine; only the ranks that sample it import what reads it."""
    from hpccoll.host.machine_load import read_load

    return read_load()
