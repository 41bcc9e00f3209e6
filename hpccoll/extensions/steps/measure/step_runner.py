"""Training steps as ``measure.run.workload_runner.WorkloadRunner`` runs them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from hpccoll.cases.case import Case, Effort
from hpccoll.extensions.steps.measure.digits_training import training_steps
from hpccoll.extensions.steps.measure.nccl_launch_order import keep_launch_order
from hpccoll.extensions.steps.measure.prepared_step import PreparedStep
from hpccoll.extensions.steps.training.model_file import models_from_json
from hpccoll.extensions.steps.training.step_keys import GEMM
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.ranks import first_reason
from hpccoll.measure.run.case_factory import missing_ml_dtypes
from hpccoll.measure.run.workload_runner import PrepareCall
from hpccoll.schedule import Layout

if TYPE_CHECKING:
    from hpccoll.measure.gpu_assignment import RankGpus
    from hpccoll.transports.gpu import Gpu
    from hpccoll.transports.stream_wait import Connecting


class StepRunner:
    """Prepares training steps; each method does what that of ``WorkloadRunner`` says. The files are models."""

    def begin_job(self, cases: Iterable[Case]) -> None:
        keep_launch_order(cases)

    def missing(
        self, case: Case, effort: Effort, comm: MPI.Intracomm, gpus: "Callable[[], RankGpus]"
    ) -> Iterator[str | None]:
        step = TrainingStep.of(case.params)
        if case.device == "cuda":
            if case.transport != "nccl":
                yield f"training steps on GPUs run over nccl, not {case.transport}: only its operations are queued"
            if step.compute == GEMM:
                yield gpus().missing_cublas
        yield _reason_no_drill(step, effort)
        if step.compress.startswith("fp8"):
            yield first_reason(comm, missing_ml_dtypes(step.compress))

    def prepare(
        self,
        comm: MPI.Intracomm,
        layout: Layout,
        case: Case,
        prepare_call: PrepareCall,
        files: Mapping[str, Any],
        gpu: "Gpu | None",
        connecting: "Connecting",
    ) -> PreparedStep:
        return PreparedStep(
            comm, layout, case, prepare_call, models_from_json(files), gpu, connecting
        )


def _reason_no_drill(step: TrainingStep, effort: Effort) -> str | None:
    """Return the reason why the drill of a training step never comes; None if it does, or if there is none."""
    if step.corrupted is None:
        return None
    drilled_step, _ = step.corrupted
    steps = training_steps(effort)
    if drilled_step <= steps:
        return None
    return f"corrupt: step {drilled_step} is after the last one, {steps}"


STEP_RUNNER = StepRunner()
