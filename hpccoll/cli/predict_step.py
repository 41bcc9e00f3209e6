"""The command predict step."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpccoll.cli.common import parse_counts, progress_counter, read_machine_or_cluster
from hpccoll.common.errors import BadInputError, UnusableError, file_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpccoll.model.step_prediction import StepRequest

PICTURES = (".html", ".svg", ".png")
EXAMPLE = "Example: hpccoll predict step --model llama2-7b --cluster 8xh100-400g --nodes 2-64 --flops-rate 400e12"


def predict_step(
    model: Annotated[
        str | None, typer.Option(help="model, see hpccoll list, or your own file F.yaml", metavar="NAME|F.yaml")
    ] = None,
    machine: Annotated[Path | None, typer.Option(help="fitted machine, of hpccoll model", metavar="M.json")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="described cluster: a file, or a name such as 8xh100-400g", metavar="NAME|F.yaml")
    ] = None,
    nodes: Annotated[str, typer.Option(help="numbers of nodes; 2-64 stands for 2,4,8,16,32,64")] = "2,8,64",
    ranks_per_node: Annotated[
        int | None, typer.Option(help="GPUs on each node [those of the machine; with --params 1]", metavar="K")
    ] = None,
    parallel: Annotated[str, typer.Option(help="mesh such as tp=8,pp=4; the rest is data parallel")] = "",
    sharding: Annotated[str, typer.Option(help="none, zero1, zero2, zero3, fsdp, hsdp")] = "none",
    buckets: Annotated[str, typer.Option(help="rule of buckets: ddp, horovod, megatron, deepspeed, one, each")] = "ddp",
    bucket: Annotated[str | None, typer.Option(help="size of a bucket [that of the rule]", metavar="SIZE")] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="algorithm of the collectives that have it [the fastest of the usual ones; --params: ring]"),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="parameter of the algorithm, such as channels=4", metavar="K=V")
    ] = None,
    flops_rate: Annotated[
        str | None, typer.Option(help="FLOPs a second of a GPU while it computes", metavar="FLOPS")
    ] = None,
    mfu: Annotated[
        str | None, typer.Option(help="instead of --flops-rate: fraction of the peak of --gpu", metavar="FRACTION")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU of --mfu: v100, a100, h100, h200, b200, mi300x")] = None,
    compute: Annotated[
        str | None, typer.Option(help="instead of --flops-rate: time that a GPU computes in a step", metavar="TIME")
    ] = None,
    samples: Annotated[int, typer.Option(help="samples of a micro-batch of a data-parallel rank")] = 1,
    micro_batches: Annotated[int, typer.Option(help="micro-batches of a step")] = 1,
    batch: Annotated[
        int | None, typer.Option(help="samples of a step on all GPUs, instead of --micro-batches", metavar="SAMPLES")
    ] = None,
    sequence_length: Annotated[
        int | None, typer.Option(help="tokens of a sample of a transformer [its own]", metavar="TOKENS")
    ] = None,
    dtype: Annotated[str | None, typer.Option("-d", "--dtype", help="type of gradients [that of the model]")] = None,
    params: Annotated[
        str | None,
        typer.Option(help="number of parameters of the model, for closed formulas without a machine", metavar="NUMBER"),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="with --params: numbers of GPUs, such as 8-16384 [8]", metavar="COUNTS")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="with --params: rate of the link of a GPU, such as 400gbit", metavar="RATE")
    ] = None,
    node_rate: Annotated[
        str | None,
        typer.Option(help="with --params: rate between the GPUs of a node, for hierarchical", metavar="RATE"),
    ] = None,
    bytes_per_element: Annotated[int, typer.Option(help="with --params: bytes of a gradient")] = 2,
    latency: Annotated[str | None, typer.Option(help="with --params: latency of a message [0]", metavar="TIME")] = None,
    tokens: Annotated[
        str | None, typer.Option(help="with --params and --flops-rate: tokens of a GPU in a step", metavar="NUMBER")
    ] = None,
    scenarios: Annotated[
        Path | None,
        typer.Option(help="file of several steps to compare; other options are ignored", metavar="F.yaml"),
    ] = None,
    *,
    overlap: Annotated[bool, typer.Option(help="whether gradients are synchronised during the backward pass")] = True,
    sequence: Annotated[
        bool, typer.Option("--sequence", help="tensor-parallel ranks divide the sequence, too")
    ] = False,
    recompute: Annotated[bool, typer.Option("--recompute", help="the backward pass repeats the forward pass")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output, in SI units")] = False,
    out: Annotated[Path | None, typer.Option(help="picture of steps", metavar="F.html|svg|png")] = None,
) -> int:
    """Predict a training step, and what share is communication.

    With --model, the collectives of the step are simulated on a fitted machine or a described cluster. With --params,
    closed formulas give the time to synchronise gradients: the communication wall. --scenarios compares the steps of a
    file.
    """
    from hpccoll.common.units import parse_parameter, parse_size

    if param and algorithm is None:
        raise UnusableError("--param", "it is a parameter of an --algorithm, which is missing")
    if out and out.suffix not in PICTURES:
        raise BadInputError("--out", str(out), f"a file name that ends with {', '.join(PICTURES)}")
    if sum(each is not None for each in (model, params, scenarios)) != 1:
        raise UnusableError("hpccoll predict step", "exactly one of --model, --params and --scenarios")
    simulated = {"--machine": machine, "--cluster": cluster, "--parallel": parallel, "--mfu": mfu, "--batch": batch}
    closed = {"--gpus": gpus, "--rate": rate, "--node-rate": node_rate, "--latency": latency, "--tokens": tokens}
    for form, others in (("--model", simulated), ("--params", closed)):
        if (params if form == "--model" else model) and (given := [name for name, value in others.items() if value]):
            raise UnusableError(given[0], f"with {form} only")
    if scenarios:
        return _scenarios(scenarios, out, as_json=as_json)
    if params is not None:
        return _closed_form(
            params, gpus or "8", rate, node_rate, bytes_per_element, latency, compute, flops_rate, tokens, algorithm,
            ranks_per_node, out, as_json=as_json,
        )  # fmt: skip
    from hpccoll.model.step_prediction import StepRequest
    from hpccoll.model.step_scenarios import compute_rate, read_model_shape
    from hpccoll.training.buckets import BucketRule
    from hpccoll.training.parallelism import Parallelism

    request = StepRequest(
        model=read_model_shape(model or "", "--model", sequence_length), nodes=parse_counts(nodes, "--nodes"),
        compute=compute_rate(flops_rate, mfu, gpu, compute), parallel=parallel,
        parallelism=Parallelism(
            buckets=BucketRule(buckets, parse_size(bucket, "--bucket") if bucket else None), sharding=sharding,
            sequence=sequence, overlap=overlap, micro_batches=micro_batches, samples=samples, recompute=recompute,
            gradient_dtype=dtype,
        ),
        batch=batch, ranks_per_node=ranks_per_node, algorithm=algorithm,
        parameters=dict(map(parse_parameter, param or ())),
    )  # fmt: skip
    return _simulated(request, machine, cluster, out, as_json=as_json)


def _simulated(
    request: "StepRequest", machine: Path | None, cluster: str | None, out: Path | None, *, as_json: bool
) -> int:
    from hpccoll.model.step_prediction import predict_steps
    from hpccoll.render import step_report

    described = read_machine_or_cluster(machine, cluster)
    with progress_counter("numbers of nodes") as progress:
        predicted = predict_steps(described, request, progress)
    rows = [one.row() for one in predicted.predictions]
    if out:
        from hpccoll.render.step_chart import write_step_chart

        title = f"A training step of {request.model.name} on {described.name}: {rows[0]['kind']}"
        _write(
            lambda: write_step_chart(rows, out, title, [request.compute.text, request.parallel or "data parallel"]), out
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        for line in step_report.left_out_lines(predicted.left_out):
            typer.echo(f"hpccoll: {line}", err=True)
    else:
        typer.echo("\n".join(step_report.step_lines(predicted)))
        if out:
            typer.echo(f"picture: {out}")
    return 0


def _closed_form(
    params: str, gpus: str, rate: str | None, node_rate: str | None, bytes_per_element: int, latency: str | None,
    compute: str | None, flops_rate: str | None, tokens: str | None, algorithm: str | None, ranks_per_node: int | None,
    out: Path | None, *, as_json: bool,
) -> int:  # fmt: skip
    from hpccoll.common.limits import RANKS_PER_NODE, IntegerRange, PositiveNumber
    from hpccoll.common.units import parse_rate, parse_seconds
    from hpccoll.model.communication_wall import Wall, bubble_rows, wall_points
    from hpccoll.render.step_report import closed_form_lines

    parameters = PositiveNumber(1e18).read("--params", params)
    IntegerRange(1, 16).check("--bytes-per-element", bytes_per_element)
    counts = parse_counts(gpus, "--gpus")
    if counts[0] < 2:
        raise BadInputError("--gpus", counts[0], "at least 2: one GPU synchronises nothing")
    per_node = 1 if ranks_per_node is None else ranks_per_node
    RANKS_PER_NODE.check("--ranks-per-node", per_node)
    if rate is None:
        raise UnusableError("--rate", "the rate of the link of a GPU, such as 400gbit")
    if compute and not (flops_rate or tokens):
        compute_s = parse_seconds(compute, "--compute")
    elif flops_rate and tokens and not compute:
        flops = 6 * parameters * PositiveNumber(1e18).read("--tokens", tokens)
        compute_s = flops / PositiveNumber(1e21).read("--flops-rate", flops_rate)
    else:
        raise UnusableError("--compute", "exactly one of --compute and --flops-rate with --tokens")
    wall = Wall(
        parameters, bytes_per_element, parse_rate(rate, "--rate"), compute_s,
        "ring" if algorithm is None else algorithm,
        parse_seconds(latency, "--latency") if latency else 0.0, per_node,
        parse_rate(node_rate, "--node-rate") if node_rate else None,
    )  # fmt: skip
    points = wall_points(wall, counts)
    lines = list(closed_form_lines(points))
    rows = [point.row() for point in points]
    if out:
        from hpccoll.render.step_chart import write_wall_chart

        _write(
            lambda: write_wall_chart(rows, list(bubble_rows()), out, "The communication wall: modelled", lines[:1]), out
        )
    typer.echo(json.dumps(rows, indent=1) if as_json else "\n".join(lines))
    if out and not as_json:
        typer.echo(f"picture: {out}")
    return 0


def _scenarios(path: Path, out: Path | None, *, as_json: bool) -> int:
    from hpccoll.model.step_scenarios import predict_scenarios
    from hpccoll.render.step_report import scenario_lines, scenario_titles

    with progress_counter("scenarios") as progress:
        predicted = predict_scenarios(path, progress)
    rows = [one.row() for one in predicted]
    if out:
        from hpccoll.render.step_chart import write_scenario_chart

        _write(lambda: write_scenario_chart(rows, out, f"{path.name}: simulated", scenario_titles(predicted)), out)
    typer.echo(json.dumps(rows, indent=1) if as_json else "\n".join(scenario_lines(predicted)))
    if out and not as_json:
        typer.echo(f"picture: {out}")
    return 0


def _write(write: "Callable[[], None]", out: Path) -> None:
    """Write a picture.

    Raises:
        BadInputError: if it cannot be written.
    """
    try:
        write()
    except OSError as error:
        raise file_error("--out", out, error, "written") from None
