"""The command predict step."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING, Any, NamedTuple

from hpccoll.cli import common
from hpccoll.cli.command import Command
from hpccoll.cli.progress_counter import progress_counter
from hpccoll.common.errors import BadInputError, UnusableError, writing
from hpccoll.common.interruption import INTERRUPTED, interruptible
from hpccoll.common.limits import FLAG, IntegerRange, PositiveNumber
from hpccoll.common.options import Option, OptionKind, check_one_given
from hpccoll.common.quantities import BYTES, DURATION, RATE
from hpccoll.extensions.steps.training.step_keys import PREDICTED, WALL, StepKey, option
from hpccoll.schedule import DTYPE

if TYPE_CHECKING:
    from hpccoll.model.machine_file import MachineFile

ALWAYS = {"--json", "--out"}
FORMS = {
    "--model": {*map(option, PREDICTED), "--machine", "--cluster", "--nodes", "--gpus", "--param"},
    "--params": {
        *map(option, WALL),
        "--compute",
        "--flops-rate",
        "--algorithm",
        "--ranks-per-node",
    },
    "--scenarios": {"--scenarios"},
}
"""The forms of the command, by the option that begins one, and the options that each of them takes."""
WHOSE = {
    "--model": "with --params only",
    "--params": "with --model only",
    "--scenarios": "a key of the file of --scenarios",
}
"""Where any other option belongs instead, by form."""
IN_OTHER_LINES = {"parameter_dtype", "activation_dtype", "feedback"}
"""The keys that the help of other keys names."""
SHORT_FORMS = {"dtype": ("-d",)}


METAVARS: Mapping[object, str] = {BYTES: "SIZE", DURATION: "TIME", RATE: "RATE", DTYPE: "TYPE"}
STEP, CLOSED_FORMULAS = "The step", "Closed formulas"


def _option(name: str, key: StepKey) -> Option:
    flags = (*SHORT_FORMS.get(name, ()), option(name))
    if key.kind is FLAG:
        help_text = key.help_text.removeprefix("1: ").partition("; 0:")[0]
        kind: OptionKind = "toggle" if key.default else "flag"
        return Option(
            flags, help_text, bool(key.default), name=name, kind=kind, hidden=name in IN_OTHER_LINES
        )
    is_number = isinstance(key.kind, IntegerRange | PositiveNumber)
    metavar = METAVARS.get(key.kind, "N" if is_number else "NAME")
    return Option(flags, key.help_text, name=name, metavar=metavar, hidden=name in IN_OTHER_LINES)


def predict_step(
    typed_flags: Sequence[str],
    machine: Path | None,
    cluster: str | None,
    nodes: str,
    param: list[str],
    scenarios: Path | None,
    *,
    as_json: bool,
    out: Path | None,
    **texts: Any,
) -> int:
    """Predict a training step: simulated, or with --params by closed formulas."""
    _check_form(typed_flags)
    if param and texts["algorithm"] is None:
        raise UnusableError("--param", "it is a parameter of an --algorithm, which is missing")
    common.check_suffix(out, *common.PICTURES)
    tables = (
        (PREDICTED, WALL) if texts["params"] is not None else (WALL, PREDICTED)
    )  # of a key of both, the last counts
    keys = {name: _read(name, key, texts[name]) for name, key in {**tables[0], **tables[1]}.items()}
    if scenarios:
        answer = _scenarios(scenarios)
    elif keys["params"] is not None:
        answer = _closed_form(keys)
    else:
        described = common.read_machine_or_cluster(machine, cluster, keys["rate"], "predict step")
        answer = _simulated(keys, nodes, param, described, as_json=as_json)
    if out:
        with writing(out):
            answer.write(out)
    common.show_found(answer.rows, answer.lines, as_json=as_json)
    if out and not as_json:
        print(f"picture: {out}")
    return INTERRUPTED if answer.interrupted else 0


def _check_form(typed_flags: Sequence[str]) -> None:
    """Check that the options that were typed are those of one form."""
    check_one_given("predict step", {form: form in typed_flags for form in FORMS})
    form = next(form for form in FORMS if form in typed_flags)
    for name in typed_flags:
        if name not in FORMS[form] | ALWAYS:
            raise UnusableError(name, WHOSE[form])
    if {"--gpus", "--nodes"} <= {*typed_flags}:
        raise UnusableError("--gpus", "without --nodes: the machine says how many GPUs a node has")


def _read(name: str, key: StepKey, value: str | bool | None) -> Any:
    if isinstance(value, str):
        return key.read(option(name), value)
    return value


class _Answer(NamedTuple):
    """What a form of the command prints as JSON and as text, and what writes its picture."""

    rows: Sequence[Mapping[str, Any]]
    lines: list[str]
    write: Callable[[Path], None]
    interrupted: bool = False


def _simulated(
    keys: Mapping[str, Any],
    nodes: str,
    param: list[str],
    described: "MachineFile",
    *,
    as_json: bool,
) -> _Answer:
    from hpccoll.common.text import join_words
    from hpccoll.common.units import parse_parameter
    from hpccoll.extensions.steps.model.step_prediction import predict_steps
    from hpccoll.extensions.steps.model.step_scenarios import step_request
    from hpccoll.extensions.steps.render import step_report
    from hpccoll.render import prediction_report

    if keys["gpus"] is None:
        counts = common.parse_counts(nodes, "--nodes")
    else:
        counts = _nodes_of(keys["gpus"], described)
    request = step_request(keys, counts, dict(map(parse_parameter, param)))
    with progress_counter("numbers of nodes") as progress, interruptible(SIGINT, SIGTERM):
        predicted = predict_steps(described, request, progress)
    rows = [prediction.to_json() for prediction in predicted.predictions]

    def write(out: Path) -> None:
        from hpccoll.extensions.steps.render.step_prediction_charts import write_step_chart

        title = f"A training step of {request.model.name} on {described.name}: {join_words(predicted.kinds)}"
        predictions = predicted.predictions
        lines = [
            predicted.request.compute.text,
            step_report.step_words(predicted.request, predictions[0]),
            *step_report.idle_stages_sentences((request, step) for step in predictions),
            *step_report.best_case_sentences(predictions),
        ]
        write_step_chart(rows, out, title, lines)

    if as_json:
        for line in prediction_report.left_out_lines(predicted.left_out):
            print(f"hpccoll: {line}", file=sys.stderr)
    return _Answer(rows, list(step_report.step_lines(predicted)), write, predicted.interrupted)


def _nodes_of(gpus: str, machine: "MachineFile") -> list[int]:
    """Return the numbers of whole nodes that have the given numbers of GPUs.

    Raises:
        BadInputError: if nodes of the machine do not have such a number of GPUs.
    """
    gpus_of_node = machine.layout(1).workers
    counts = common.parse_counts(gpus, "--gpus")
    for count in counts:
        if count % gpus_of_node:
            expected = f"a multiple of {gpus_of_node}, the GPUs of a node of {machine.name}"
            raise BadInputError("--gpus", count, expected)
    return [count // gpus_of_node for count in counts]


def _closed_form(keys: Mapping[str, Any]) -> _Answer:
    from hpccoll.extensions.steps.model.communication_wall import Wall, bubble_rows, wall_points
    from hpccoll.extensions.steps.render.step_report import closed_form_lines

    counts = common.parse_counts("8" if keys["gpus"] is None else keys["gpus"], "--gpus")
    if counts[0] < 2:
        raise BadInputError("--gpus", counts[0], "at least 2: one GPU synchronises nothing")
    if keys["rate"] is None:
        raise UnusableError("--rate", "the rate of the link of a GPU, such as 400gbit")
    compute_s, flops_rate, tokens = (keys[name] for name in ("compute", "flops_rate", "tokens"))
    choices = {"--compute": compute_s, "--flops-rate with --tokens": flops_rate or tokens}
    check_one_given("--compute", choices)
    if compute_s is None:
        if flops_rate is None or tokens is None:
            missing = "--tokens" if tokens is None else "--flops-rate"
            raise UnusableError(missing, "give --flops-rate and --tokens together")
        compute_s = 6 * keys["params"] * tokens / flops_rate
    wall = Wall(
        keys["params"],
        keys["bytes_per_element"] or WALL["bytes_per_element"].default,
        keys["rate"],
        compute_s,
        "ring" if keys["algorithm"] is None else keys["algorithm"],
        keys["latency"] or 0.0,
        keys["ranks_per_node"] or 1,
        keys["node_rate"],
    )
    points = wall_points(wall, counts)
    rows, lines = [point.to_json() for point in points], list(closed_form_lines(points))

    def write(out: Path) -> None:
        from hpccoll.extensions.steps.render.step_prediction_charts import write_wall_chart

        write_wall_chart(
            rows, list(bubble_rows()), out, "The communication wall: modelled", lines[:1]
        )

    return _Answer(rows, lines, write)


def _scenarios(path: Path) -> _Answer:
    from hpccoll.common.text import join_words
    from hpccoll.extensions.steps.model.step_scenarios import predict_scenarios
    from hpccoll.extensions.steps.render.step_report import (
        scenario_lines,
        scenario_notes,
        scenario_titles,
    )

    with progress_counter("scenarios") as progress, interruptible(SIGINT, SIGTERM):
        predicted, interrupted = predict_scenarios(path, progress)
    if interrupted:
        print(f"hpccoll: left out: {', '.join(interrupted)}: interrupted", file=sys.stderr)
    rows = [scenario.to_json() for scenario in predicted]

    def write(out: Path) -> None:
        from hpccoll.extensions.steps.render.step_prediction_charts import write_scenario_chart

        kinds = join_words(dict.fromkeys(kind for row in rows for kind in row["kinds"]))
        names = [scenario.label for scenario in predicted]
        lines = [*scenario_titles(predicted), *scenario_notes(predicted)]
        write_scenario_chart(rows, names, out, f"{path.name}: {kinds}", lines)

    return _Answer(rows, list(scenario_lines(predicted)), write, bool(interrupted))


PREDICT_STEP = Command(
    name="predict step",
    run=predict_step,
    example="Example: hpccoll predict step --model gpt2 --cluster 8xh100-400g --compute 27ms",
    options={
        common.WHERE: (
            common.MACHINE,
            common.CLUSTER,
            common.NODES,
            Option(
                ("--scenarios",),
                "file of steps to compare, instead of --model",
                metavar="F.yaml",
                kind="path",
                must_exist=True,
            ),
        ),
        STEP: (
            Option(
                ("--param",), "parameter of --algorithm: channels=4", metavar="K=V", kind="list"
            ),
            *(_option(name, key) for name, key in PREDICTED.items()),
        ),
        CLOSED_FORMULAS: [
            _option(name, key) for name, key in WALL.items() if name not in PREDICTED
        ],
        common.OUTPUT: (
            common.JSON_IN_SI,
            Option(("--out",), "picture of steps", metavar="F.html|svg|png", kind="path"),
        ),
    },
)
