"""Training steps: models, gradient buckets and parallelism, measured on ranks or predicted for a cluster."""

from hpccoll.common.extensions import Extension

EXTENSION = Extension(
    name="steps",
    workloads={"training_step": "hpccoll.extensions.steps.step_workload:STEP_WORKLOAD"},
    figures={"training_step": "hpccoll.extensions.steps.results.step_figures:STEP_FIGURES_OF_ROWS"},
    pages={"training_step": "hpccoll.extensions.steps.render.step_page:STEP_PAGE"},
    findings={"training_step": "hpccoll.extensions.steps.analysis.step_findings:step_findings"},
    fitted_sections=["hpccoll.extensions.steps.model.codec_fit:fitted_sections"],
    sections={"training_step": "hpccoll.extensions.steps.sweep.step_section:STEP_SECTIONS"},
    job_commands={"train": "hpccoll.extensions.steps.cli.train:TRAIN"},
    subcommands={"predict step": "hpccoll.extensions.steps.cli.predict_step:PREDICT_STEP"},
    runners={"training_step": "hpccoll.extensions.steps.measure.step_runner:STEP_RUNNER"},
    schemas=["hpccoll.extensions.steps.cli.step_schemas:SCHEMAS"],
)
