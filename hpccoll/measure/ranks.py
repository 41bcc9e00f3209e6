"""The ranks of a launch: where they run, how they communicate, and whether they are the requested ones."""

import fcntl
import os
import stat
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import TypeVar, cast

import numpy as np
from mpi4py import MPI

from hpccoll.cases.case import Shape
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.terminal import OutputError
from hpccoll.common.units import format_count
from hpccoll.host.place_facts import boot_id, node_name, rack_name
from hpccoll.measure import gathered_times
from hpccoll.measure.timing_loop import Nanoseconds
from hpccoll.schedule import Layout, numbering
from hpccoll.store.case_times import CaseTimes, SummaryRule
from hpccoll.store.host_names import canonical_hosts
from hpccoll.store.raw_results import Attempt

Answer = TypeVar("Answer")

PAUSE_S = 0.001
"""The seconds between two looks for the end of what rank 0 does alone."""

ABORT_DELAY_S = 5.0
"""The seconds that a rank waits before MPI_Abort for its launcher to read its output."""


class Ranks:
    """All ranks of a communicator, with the synchronisation of the timing loop; created on all of them together."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        locations: list[tuple[tuple[str, str], str]] = comm.allgather(
            ((node_name(), boot_id()), rack_name())
        )
        self.node_ids = [node_id for node_id, _ in locations]  # [rank]
        # of shape [rank], by Slurm's topology; empty without one
        self.racks = [rack for _, rack in locations]
        self.ranks_by_node = Counter(self.node_ids)  # in the order of the first rank of each node

    @property
    def node_id(self) -> tuple[str, str]:
        """The node of this rank: its name, and its boot id, which identifies its clock."""
        return self.node_ids[self.comm.rank]

    @property
    def local_rank(self) -> int:
        """The index of this rank among the ranks of its node."""
        return self.node_ids[: self.comm.rank].count(self.node_id)

    def layout(self, aggregators: int) -> Layout:
        """Return the layout of the ranks; the last ``aggregators`` of them are aggregators."""
        node, rack = (
            tuple(
                map(
                    {
                        place: number for number, place in enumerate(dict.fromkeys(places))
                    }.__getitem__,
                    places,
                )
            )
            for places in (self.node_ids, self.racks)
        )
        return Layout(node, rack, aggregators=aggregators)

    def barrier(self) -> None:
        # Ranks leave MPICH's MPI_Barrier up to 1.0 us apart (2 ranks of one node), and this one 0.2
        # to 0.3 us apart; the rank that starts first waits for the difference within the timed
        # operation.
        request = self.comm.Ibarrier()
        while not request.Test():
            os.sched_yield()

    def gather(self, local: Nanoseconds) -> Nanoseconds | None:
        gathered = None
        if self.comm.rank == 0:
            gathered = np.empty((self.comm.size, *local.shape), local.dtype)
        self.comm.Gather(np.ascontiguousarray(local), gathered)
        if gathered is None:
            return None
        return np.moveaxis(gathered, 0, -1)

    def summarise(self, local: Nanoseconds, rule: SummaryRule, iterations: int) -> CaseTimes | None:
        return gathered_times.summarise(self.comm, local, rule, iterations)

    def gather_kept(self, local: Nanoseconds, stride: int) -> Nanoseconds | None:
        return gathered_times.gather_kept(self.comm, local, stride)

    def agree(self, value: int) -> int:
        return int(self.comm.bcast(value))

    def max_over_ranks(self, number: int) -> int:
        """Return the largest ``number`` of all ranks, on all ranks."""
        return int(self.comm.allreduce(number, MPI.MAX))

    def run_at_root(self, do: Callable[[], Answer]) -> Answer:
        """Call ``do`` at rank 0, and return its result, or raise its BadInputError, on all ranks.

        The others sleep: rank 0 may share its core with them, and it reads and writes files here.
        """
        answer: Answer | None = None
        failure: BadInputError | None = None
        if self.comm.rank == 0:
            try:
                answer = do()
            except BadInputError as error:
                failure = error
        done = self.comm.Ibarrier()
        while not done.Test():
            time.sleep(PAUSE_S)
        failure, answer = self.comm.bcast((failure, answer))
        if failure is not None:
            raise failure
        return cast("Answer", answer)  # rank 0 has set it if it raised no error


def first_reason(comm: MPI.Intracomm, reason: str | None) -> str | None:
    """Return the ``reason`` of the first rank that has one, on all ranks of ``comm``, which call this together."""
    return next(filter(None, comm.allgather(reason)), None)


def launcher_numbers(comm: MPI.Intracomm) -> list[int]:
    """Return the ranks in MPI_COMM_WORLD of all ranks of ``comm``."""
    return comm.Get_group().Translate_ranks(None, MPI.COMM_WORLD.Get_group())


class MappedRanks:
    """The ranks renumbered by each mapping, as communicators and layouts; created on all ranks together."""

    def __init__(self, comm: MPI.Intracomm, layout: Layout) -> None:
        self._by_mapping = {cast("str | None", None): (comm, layout)}

    def for_mapping(self, mapping: str | None) -> tuple[MPI.Intracomm, Layout]:
        """Return the communicator and the layout of a mapping, created when first used; None is the launcher's."""
        if mapping is not None and mapping not in self._by_mapping:
            comm, layout = self._by_mapping[None]
            order = numbering(layout, mapping)
            renumbered = cast("MPI.Intracomm", comm.Split(key=order.index(comm.rank)))
            self._by_mapping[mapping] = renumbered, layout.subset(order)
        return self._by_mapping[mapping]

    def close(self) -> None:
        for mapping in [mapping for mapping in self._by_mapping if mapping is not None]:
            comm, _ = self._by_mapping.pop(mapping)
            comm.Free()


