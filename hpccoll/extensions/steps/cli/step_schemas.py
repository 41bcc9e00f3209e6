"""The schemas of the JSON of training steps."""

from hpccoll.common.json_schema import OutputSchema

SCHEMAS = (
    OutputSchema(
        "predict-step",
        "predict step --model NAME --json",
        "predicted training steps, one for each number of nodes",
        ("hpccoll.extensions.steps.model.step_prediction:StepPredictionJson",),
        is_array=True,
    ),
    OutputSchema(
        "predict-step-formulas",
        "predict step --params N --json",
        "training steps by closed formulas, one for each number of GPUs",
        ("hpccoll.extensions.steps.model.communication_wall:WallPointJson",),
        is_array=True,
    ),
    OutputSchema(
        "predict-step-scenarios",
        "predict step --scenarios F --json",
        "predicted training steps of scenarios",
        ("hpccoll.extensions.steps.model.step_scenarios:ScenarioPredictionJson",),
        is_array=True,
    ),
    OutputSchema(
        "train-dry-run",
        "train --dry-run --json",
        "what a training step would do; an array of it if more than one dtype is asked for",
        ("hpccoll.extensions.steps.render.step_dry_run:DryRunJson",),
        may_be_array=True,
    ),
)
