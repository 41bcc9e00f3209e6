"""A prepared training step: every collective of its program is a prepared case, on the ranks of its group."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from mpi4py import MPI

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.case import COMPILED, Case, Effort, Parameter
from hpccoll.cases.catalogue import distinct_placements, is_measurable, known_parameters
from hpccoll.common.errors import BadInputError, StalledError, UnusableError
from hpccoll.extensions.steps.measure import stream_step_engine
from hpccoll.extensions.steps.measure.digits_training import DigitsTraining, TrainedStep
from hpccoll.extensions.steps.measure.gradient_buckets import GradientBucketBuffer
from hpccoll.extensions.steps.measure.nccl_launch_order import launches_in_turns
from hpccoll.extensions.steps.measure.step_computations import Nanoseconds, matrix_products
from hpccoll.extensions.steps.measure.step_engine import CodecOperation, Drivable, StepEngine
from hpccoll.extensions.steps.measure.stream_step_engine import StreamStepEngine
from hpccoll.extensions.steps.training.compression import DENSE, Compression
from hpccoll.extensions.steps.training.launch_order import launch_orders
from hpccoll.extensions.steps.training.model_shape import ModelShape
from hpccoll.extensions.steps.training.parallelism import Mesh
from hpccoll.extensions.steps.training.step_keys import GEMM, WORKLOAD
from hpccoll.extensions.steps.training.step_program import Compute, StepOperation, StepProgram
from hpccoll.extensions.steps.training.training_step import ROUTED_ARGUMENT, TrainingStep
from hpccoll.measure.computing_thread import ComputingThread
from hpccoll.measure.matrix_multiplication import HOST_ROWS
from hpccoll.measure.run.workload_runner import PrepareCall, RoundFindings
from hpccoll.measure.timing_loop import PythonLoop, RankProgress, RankSync
from hpccoll.schedule import Layout, itemsize
from hpccoll.schedule.collective import NATIVE
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.mpi.vendor import MpiVendorPlan
from hpccoll.transports.nccl.communicators import abort_world, close_world
from hpccoll.transports.nccl.nccl_errors import NCCL_EXCEPTIONS, nccl_error_text, raise_nccl_failure
from hpccoll.transports.stream_wait import CONNECTING, Connecting
from hpccoll.transports.stream_wait import Wait as StreamWait

if TYPE_CHECKING:
    from hpccoll.measure.run.prepared_case import PreparedCase
    from hpccoll.transports.nccl.stream_plan import StreamPlan

MESSAGE = "binomial"
"""The broadcast that sends a message from one rank to another: on two ranks all are alike."""


COUNTED = {"all_to_all": "pairwise", "all_gather": "ring"}
"""What moves compressed gradients if the algorithm of the step is of all-reduces only: schedules,
so that their bytes are known."""

Group: TypeAlias = tuple[MPI.Intracomm, Layout]


def group_name(operation: StepOperation, stage: int) -> str:
    """Return the name of an operation's groups: the axis; of messages both ends, the same name at either of them.

    Nonblocking calls of a communicator have one order, so that each direction has a communicator of
    its own.
    """
    if operation.peer is None:
        return operation.axis
    if operation.sends:
        ends = (stage, operation.peer)
    else:
        ends = (operation.peer, stage)
    return f"pp {ends[0]} to {ends[1]}"


class StepGroups:
    """The groups of a step; created, used and released on all ranks together.

    With ``shares_world`` the first group of all ranks uses ``comm`` itself, with which NCCL's
    communicator is kept from case to case.
    """

    def __init__(
        self, comm: MPI.Intracomm, layout: Layout, mesh: Mesh, *, shares_world: bool
    ) -> None:
        self._comm = comm
        self._layout = layout
        self._mesh = mesh
        self._shares_world = shares_world
        self._groups: dict[str, Group] = {}

    def group(self, operation: StepOperation, stage: int) -> Group | None:
        """Return the communicator and the layout of an operation's group; None if this rank is not in one.

        The communicator of every group of an axis is created when the axis is first used.
        """
        name = group_name(operation, stage)
        peer = operation.peer
        if name not in self._groups:
            pairs = None
            if peer is not None:
                pairs = self._mesh.pairs(min(stage, peer), max(stage, peer))
            self._groups[name] = self._new_group(pairs or self._mesh.groups(name))
        comm, layout = self._groups[name]
        if comm == MPI.COMM_NULL:
            return None
        me = self._comm.rank
        if peer is None and me < self._layout.workers and self._mesh.stage_of(me) != stage:
            return None
        return comm, layout

    def _new_group(self, groups: Sequence[Sequence[int]]) -> Group:
        if len(groups) == 1 and len(groups[0]) == self._layout.workers:  # with the aggregators
            is_taken = any(comm == self._comm for comm, _ in self._groups.values())
            if self._shares_world and not is_taken:
                comm = self._comm
            else:
                comm = self._comm.Dup()
            return comm, self._layout
        me = self._comm.rank
        colour = MPI.UNDEFINED
        layout = self._layout
        for number, group in enumerate(groups):
            if me in group:
                colour = number
                layout = self._layout.subset(group).renumbered()
                break
        return cast("MPI.Intracomm", self._comm.Split(colour, me)), layout

    def release(self, end_world: Callable[[MPI.Intracomm], None]) -> None:
        """Free the communicators; those of NCCL on them by ``end_world``."""
        for comm, _ in self._groups.values():
            if comm == self._comm and end_world is abort_world:
                abort_world(comm)
            elif comm not in (MPI.COMM_NULL, self._comm):
                end_world(comm)
                comm.Free()
        self._groups = {}


class PreparedStep:
    """A training step lowered for the ranks of ``comm``, with the attributes of ``PreparedCase``; close it afterwards.

    ``prepare`` prepares the case of a collective inside; ``models`` are the user's own models by
    name. ``connecting`` waits for all ranks with a limit.

    Raises:
        BadInputError: on all ranks, if the mesh does not fit the ranks, or a collective cannot run
            on them.
    """

    operations = operations_with_check = 1
    checked = True

    def __init__(
        self,
        comm: MPI.Intracomm,
        layout: Layout,
        case: Case,
        prepare: PrepareCall,
        models: Mapping[str, ModelShape] | None = None,
        gpu: Gpu | None = None,
        connecting: Connecting = CONNECTING,
    ) -> None:
        self.comm = comm
        self.layout = layout
        self.case = case
        self.rank = comm.rank
        self.gpu = gpu
        self._connecting = connecting
        self.workload = TrainingStep.of(case.params)
        self.family = collective(case.collective)
        self.floor = (
            case.algorithm in self.family.algorithms and self.family.algorithm(case.algorithm).floor
        )
        parallelism = self.workload.parallelism(layout.workers, case.dtype)
        self.mesh = parallelism.mesh
        self.programs = self.workload.programs(layout.workers, case.dtype, models)
        self.bytes = self.workload.gradient_bytes(case.dtype, models)
        self.params: Mapping[str, Parameter] = {**self.family.arguments, **case.params}
        if layout.aggregators and self.mesh.ranks != self.mesh.dp:
            raise UnusableError(
                "parallel", f"{self.mesh.text}: aggregators serve steps that are only data parallel"
            )
        self.program = (
            self.programs[self.mesh.stage_of(comm.rank)] if comm.rank < layout.workers else None
        )
        self._groups = StepGroups(comm, layout, self.mesh, shares_world=gpu is not None)
        self._prepared: dict[object, PreparedCase] = {}
        self._gpus: dict[str, Gpu] = {}
        try:
            self._own = self._prepare_all(prepare)
            self.inside = [prepared for _, prepared in self._own if prepared is not None]
            self.buckets = list(self._buckets(parallelism.compression))
            self.training = DigitsTraining(self._trained_step()) if self.workload.learns else None
            self.engine = self._engine()
        except StalledError:
            for prepared in self._prepared.values():
                # and no more: kernels use the buffers until NCCL is aborted
                prepared.destroy_graphs()
            raise
        except BaseException:
            # the state of a communicator of NCCL after a refused call is undocumented
            self._release(abort_world)
            raise
        for bucket in self.buckets:
            (bucket.fill_by_caller if self.training else bucket.seed)()
        self.run = self.engine.run
        # Counted by all ranks together, each for its groups; None if a library's own algorithm
        # runs.
        self.wire_bytes, self.rack_bytes = (
            self._sum(attrgetter("wire_bytes")),
            self._sum(attrgetter("rack_bytes")),
        )
        self._worker_bytes = {
            end: self._sum(methodcaller("worker_bytes", end)) for end in ("source", "target")
        }

    def _prepare_all(
        self, prepare: PrepareCall
    ) -> "list[tuple[StepOperation, PreparedCase | None]]":
        """Return the operations of this rank, each with its prepared case; a codec has none.

        Stages have different operations, and ranks prepare together: every rank goes through those
        of all stages, and prepares those of its own groups. After each, all ranks agree whether it
        has failed anywhere, because groups differ in their layouts: an algorithm may run on some of
        them only.
        """
        own: list[tuple[StepOperation, PreparedCase | None]] = []
        seen: set[Hashable] = set()
        for stage, program in enumerate(self.programs):
            for number, operation in enumerate(program.operations):
                group = self._groups.group(operation, stage)
                key = operation.buffers(stage, number)
                if key not in seen and not operation.is_codec:  # on all ranks
                    seen.add(key)
                    with self._agreed():
                        if group is not None:
                            case = self._case(operation, stage, group[1])
                            gpu = self._gpu_of(group_name(operation, stage))
                            self._prepared[key] = prepare(*group, case, gpu)
                if group is not None and (program is self.program or self.program is None):
                    own.append((operation, self._prepared.get(key)))
        return own

    def _buckets(self, compression: Compression | None) -> Iterator[GradientBucketBuffer]:
        """Yield the buckets of this rank; an aggregator has none, nor has one whose gradients are divided."""
        if self.program is None or self.workload.sharding != "none" or self.gpu is not None:
            return
        for number, bucket in enumerate(self.program.buckets):
            cases = []
            for operation, prepared in self._own:
                if prepared and operation.belongs_to(bucket):
                    cases.append(prepared)
            # nothing arrives, and so nothing is encoded
            cases = [] if compression and self.floor else cases
            yield GradientBucketBuffer(bucket, number, cases, compression)

    def _trained_step(self) -> TrainedStep:
        return TrainedStep(
            comm=self.comm,
            workers=self.layout.workers,
            workload=self.workload,
            program=self.program,
            buckets=self.buckets,
            averages=self.case.op == "avg" or self.workload.compress != DENSE,
            has_collectives=not self.floor,
        )

    def _gpu_of(self, group: str) -> Gpu | None:
        if self.gpu is not None and group not in self._gpus:
            self._gpus[group] = self.gpu.with_own_stream()
        return self._gpus.get(group)

    def _engine(self) -> "StepEngine | StreamStepEngine":
        if self.gpu is not None:
            plans = [cast("StreamPlan", prepared.plan) for prepared in self.inside]
            gpus = [cast("Gpu", prepared.gpu) for prepared in self.inside]
            return StreamStepEngine(
                self.program,
                self.workload,
                plans,
                gpus,
                self.gpu,
                self._launch_order,
                in_turns=launches_in_turns(),
            )
        streams = [operation.stream for operation, _ in self._own]
        with self._agreed():
            operations = [self._drivable(*operation_and_case) for operation_and_case in self._own]
        replica = self.training.replica if self.training else None
        thread = None
        if replica:
            thread = ComputingThread(replica.computations, replica.begin_step, replica.end_step)
        return StepEngine(self.program, self.workload, operations, streams, thread)

    @property
    def _launch_order(self) -> Sequence[int]:
        """The numbers of the operations in the order of their launches; an aggregator has those of the only stage."""
        stage = self.program.stage if self.program else 0
        return launch_orders(self.programs)[stage]

    def _drivable(self, operation: StepOperation, prepared: "PreparedCase | None") -> Drivable:
        if prepared is None:
            buckets = (bucket for bucket in self.buckets if operation.belongs_to(bucket.bucket))
            return CodecOperation(
                next((bucket.function(operation.codec) for bucket in buckets), None)
            )
        if isinstance(prepared.plan, MpiVendorPlan):
            return prepared.plan.nonblocking()
        return cast("Drivable", prepared.plan.executor)  # of plans over MPI

    @contextmanager
    def _agreed(self) -> Iterator[None]:
        """Raise the bad input of a block, or NCCL's failure, on all ranks if it is raised on one of them.

        All ranks call this together: the groups of other ranks do not see a failure of this one's.
        """
        failure: BadInputError | str | None = None
        try:
            yield
        except StalledError:  # the others wait with a limit
            raise
        except BadInputError as error:
            failure = error
        except NCCL_EXCEPTIONS as error:
            if self.gpu is None:
                raise
            failure = nccl_error_text(error)
        if self.gpu is not None:
            self._connecting.await_all()
        failures = self.comm.allgather(failure)
        for failure_of_rank in failures:
            if isinstance(failure_of_rank, BadInputError):
                raise failure_of_rank
        raise_nccl_failure(failures, "fails")

    def _case(self, operation: StepOperation, stage: int, layout: Layout) -> Case:
        """Return the case of an operation: with the requested algorithm where its collective has it.

        Else compressed gradients have that of COUNTED, messages have MESSAGE, and others are
        native.
        """
        # of two ranks: one message
        name = "broadcast" if operation.peer is not None else operation.collective
        family = collective(name)
        requested = self.case.algorithm
        if operation.peer is not None and requested != NATIVE:
            substitute = MESSAGE
        else:
            substitute = NATIVE
        if operation.is_bucket and requested != NATIVE and self.workload.compress != DENSE:
            substitute = COUNTED.get(name, substitute)
        algorithm = requested if is_measurable(requested, name) else substitute
        parameters = known_parameters(name, algorithm)
        params = {
            key: value
            for key, value in self.case.params.items()
            if key in parameters and key not in WORKLOAD
        }
        if "traffic" in family.arguments:
            params["traffic"] = ROUTED_ARGUMENT
        grain = itemsize(operation.dtype) * family.blocks(layout.workers)  # frameworks pad, too
        root = None
        if operation.peer is not None:  # the rank of the earlier stage is rank 0 of the two
            root = int(operation.sends == (operation.peer < stage))
        op = None
        if family.has_op:
            op = operation.op or self.case.op
        padded_bytes = -(-operation.nbytes // grain) * grain
        placements = distinct_placements(name, algorithm, (operation.is_bucket,))
        return Case(
            collective=name,
            algorithm=algorithm,
            transport=self.case.transport,
            device=self.case.device,
            dtype=operation.dtype,
            op=op,
            bytes=padded_bytes,
            root=root,
            params=params,
            in_place=placements[0],
        )

    def loop(self, sync: RankSync, _barrier: object, progress: RankProgress) -> PythonLoop:
        """Return the loop that runs this step; Python times it, because steps take milliseconds."""
        return PythonLoop(self, sync, progress)

    def device_ns(self) -> int:
        """Return the duration of the last run by the clock of the GPU, and read its events; -1 in host memory."""
        self.engine.read_events()
        return self.engine.device_ns()

    def reset(self) -> None:
        for checked in self._checked:
            checked.reset()

    def wrong(self) -> int:
        if self.training:
            self.training.record()
        return sum(checked.wrong() for checked in self._checked)

    def counts(self) -> dict[str, int]:
        """Return how many gradients overflowed here when they were compressed, and how many means are not finite."""
        overflowed = not_finite = 0
        for bucket in self.buckets:
            if bucket.codec:
                overflowed += bucket.codec.overflowed
                not_finite += bucket.codec.not_finite
        return {"overflowed": overflowed, "not_finite": not_finite}

    @property
    def begin(self) -> Callable[[], None] | None:
        """What a rank does after steps that do not count: a training begins anew."""
        if not self.training:
            return None
        return self.training.begin

    def effort(self, effort: Effort) -> Effort:
        """Return how long a round takes."""
        if self.training:
            return self.training.effort(effort)
        return effort.of_a_round

    def findings(
        self, sync: RankSync, iterations: int, name: Callable[[int], str], progress: RankProgress
    ) -> RoundFindings:
        """Return what a training has shown; all ranks call this together."""
        if self.training is None:
            return RoundFindings()
        return self.training.collect(sync, iterations, name, progress)

    @property
    def _checked(self) -> "list[PreparedCase | GradientBucketBuffer]":
        """What has values to reset and to check: collectives and, with compression, buckets."""
        return [*self._prepared.values(), *self.buckets]

    def events(self, iterations: int) -> Nanoseconds:
        """Return the times of the last ``iterations`` runs, [iteration, event], and forget them all.

        On a GPU, ``device_ns`` must follow each run except the last one.
        """
        self.engine.read_events()
        runs = self.engine.runs[-iterations:]
        self.engine.runs = []
        most = self.comm.allreduce(self.engine.events, MPI.MAX)
        padded = [np.pad(run, (0, most - len(run)), constant_values=-1) for run in runs]
        return np.stack(padded)

    def set_wait(self, wait: StreamWait) -> bool:
        return self.engine.wait_by(wait)

    def progress(self) -> str:
        return self.engine.current

    def diagnose(self, name: Callable[[int], str] = "rank {}".format) -> str | None:
        lines: list[str] = []
        for prepared in self._prepared.values():
            errors = prepared.diagnose(name)
            if errors:
                lines.append(f"{prepared.case.id}: {errors}")
        for bucket in self.buckets:
            errors = bucket.diagnose()
            if errors:
                lines.append(f"{name(self.rank)}: {errors}")
        return "; ".join(lines) or None

    @property
    def executor(self) -> str:
        return self.inside[0].executor if self.inside else COMPILED

    def worker_bytes(self, end: str) -> int | None:
        return self._worker_bytes[end]

    def _sum(self, number_of: "Callable[[PreparedCase], int | None]") -> int | None:
        """Return the sum of a number over the operations of all groups; None if it is unknown for one."""
        shares: list[float] = []
        for prepared in self.inside:
            number = number_of(prepared)
            if number is not None:
                shares.append(number / prepared.layout.ranks)
        is_complete = len(shares) == len(self.inside)
        sums: list[float | None] = self.comm.allgather(sum(shares) if is_complete else None)
        if None in sums:
            return None
        return round(sum(filter(None, sums)))

    def evidence(self, sent: int | None) -> tuple[str, str | None]:
        if not self.inside:
            return self.case.algorithm, "the step has no collective"
        # Messages between stages, and collectives that the algorithm does not have, run another
        # one.
        requested = (
            prepared for prepared in self.inside if prepared.case.algorithm == self.case.algorithm
        )
        shown = next(requested, self.inside[0])
        executed, evidence = shown.evidence(None)
        sentences = []
        if evidence:
            sentences.append(
                f"of {len(self.inside)} operations one of {shown.case.collective}: {evidence}"
            )
        counted = self.wire_bytes
        if sent and counted:
            sentences.append(f"the ports sent {sent / counted:.3f} times the wire bytes")
        return executed, "; ".join(sentences) or None

    def close(self) -> None:
        self.engine.close()
        self._release()

    def _release(self, end_world: Callable[[MPI.Intracomm], None] = close_world) -> None:
        for prepared in self._prepared.values():
            prepared.close()
        self._prepared = {}
        self._groups.release(end_world)

    @property
    def calls(self) -> "list[PreparedCase]":
        """The prepared cases of the collectives inside."""
        return list(self._prepared.values())

    def description(self) -> list[list[dict[str, Any]]]:
        """Return what the times of ``events`` mean: of each stage the operations, and then the computations."""
        return [
            [*self._operations(program), *self._computations(program)] for program in self.programs
        ]

    @staticmethod
    def _operations(program: StepProgram) -> Iterator[dict[str, Any]]:
        for operation in program.operations:
            entry = {
                "label": operation.label,
                "collective": operation.collective,
                "axis": operation.axis,
                "bytes": operation.nbytes,
                "phase": operation.phase,
            }
            if operation.receives:
                entry["receives"] = True
            yield entry

    def _computations(self, program: StepProgram) -> Iterator[dict[str, Any]]:
        phases = []
        for instruction in program.instructions:
            if isinstance(instruction, Compute):
                phases.append(instruction.phase)
        if self.workload.compute != GEMM:
            for phase in phases:
                yield {"phase": phase}
            return
        rows = HOST_ROWS if self.gpu is None else stream_step_engine.ROWS
        for phase, products in zip(phases, matrix_products(program, rows), strict=True):
            yield {"phase": phase, "products": products}
