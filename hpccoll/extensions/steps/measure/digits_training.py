"""Training of ``--model digits`` on the ranks of a step: what each step leaves behind, and how it is checked.

Every rank hashes its weights after every step, outside of the timed part. At the end rank 0
compares the hashes of all ranks, step by step, and repeats the run alone: with the schedules of the
collectives in lockstep, which fold in the same order, the weights are equal bit by bit. The order
in which a library's own call adds is unknown; there the weights differ by roundings, and sums that
all ranks have alike and wrong are found because they differ by more.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.planned_schedule import planned_schedule
from hpccoll.common.errors import BadInputError
from hpccoll.common.text import join_words
from hpccoll.extensions.steps.measure.codecs import CODECS, Array, Codec, CodecMessage
from hpccoll.extensions.steps.measure.digits_replica import Digits, Floats, Replica
from hpccoll.extensions.steps.training.compression import DENSE
from hpccoll.extensions.steps.training.models.digits import STEPS
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.run.workload_runner import RoundFindings
from hpccoll.schedule.lockstep import run_lockstep

if TYPE_CHECKING:
    from mpi4py import MPI

    from hpccoll.cases.case import Effort
    from hpccoll.extensions.steps.measure.gradient_buckets import GradientBucketBuffer
    from hpccoll.extensions.steps.training.step_program import StepProgram
    from hpccoll.measure.run.prepared_case import PreparedCase
    from hpccoll.measure.timing_loop import RankProgress, RankSync
    from hpccoll.schedule.operation import Operation

STAND_INS = {"all_reduce": "ring", "all_gather": "ring", "all_to_all": "pairwise"}
"""The algorithms of a serial run where the collective of the ranks is the library's own."""

RECORD = np.dtype(
    [("digest", "V32"), ("loss", float), ("accuracy", float), ("phases_ns", np.int64, 3)]
)
"""What a rank keeps of a step: the SHA-256 of its weights, and the times of PHASES."""

ROUNDINGS = 1e-4
"""The largest difference to a serial run that roundings of float32 make: at most 2e-6 after 2,000
steps of 4 ranks. In fp16 it is 4e-3 after 225 steps and 0.07 after 2,000, so that only the first
step tells."""

PHASES = "shard_s", "gradients_s", "update_s"


@dataclass(frozen=True)
class TrainedStep:
    """The part of a prepared step that its training works on.

    ``program`` is None on a rank without computations, an aggregator. ``averages`` says that the
    collectives return means instead of sums. Without collectives every rank learns alone.
    """

    comm: "MPI.Intracomm"
    workers: int
    workload: TrainingStep
    program: "StepProgram | None"
    buckets: "Sequence[GradientBucketBuffer]"
    averages: bool
    has_collectives: bool


