"""Training steps: models, gradient buckets and parallelism, measured on ranks or predicted for a cluster."""

from hpccoll.common.extensions import Extension

EXTENSION = Extension(
    name="steps",
    workloads={"training_step": "hpccoll.extensions.steps.step_workload:STEP_WORKLOAD"},
    runners={"training_step": "hpccoll.extensions.steps.measure.step_runner:STEP_RUNNER"},
)
