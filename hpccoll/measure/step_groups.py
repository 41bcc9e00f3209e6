"""The groups of ranks that run the operations of a training step, as communicators and layouts."""

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from mpi4py import MPI

from hpccoll.schedule import Layout
from hpccoll.training.parallelism import Mesh
from hpccoll.training.step_program import StepOperation
from hpccoll.transports.nccl.communicators import abort_world

Group: TypeAlias = tuple[MPI.Intracomm, Layout]


def group_name(operation: StepOperation, stage: int) -> str:
    """Return the name of an operation's groups: the axis; of messages both ends, the same name at either of them.

    Nonblocking calls of a communicator have one order, so that each direction has a communicator of its own.
    """
    if operation.peer is None:
        return operation.axis
    ends = (stage, operation.peer) if operation.sends else (operation.peer, stage)
    return f"pp {ends[0]} to {ends[1]}"


class StepGroups:
    """The groups of a step; created, used and released on all ranks together.

    With ``shares_world`` the first group of all ranks uses ``comm`` itself, with which NCCL's communicator is kept from
    case to case.
    """

    def __init__(self, comm: MPI.Intracomm, layout: Layout, mesh: Mesh, *, shares_world: bool) -> None:
        self._comm, self._layout, self._mesh, self._shares_world = comm, layout, mesh, shares_world
        self._groups: dict[str, Group] = {}

    def group(self, operation: StepOperation, stage: int) -> Group | None:
        """Return the communicator and the layout of an operation's group; None if this rank is not in one.

        The communicator of every group of an axis is created when the axis is first used.
        """
        name, peer, me = group_name(operation, stage), operation.peer, self._comm.rank
        if name not in self._groups:
            pairs = None if peer is None else self._mesh.pairs(min(stage, peer), max(stage, peer))
            self._groups[name] = self._new_group(pairs or self._mesh.groups(name))
        comm, layout = self._groups[name]
        of_other_stage = peer is None and me < self._layout.workers and self._mesh.stage_of(me) != stage
        return None if comm == MPI.COMM_NULL or of_other_stage else (comm, layout)

    def _new_group(self, groups: Sequence[Sequence[int]]) -> Group:
        if len(groups) == 1 and len(groups[0]) == self._layout.workers:  # with the aggregators
            taken = any(comm == self._comm for comm, _ in self._groups.values())
            return self._comm if self._shares_world and not taken else self._comm.Dup(), self._layout
        mine = next((number for number, group in enumerate(groups) if self._comm.rank in group), None)
        comm = self._comm.Split(MPI.UNDEFINED if mine is None else mine, self._comm.rank)
        layout = self._layout if mine is None else self._layout.subset(groups[mine]).renumbered()
        return cast("MPI.Intracomm", comm), layout

    def release(self, end_world: Callable[[MPI.Intracomm], None]) -> None:
        """Free the communicators; those of NCCL on them by ``end_world``."""
        for comm, _ in self._groups.values():
            if comm == self._comm and end_world is abort_world:
                abort_world(comm)
            elif comm not in (MPI.COMM_NULL, self._comm):
                end_world(comm)
                comm.Free()
        self._groups = {}