def rank_namer(attempt: Attempt, mapping: str | None) -> Callable[[int], str]:
    """Return a function that names a rank, numbered by ``mapping``, in messages; with its host if the hosts differ."""
    hosts = [place.host for place in attempt.places]
    order = range(len(hosts)) if mapping is None else numbering(attempt.layout, mapping)
    several = len(set(hosts)) > 1

    def name(number: int) -> str:
        launched = order[number]
        launched_as = "" if mapping is None else f"MPI rank {launched}"
        where = " ".join(filter(None, (launched_as, f"on {hosts[launched]}" if several else "")))
        if where:
            return f"rank {number} ({where})"
        return f"rank {number}"

    return name


def print_of_rank(rank: int, message: str) -> None:
    """Print a message of a rank on standard error; callable from any thread."""
    with suppress(OSError):  # a full disk or a closed pipe must not keep the job from ending
        print(f"r{rank} | {message}", file=sys.stderr, flush=True)


def abort_job(comm: MPI.Intracomm, streams: Sequence[int] = (1, 2), code: int = 1) -> None:
    """Abort the job after the launcher has read the output of this rank.

    Launchers discard unread output of the ranks when a rank aborts, and with it the reason.

    ``streams`` are the file descriptors that this rank has written to; only pipes are waited for.
    """
    # a full disk must not keep the job from ending
    with suppress(OSError, ValueError, OutputError):
        sys.stdout.flush()
        sys.stderr.flush()
        until = time.monotonic() + ABORT_DELAY_S
        while any(map(_unread, streams)) and time.monotonic() < until:
            time.sleep(0.01)
    comm.Abort(code)


def _unread(stream: int) -> int:
    if not stat.S_ISFIFO(os.fstat(stream).st_mode):
        return 0
    from termios import FIONREAD  # no rank that ends well needs it

    (unread,) = struct.unpack("i", fcntl.ioctl(stream, FIONREAD, bytes(4)))
    return int(unread)


def check_shape(ranks: Ranks, shape: Shape, hosts: Sequence[str] = ()) -> None:
    """Check that the ranks run on the requested nodes.

    The workers of ``shape`` are the first ranks, evenly spread over the nodes. ``hosts`` are the
    names of the requested hosts, each with or without its domain, and with its other names after
    ``=``; empty if any hosts will do.

    Raises:
        UnusableError: on all ranks; names the requested and the actual ranks.
    """
    names = [name for name, _ in ranks.ranks_by_node]
    per_node = shape.ranks // shape.nodes
    if ranks.comm.size == shape.processes:
        layout = ranks.layout(shape.aggregators)
        on_hosts = not hosts or _are_same_hosts(names, [host.split("=") for host in hosts])
        if (layout.nodes, layout.ranks_per_node) == (shape.nodes, per_node) and on_hosts:
            return
    actual = ", ".join(f"{count} on {name}" for (name, _), count in ranks.ranks_by_node.items())
    requested = f"{shape.text}, {per_node} on each" + (f" of {', '.join(hosts)}" if hosts else "")
    many = f"{format_count(ranks.comm.size, 'rank')}"
    raise UnusableError("launch", f"{many}: {actual}; requested: {requested}")


def _are_same_hosts(names: Sequence[str], requested: Sequence[Sequence[str]]) -> bool:
    """Return whether hosts are the requested ones; each may have several names."""
    canonical = canonical_hosts([*names, *chain.from_iterable(requested)])
    actual = {canonical[name] for name in names}
    chosen = (
        next((host for host in map(canonical.get, request) if host in actual), None)
        for request in requested
    )
    return Counter(map(canonical.get, names)) == Counter(chosen)
