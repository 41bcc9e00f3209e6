"""The ranks of a job: whether they are those that were asked for, and what the loop needs of them."""

import fcntl
import os
import stat
import struct
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar, cast

import numpy as np
from mpi4py import MPI

from hpccoll.errors import BadInputError, UnusableError
from hpccoll.host.environment import boot_id, node_name, rack_name
from hpccoll.host.mpi_library import mpi_library
from hpccoll.measure.timing_loop import Nanoseconds
from hpccoll.schedule import Layout, numbering
from hpccoll.spec.case import Shape
from hpccoll.store.raw import Attempt

Answer = TypeVar("Answer")

LAUNCHERS = {
    "PMI_SIZE": "mpiexec of MPICH",
    "OMPI_COMM_WORLD_SIZE": "mpirun of Open MPI",
    "SLURM_STEP_NUM_TASKS": "srun",
}
"""The variables by which a launcher tells a rank how many it has started."""
ABORT_DELAY_S = 5.0
"""How long a launcher has for reading what a rank has said before it aborts."""


class Ranks:
    """The other ranks, as the loop needs them; made on all of them together."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        told: list[tuple[tuple[str, str], str]] = comm.allgather(((node_name(), boot_id()), rack_name()))
        self.node_ids = [home for home, _ in told]
        self._racks = [rack for _, rack in told]
        self.ranks_by_node = Counter(self.node_ids)  # ranks on each node, in order of its first rank

    @property
    def nodes(self) -> int:
        return len(self.ranks_by_node)

    @property
    def node_id(self) -> tuple[str, str]:
        """The node of this rank: its name, and what its clock is known by."""
        return self.node_ids[self.comm.rank]

    @property
    def local_rank(self) -> int:
        """The number of this rank among those of its node."""
        return self.node_ids[: self.comm.rank].count(self.node_id)

    def layout(self, aggregators: int) -> Layout:
        """Return where the ranks are, of which the last ones aggregate."""
        node, rack = (
            tuple(map({place: number for number, place in enumerate(dict.fromkeys(places))}.__getitem__, places))
            for places in (self.node_ids, self._racks)
        )
        return Layout(node, rack, aggregators=aggregators)

    def barrier(self) -> None:
        # MPICH's own lets 2 ranks of a node go 1.0 us apart, this 0.2 to 0.3: as much longer waits who starts first.
        request = self.comm.Ibarrier()
        while not request.Test():
            os.sched_yield()

    def gather(self, local: Nanoseconds) -> Nanoseconds | None:
        everyone = np.empty((self.comm.size, *local.shape), local.dtype) if self.comm.rank == 0 else None
        self.comm.Gather(np.ascontiguousarray(local), everyone)
        return None if everyone is None else np.moveaxis(everyone, 0, -1)

    def agree(self, more: int) -> int:
        return int(self.comm.bcast(more))

    def max_over_ranks(self, number: int) -> int:
        """Return the largest of the numbers that the ranks bring, on all of them."""
        return int(self.comm.allreduce(number, MPI.MAX))

    def run_at_root(self, do: Callable[[], Answer]) -> Answer:
        """Do something at rank 0, and return its answer, or raise its complaint, on all ranks."""
        answer: Answer | None = None
        complaint: BadInputError | None = None
        if self.comm.rank == 0:
            try:
                answer = do()
            except BadInputError as error:
                complaint = error
        complaint, answer = self.comm.bcast((complaint, answer))
        if complaint is not None:
            raise complaint
        return cast("Answer", answer)  # rank 0 answered, or complained


class MappedRanks:
    """The ranks by the numbers of every mapping, each a communicator and a layout; made on all ranks together.

    Args:
        comm: of the ranks as the launcher numbered them.
        layout: of the same.
    """

    def __init__(self, comm: MPI.Intracomm, layout: Layout) -> None:
        self._by_mapping = {cast("str | None", None): (comm, layout)}

    def for_mapping(self, mapping: str | None) -> tuple[MPI.Intracomm, Layout]:
        """Return the ranks as ``mapping`` numbers them, None as the launcher did; made at the first time."""
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
    """Return what says a rank of an attempt in words that people know, with its host where there are several.

    Args:
        attempt: whose ranks are as the launcher numbered them.
        mapping: by which they have other numbers.
    """
    hosts = [place.host for place in attempt.places]
    order = range(len(hosts)) if mapping is None else numbering(attempt.layout, mapping)
    several = len(set(hosts)) > 1

    def name(number: int) -> str:
        launched = order[number]
        known = "" if mapping is None else f"MPI rank {launched}"
        where = " ".join(filter(None, (known, f"on {hosts[launched]}" if several else "")))
        return f"rank {number} ({where})" if where else f"rank {number}"

    return name


def abort_job(comm: MPI.Intracomm, streams: Sequence[int] = (1, 2), code: int = 1) -> None:
    """End the job, as soon as the launcher has read what this rank has said.

    Launchers that hear of an abort drop what is still in the pipes from the ranks, and nobody would learn the reason.

    Args:
        comm: whose ranks end.
        streams: descriptors that the rank has written to; those that are no pipes are not waited for.
        code: the exit code.
    """
    with suppress(OSError, ValueError):  # a full disk or a closed stream must not keep the job from ending
        sys.stdout.flush()
        sys.stderr.flush()
        until = time.monotonic() + ABORT_DELAY_S
        while any(map(_unread, streams)) and time.monotonic() < until:
            time.sleep(0.01)
    comm.Abort(code)


def _unread(stream: int) -> int:
    """Return how many bytes are in a pipe, 0 where it is something else."""
    if not stat.S_ISFIFO(os.fstat(stream).st_mode):
        return 0
    (unread,) = struct.unpack("i", fcntl.ioctl(stream, termios.FIONREAD, bytes(4)))
    return int(unread)


def check_launch(comm: MPI.Intracomm) -> None:
    """See that the launcher and the MPI library speak of the same ranks.

    Raises:
        UnusableError: where a rank is alone although others were started.
    """
    for variable, launcher in LAUNCHERS.items():
        started = os.environ.get(variable, "1")
        if started.isdigit() and int(started) > 1 and comm.size == 1:
            library = mpi_library()
            remedy = f"use the launcher of {library['version']} ({library['path']})"
            raise UnusableError(
                "launcher",
                f"{launcher} started {started} ranks, and each rank believes it is alone; {remedy}, "
                "or on Slurm the --mpi type that it speaks (srun --mpi=list)",
            )


def check_shape(ranks: Ranks, shape: Shape, hosts: Sequence[str] = ()) -> None:
    """See that the ranks are where they were asked for.

    Args:
        ranks: as they are.
        shape: nodes, and the workers, the first ranks, spread evenly over them.
        hosts: the names of the nodes, where particular ones were asked for, aggregators' among them.

    Raises:
        UnusableError: on all ranks, with what was asked and what is there.
    """
    names = [name for name, _ in ranks.ranks_by_node]
    each = shape.ranks // shape.nodes
    if ranks.comm.size == shape.processes:
        there = ranks.layout(shape.aggregators)
        if (there.nodes, there.ranks_per_node) == (shape.nodes, each) and (not hosts or sorted(hosts) == sorted(names)):
            return
    seen = ", ".join(f"{crowd} on {name}" for (name, _), crowd in ranks.ranks_by_node.items())
    asked = f"{shape.words}, {each} on each" + (f" of {', '.join(hosts)}" if hosts else "")
    many = f"{ranks.comm.size} rank{'s' * (ranks.comm.size > 1)}"
    raise UnusableError("launch", f"{many}: {seen}; asked for were {asked}")