class DigitsTraining:
    """The training of a step; created and collected on all of its ranks together.

    Raises:
        BadInputError: on all ranks, if rank 0 has no images.
    """

    def __init__(self, step: TrainedStep) -> None:
        self._step = step
        self._workers = step.workers
        self._program = step.program
        rank = step.comm.rank
        failure, data = None, None
        if rank == 0:
            try:
                data = Digits.read()
            except BadInputError as error:
                failure = error
        self._initial: Floats
        failure, self._data, self._initial = step.comm.bcast(
            (failure, data, data and data.initial_weights())
        )
        if failure is not None:
            raise failure
        self._records: list[tuple[object, ...]] = []
        self._first = self._initial  # the weights after the first step
        gradients = [bucket.gradient for bucket in step.buckets]
        self.replica = (
            self._replica(rank, gradients, self._initial.copy()) if step.program else None
        )
        corrupted = step.workload.corrupted
        if self.replica and corrupted and corrupted[1] == rank:
            self.replica.corrupt = partial(self._corrupt, self.replica, corrupted[0])

    def _replica(self, rank: int, gradients: Sequence[Any], weights: Floats) -> Replica:
        assert self._program  # noqa: S101  workers have one
        return Replica(
            self._data,
            self._program,
            gradients,
            weights,
            (rank, self._workers),
            micro_batches=self._step.workload.micro_batches,
            mean=self._step.averages,
        )

    @staticmethod
    def _corrupt(replica: Replica, step: int) -> None:
        """Change the largest gradient of a step by a bit of its mantissa."""
        if replica.step + 1 == step:
            gradient = replica.gradients[0]
            gradient[np.abs(gradient).argmax() :][:1].view(np.uint32)[:] ^= 1 << 20

    def effort(self, effort: "Effort") -> "Effort":
        """Return the effort of a round, which trains anew: STEPS, unless a number of iterations is given."""
        steps = training_steps(effort)
        return replace(effort.of_a_round, min_iterations=steps, max_iterations=steps)

    def begin(self) -> None:
        """Begin anew, after steps that do not count."""
        self._records = []
        if self.replica:
            self.replica.weights[:] = self._initial
            self.replica.step = 0
        for bucket in self._step.buckets:
            if codec := bucket.codec:
                codec.overflowed = codec.not_finite = 0
                if codec.residual is not None:
                    codec.residual[:] = 0

    def record(self) -> None:
        """Keep what the last step has left behind."""
        if replica := self.replica:
            if not self._records:
                self._first = replica.weights.copy()
            self._records.append(
                (replica.digest(), replica.loss, replica.accuracy(), replica.phases_ns)
            )

    def collect(
        self, sync: "RankSync", steps: int, name: Callable[[int], str], progress: "RankProgress"
    ) -> RoundFindings:
        """Return what the first ``steps`` steps have shown; all ranks call this together. ``name`` names a rank.

        The ranks meet after every step of the serial run: many ranks take minutes, and none may
            seem stuck.
        """
        if not self._step.has_collectives:  # without collectives every rank learns alone
            return RoundFindings()
        mine = np.zeros(steps, RECORD)
        mine[: len(self._records)] = self._records[:steps]  # an aggregator has none
        gathered = sync.gather(mine.view(np.int64).reshape(steps, -1))
        if gathered is not None:
            serial = self.serial_weights(steps)
        else:
            serial = iter([self._initial] * steps)
        first = last = self._initial
        for step, last in enumerate(serial):
            first = last.copy() if step == 0 else first
            progress.enter("training in one process")
            sync.agree(0)
        if gathered is None:
            return RoundFindings(sync.agree(0))
        # of shape [step, rank]
        records = np.moveaxis(gathered, 2, 1)[:, : self._workers].copy().view(RECORD)[..., 0]
        differing, reasons = _differing(records["digest"], name)
        assert self.replica  # noqa: S101  rank 0 is a worker
        difference = None if reasons else _part(self.replica.weights, last)
        reasons += self._wrong_alike(first, difference) if difference else ()
        loss = records["loss"].sum(1)
        accuracy = records["accuracy"][:, 0]
        slowest_ns = records["phases_ns"].max(1)
        phases = np.median(slowest_ns, axis=0) / 1e9
        last_loss = None
        if math.isfinite(loss[-1]):
            last_loss = float(loss[-1])
        results = {
            "loss": last_loss,
            "accuracy": float(accuracy[-1]),
            "diverged_steps": int(np.count_nonzero(differing)),
            "serial_difference": difference,
            "weights": records["digest"][-1, 0].tobytes().hex(),
            **dict(zip(PHASES, phases.tolist(), strict=True)),
        }
        wrong = sync.agree(int(differing.sum()) or len(reasons))
        step_results = {"step_loss": loss, "step_accuracy": accuracy, "step_differing": differing}
        return RoundFindings(wrong, (*reasons,), step_results, results)

    def _wrong_alike(self, first: Floats, difference: float) -> Iterator[str]:
        """Yield why weights are wrong that all ranks have, and that differ from those of a serial run.

        Without the gradients of one rank of p, the first step changes the weights by about 1/p
        less.
        """
        sums = (
            collective
            for b in self._step.buckets
            for collective in b.cases
            if collective.case.op in ("sum", "avg")
        )
        # none is that of a library's own call
        in_known_order = all(collective.algorithm is not None for collective in sums)
        if in_known_order or (self._step.workload.compress == DENSE and difference > ROUNDINGS):
            yield f"the weights differ from those of a serial run by up to {difference:.2g} of the largest one"
        elif (off := _part(self._first - self._initial, first - self._initial)) > 1 / (
            2 * self._workers
        ):
            yield f"step 1 changes the weights otherwise than a serial run does, by up to {off:.2g} of the change"

    def serial_weights(self, steps: int) -> Iterator[Floats]:
        """Yield the weights after each step of a run in one process, always the same array; only rank 0 calls this."""
        weights = self._initial.copy()
        ranks = range(self._workers)
        sizes = [len(bucket.gradient) for bucket in self._step.buckets]
        gradients = [[np.zeros(size, np.float32) for size in sizes] for _ in ranks]
        replicas = [self._replica(rank, gradients[rank], weights) for rank in ranks]
        serial_work: list[Callable[[], None]] = []
        for bucket, gradients_of_ranks in zip(
            self._step.buckets, zip(*gradients, strict=True), strict=True
        ):
            serial_work += self._serial_chain(bucket, gradients_of_ranks)
        for _ in range(steps):
            for replica in replicas:
                replica.compute_all()
            for work in serial_work:
                work()
            replicas[0].end_step()
            for replica in replicas[1:]:
                replica.step += 1
            yield weights

    def _serial_chain(
        self, bucket: "GradientBucketBuffer", gradients: Sequence[Floats]
    ) -> list[Callable[[], None]]:
        """Return the operations of a bucket on the gradients of all ranks, [rank], in their order."""
        operations = [_serial_operation(case) for case in bucket.cases]
        memory = [(_zeros(operation, "src"), _zeros(operation, "dst")) for operation in operations]
        collectives = []
        for operation, (sources, targets) in zip(operations, memory, strict=True):
            collectives.append(partial(run_lockstep, operation, sources, targets))
        if bucket.codec is None:
            targets_of_all = chain.from_iterable(targets for _, targets in memory)
            results = [target[: len(gradients[0])] for target in targets_of_all]
            return [
                partial(_copy, gradients, results),
                *collectives,
                partial(_copy, results, gradients),
            ]
        if not self._program:
            return []
        compression = bucket.codec.compression
        codecs: list[Codec] = []
        for rank, gradient in enumerate(gradients):
            messages = []
            for operation, (sources, targets) in zip(operations, memory, strict=True):
                own = operation.contribution(sources[rank], targets[rank], rank)
                messages.append(CodecMessage(own, operation.result(targets[rank], rank)))
            codecs.append(
                CODECS[compression.name](compression, gradient, messages, len(gradients), rank)
            )
        turns = iter(collectives)
        work: list[Callable[[], None]] = []
        for step in self._program.operations:
            if step.belongs_to(bucket.bucket):
                work.append(
                    partial(_run_codec, codecs, step.codec) if step.is_codec else next(turns)
                )
        return work


