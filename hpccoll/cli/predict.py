"""The command predict, and its command step."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import TYPE_CHECKING

from hpccoll.cli import common
from hpccoll.cli.accept import show_ratios
from hpccoll.cli.command import Command
from hpccoll.cli.extension_commands import subcommands
from hpccoll.cli.progress_counter import progress_counter
from hpccoll.common.errors import BadInputError, UnusableError, writing
from hpccoll.common.interruption import INTERRUPTED, interruptible
from hpccoll.common.options import Option, check_one_given

if TYPE_CHECKING:
    from hpccoll.model.machine_file import MachineFile
    from hpccoll.model.predict import Predictions, Request

WHAT = "What to predict"
QUESTIONS = ("best",)
RAW_FILE = ".h5"
WITH_AGAINST = (
    "--against",
    "--machine",
    "--cluster",
    "--fit",
    "--max-nodes",
    "--transport",
    "--library",
    "--rate",
    "--json",
)
"""The options of a comparison with results; all others belong to predictions."""

WITH_FIT = "--max-nodes", "--transport", "--library"
"""The options that say which results a machine is fitted to."""


def predict(
    typed_flags: Sequence[str],
    machine: Path | None = None,
    cluster: str | None = None,
    fit: list[Path] | None = None,
    max_nodes: int | None = None,
    transport: str | None = None,
    library: str | None = None,
    nodes: str = "2,8,64",
    ranks_per_node: int | None = None,
    nodes_per_rack: int | None = None,
    aggregators: int | None = None,
    mapping: str | None = None,
    torus: str | None = None,
    ports: int = 1,
    rate: str | None = None,
    collective: str = "all_reduce",
    algorithms: str | None = None,
    begin: str | None = None,
    end: str | None = None,
    factor: str = "4",
    dtype: str = "float32",
    param: list[str] | None = None,
    question: str | None = None,
    against: list[Path] | None = None,
    *,
    as_json: bool = False,
    out: Path | None = None,
) -> int:
    """Predict the times of algorithms on any number of nodes.

    Schedules are simulated on a fitted machine or a described cluster. Each time has an interval,
    and its distance from the nearest measurement. --out F.h5 writes a raw file: report
    draws its times dashed, formulas dotted, and answers leave them out. With --against, measured
    times are compared with predicted ones, as by accept --ratios; ends with 3 if a file cannot be
    read. Ctrl-C prints what is complete, and ends with 130.
    """
    from hpccoll.cases.algorithm_files import with_files
    from hpccoll.common.quantities import TIMES
    from hpccoll.common.units import parse_parameter
    from hpccoll.model.machine_sections import PORTS
    from hpccoll.model.predict import PredictionPlan, Request
    from hpccoll.render import prediction_report
    from hpccoll.schedule import DTYPE
    from hpccoll.store.result_files import read_all

    _check_options(typed_flags, compares=bool(against), fits=bool(fit))
    if question not in (None, *QUESTIONS):
        raise BadInputError("--question", question, QUESTIONS)
    faster = None
    if rate is not None:
        faster = TIMES.read("--rate", rate)
    if fit:
        choices = {"--cluster": cluster, "--machine": machine, "--fit": fit}
        check_one_given("predict", choices)
        model = _fitted(fit, max_nodes, transport, library).with_network(faster)
    else:
        model = common.read_machine_or_cluster(machine, cluster, faster)
    if against:
        return show_ratios(read_all(against), model, "--against", as_json=as_json)
    collectives = collective.split(",")
    if out and len(collectives) > 1:
        raise UnusableError("--out", f"one collective, not {len(collectives)}; or --json for all")
    PORTS.check("--ports", ports)
    predictions = []
    for name in collectives:
        names, sizes = _names_and_sizes(algorithms, begin, end, factor, name)
        request = Request(
            nodes=common.parse_counts(nodes, "--nodes"),
            sizes=sizes,
            collective=name,
            algorithms=with_files(names),
            ranks_per_node=ranks_per_node,
            dtype=DTYPE.read("-d", dtype),
            aggregators=aggregators,
            mapping=mapping,
            nodes_per_rack=nodes_per_rack,
            torus=torus,
            ports=ports,
            parameters=dict(map(parse_parameter, param or ())),
        )
        _check_out(out, model, request)
        with progress_counter("predictions") as progress, interruptible(SIGINT, SIGTERM):
            plan = PredictionPlan.of(model, request, progress)
            for line in prediction_report.waiting_lines(plan):
                progress.say(f"hpccoll: {line}")
            predictions.append(plan.predict(progress))
        if predictions[-1].interrupted:
            break
    return _show(predictions, question, out, as_json=as_json)


def _check_options(typed_flags: Sequence[str], *, compares: bool, fits: bool) -> None:
    """Check that each option has an effect beside the others; else UnusableError."""
    for name in typed_flags:
        if compares and name not in WITH_AGAINST:
            raise UnusableError(name, "without --against, which compares the cases of the results")
        if name in WITH_FIT and not fits:
            raise UnusableError(name, "with --fit, from whose results it chooses")


def _fitted(
    paths: list[Path], max_nodes: int | None, transport: str | None, library: str | None
) -> "MachineFile":
    """Return the machine that is fitted to results, as the command fit does."""
    from hpccoll.model.run_model import model_of_machine, models_of
    from hpccoll.store.result_files import read_all

    files = read_all(paths)
    with progress_counter("predictions") as progress:
        models = models_of(files.raw_results, None, progress, max_nodes, transport, library)
    common.report_damaged(files)
    return model_of_machine(models, "--fit", paths[0]).machine_file()


PREDICT = Command(
    name="predict",
    run=predict,
    subcommands=partial(subcommands, "predict"),
    example="Example: hpccoll predict --cluster 8xh100-400g --nodes 2-512 -b 16M",
    options={
        common.WHERE: (
            common.MACHINE,
            common.CLUSTER,
            Option(
                ("--fit",),
                "results that the machine is fitted to, instead of --machine",
                metavar="PATH",
                kind="path-list",
            ),
            replace(common.MAX_NODES, help="with --fit, as in fit"),
            replace(common.TRANSPORT, help="with --fit, as in fit"),
            replace(common.FITTED_LIBRARY, help="with --fit, as in fit"),
            common.NODES,
            Option(
                ("--ranks-per-node",),
                "ranks on each node [the machine's]",
                metavar="N",
                kind="number",
            ),
            Option(
                ("--nodes-per-rack",),
                "nodes in a rack [the machine's]",
                metavar="N",
                kind="number",
            ),
            Option(
                ("--torus",),
                "shape of the nodes [as measured, or even]",
                metavar="4x4x4",
            ),
            Option(
                ("--ports",),
                "ports of each rank that send at once",
                1,
                metavar="N",
                kind="number",
            ),
            Option(
                ("--aggregators",),
                "aggregators [none; switches: as needed]",
                metavar="N",
                kind="number",
            ),
            Option(
                ("--mapping",), "rank order over racks and nodes: block, cyclic", metavar="NAME"
            ),
            Option(("--rate",), "factor of all rates of the network: x2", metavar="xN"),
        ),
        WHAT: (
            Option(("-c", "--collective"), "collectives", "all_reduce", metavar="NAME,.."),
            Option(
                ("-a", "--algorithms"),
                "algorithms, or all [usual ones]; NCCL's are added",
                metavar="A,..",
            ),
            Option(("-b", "--begin"), "smallest message size [1K]", metavar="SIZE"),
            Option(("-e", "--end"), "largest message size [1G; with -b that size]", metavar="SIZE"),
            Option(("-f", "--factor"), "ratio of one size to the one before", "4", metavar="N"),
            Option(("-d", "--dtype"), "element type", "float32", metavar="TYPE"),
            Option(
                ("--param",), "parameter of the algorithms: channels=4", metavar="K=V", kind="list"
            ),
        ),
        common.OUTPUT: (
            Option(
                ("--question",), "best: a line for each size and number of nodes", metavar="best"
            ),
            Option(
                ("--against",),
                "results to compare with predictions of the same cases",
                metavar="PATH",
                kind="path-list",
                must_exist=True,
            ),
            common.JSON_IN_SI,
            Option(
                ("--out",),
                "picture, or raw file for report",
                metavar="F.html|svg|png|h5",
                kind="path",
            ),
        ),
    },
)


def _show(
    predictions: "Sequence[Predictions]",
    question: str | None,
    out: Path | None,
    *,
    as_json: bool,
) -> int:
    """Show the predictions of each collective as lines, JSON or a file, and return the exit code."""
    from hpccoll.model.best_choice import question_rows
    from hpccoll.render import prediction_report

    first = predictions[0]
    out = out if first.predictions else None  # an interrupt may leave nothing to draw
    if out:
        _write(first, out)
    rows: list[object] = []
    lines: list[str] = []
    for predicted in predictions:
        if question:
            rows += question_rows(predicted)
            lines += prediction_report.question_lines(predicted)
        else:
            rows += predicted.predictions
            lines += prediction_report.prediction_lines(predicted)
    common.show_found(rows, lines, as_json=as_json)
    if as_json or question:
        for predicted in predictions:
            for line in prediction_report.left_out_lines(predicted.left_out):
                print(f"hpccoll: {line}", file=sys.stderr)
    elif out:
        print(f"{'raw file' if out.suffix == RAW_FILE else 'picture'}: {out}")
    return INTERRUPTED if predictions[-1].interrupted else 0


def _check_out(out: Path | None, machine: "MachineFile", request: "Request") -> None:
    from hpccoll.model.prediction_file import check_file

    if out is None:
        return
    common.check_suffix(out, *common.PICTURES, RAW_FILE)
    if out.suffix == RAW_FILE:
        check_file(out, machine, request)


def _write(predicted: "Predictions", out: Path) -> None:
    from hpccoll.common.text import join_words
    from hpccoll.model.best_choice import map_cells
    from hpccoll.model.prediction_file import raw_predictions
    from hpccoll.render.prediction_charts import write_prediction_chart
    from hpccoll.render.prediction_report import machine_lines
    from hpccoll.store.hdf5 import write_raw_file

    with writing(out):
        if out.suffix == RAW_FILE:
            write_raw_file(raw_predictions(predicted, out), out)
            return
        rows = [prediction.to_json() for prediction in predicted.predictions]
        title = f"{predicted.request.collective} on {predicted.machine.name}: {join_words(predicted.kinds)}"
        write_prediction_chart(
            rows,
            map_cells(predicted),
            out,
            title,
            machine_lines(predicted.machine, predicted.kinds),
        )


def _names_and_sizes(
    algorithms: str | None, begin: str | None, end: str | None, factor: str, collective: str
) -> tuple[list[str], list[int]]:
    """Return the requested algorithms, none for the usual ones, and the sizes; a barrier has one size."""
    from hpccoll.cases.algorithm_registry import collective as row
    from hpccoll.cases.keys import ALL
    from hpccoll.cli.run_options import given_or_usual
    from hpccoll.common.limits import FACTOR
    from hpccoll.common.units import sizes_between

    smallest = given_or_usual(begin, "1K")
    largest = given_or_usual(end, given_or_usual(begin, "1G"))
    sizes = sizes_between(smallest, largest, FACTOR.read("-f", factor))
    names = [] if algorithms is None else algorithms.split(",")
    return list(row(collective).components) if algorithms == ALL else names, sizes[
        : 1 if row(collective).token else None
    ]