def training_steps(effort: "Effort") -> int:
    """Return the steps of a training: STEPS, unless a number of iterations is given."""
    if effort.min_iterations == effort.max_iterations:
        return effort.max_iterations
    return STEPS


def _part(values: Floats, right: Floats) -> float:
    """Return the largest difference over the largest magnitude: 0 if all bits are equal, 1 if that is not a number."""
    if values.tobytes() == right.tobytes():
        return 0.0
    with np.errstate(invalid="ignore"):
        return float(np.nan_to_num(np.abs(values - right).max() / np.abs(right).max(), nan=1.0))


def _copy(sources: Sequence[Array], targets: Sequence[Array]) -> None:
    # Aggregators have no gradients, a single rank has no results.
    for source, target in zip(sources, targets, strict=False):
        target[:] = source


def _run_codec(codecs: Sequence[Codec], name: str) -> None:
    for codec in codecs:
        getattr(codec, name)()


def _serial_operation(prepared: "PreparedCase") -> "Operation":
    if prepared.operation.slices:
        return prepared.operation
    case = replace(prepared.case, algorithm=STAND_INS[prepared.case.collective], transport="mpi")
    planned = planned_schedule(case, prepared.layout)
    assert planned  # noqa: S101  it is not the library's own
    return replace(
        prepared.operation, slices=planned.slices, channels=planned.channels, window=planned.window
    )


def _zeros(operation: "Operation", buffer: str) -> list[Array]:
    """Return a buffer of an operation for each rank."""
    ranks = range(operation.layout.ranks)
    return [np.zeros(operation.elements(buffer, rank), operation.dtype) for rank in ranks]


def _differing(
    digests: NDArray[np.void], name: Callable[[int], str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return how many ranks have other weights than most after each step, and where that begins.

    ``digests`` are [step, rank].
    """
    differing = np.zeros(len(digests), np.int64)
    reasons = list[str]()
    for step in np.flatnonzero((digests != digests[:, :1]).any(1)).tolist():
        digests_of_step = digests[step].tolist()
        (most, count), *rarer = Counter(digests_of_step).most_common()
        differing[step] = len(digests_of_step) - count
        if not reasons:
            alone = rarer[0][1] < count
            named = []
            for rank, digest in enumerate(digests_of_step):
                if digest != most or not alone:
                    named.append(name(rank))
            have = "has" if len(named) == 1 else "have"
            than = "different weights"
            if alone:
                than = f"other weights than the other {count} ranks"
            reasons.append(f"step {step + 1}: {join_words(named)} {have} {than}")
    return differing, reasons
