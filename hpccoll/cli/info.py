"""Commands that measure nothing: list, show, export-schedule, evidence and doctor."""

from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli.common import INCOMPLETE, progress_counter, show_found
from hpccoll.common.errors import BadInputError, writing

ALGORITHM = Annotated[str, typer.Argument(help="name of the algorithm; see hpccoll list", metavar="ALGORITHM")]
WORKERS = Annotated[int, typer.Option("-p", "--workers", help="number of workers")]
COLLECTIVE = Annotated[
    str | None, typer.Option("-c", "--collective", help="collective [the first one with this algorithm]")
]
RANKS_PER_NODE = Annotated[
    int | None, typer.Option(help="workers per node; the last node may have fewer [all on one node]")
]
RACKS = Annotated[int, typer.Option(help="number of racks, each with a block of nodes")]
AGGREGATORS = Annotated[int, typer.Option(help="number of aggregators, each on its own node")]
ROOT = Annotated[int | None, typer.Option("-r", "--root", help="root of a rooted collective")]

family = typer.Typer()


@family.command("list", epilog="Example: hpccoll list variants")
def list_(
    word: Annotated[
        str | None,
        typer.Argument(
            help="a kind (algorithms, parameters, transports, variants, workloads, models) or a name; or a reference: "
            "keys of the files sweep, site and machine; clusters; columns of raw files; variables; settings of NCCL",
            metavar="WORD",
        ),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output")] = False,
) -> None:
    """List algorithms, transports, variants and models.

    WORD selects some of them, or a reference. The list shows the collectives of algorithms, the settings and
    requirements of variants, and what is missing on this machine for each entry. --json also has the evidence that each
    variant requires.
    """
    from hpccoll.cases.listing import listing, listing_lines, select
    from hpccoll.cli.reference_tables import REFERENCES, reference_lines

    if word and word in REFERENCES:
        entries = [*REFERENCES[word]()]
        rows = [{"name": entry.name, "meaning": entry.meaning, **entry.details} for entry in entries]
        show_found(rows, reference_lines(entries), as_json=as_json)
    else:
        tables = select(listing(), word, REFERENCES) if word else listing()
        show_found(tables, listing_lines(tables), as_json=as_json)


@family.command(epilog="Example: hpccoll show ring -p 8 --out ring.svg")
def show(
    algorithm: ALGORITHM,
    workers: WORKERS,
    collective: COLLECTIVE = None,
    ranks_per_node: RANKS_PER_NODE = None,
    racks: RACKS = 1,
    aggregators: AGGREGATORS = 0,
    root: ROOT = None,
    param: Annotated[list[str] | None, typer.Option(help="parameter of the algorithm", metavar="K=V")] = None,
    unit: Annotated[int | None, typer.Option(help="unit that the table follows [the most informative one]")] = None,
    out: Annotated[Path | None, typer.Option(help="file of the drawing", metavar="F.svg|F.png")] = None,
) -> None:
    """Describe the schedule of an algorithm, and draw it.

    The text lists the rounds. The drawing shows the messages, their times, and the contents of the buffers.
    """
    from hpccoll.render.pictures.picture import draw
    from hpccoll.render.pictures.schedule_text import describe, round_and_buffer_lines
    from hpccoll.render.pictures.schedule_view import UnprovenScheduleError, view_of

    view = view_of(
        algorithm, collective, workers, ranks_per_node=ranks_per_node, racks=racks, aggregators=aggregators,
        root=root, parameters=param or (),
    )  # fmt: skip
    try:
        text = describe(view, unit)
    except UnprovenScheduleError:  # its rounds show where the fault is
        typer.echo("\n".join(round_and_buffer_lines(view, unit)))
        raise
    if out:
        draw(view, out, unit)
    typer.echo(text)


@family.command(epilog="Example: hpccoll export-schedule ring -p 16 -b 1M --format goal --out ring.goal")
def export_schedule(
    algorithm: ALGORITHM,
    workers: WORKERS,
    nbytes: Annotated[str, typer.Option("-b", "--bytes", help="message size, such as 64K, of float32 elements")],
    format_: Annotated[str, typer.Option("--format", help="goal: the text that LogGOPSim reads")] = "goal",
    collective: COLLECTIVE = None,
    ranks_per_node: RANKS_PER_NODE = None,
    racks: RACKS = 1,
    aggregators: AGGREGATORS = 0,
    root: ROOT = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help="parameter of the algorithm; channels [1]; window, the channels in flight", metavar="K=V"),
    ] = None,
    fold_cost: Annotated[
        float, typer.Option(help="time of a reduced byte, in the simulator's unit of time", metavar="TIME")
    ] = 0.0,
    out: Annotated[Path | None, typer.Option(help="file of the schedule [stdout]", metavar="F")] = None,
) -> None:
    """Write a schedule for another simulator.

    GOAL lists the messages of each rank and what each waits for. LogGOPSim gives all pairs of ranks the same costs,
    and takes integers: choose picoseconds for its parameters and for --fold-cost.
    """
    from hpccoll.cases.requested_schedule import requested_layout, requested_operation
    from hpccoll.common.limits import RANKS
    from hpccoll.common.units import parse_parameter, parse_size
    from hpccoll.interop.goal import MAX_FILE_BYTES, MAX_FOLD_COST, MAX_PRINTED_BYTES, goal_texts
    from hpccoll.store.durable_files import replacing_file

    if format_ != "goal":
        raise BadInputError("--format", format_, ["goal"])
    if not 0 <= fold_cost <= MAX_FOLD_COST:
        raise BadInputError("--fold-cost", fold_cost, f"a number from 0 to {MAX_FOLD_COST:g}")
    schedules, cut, window, words = requested_operation(
        algorithm, collective, requested_layout(workers, ranks_per_node, racks, aggregators, RANKS.maximum),
        parse_size(nbytes, "--bytes"), root=root, parameters=dict(map(parse_parameter, param or ())),
    )  # fmt: skip
    texts = goal_texts(
        schedules, cut, window=window, fold_cost=fold_cost, comment=words,
        max_bytes=MAX_PRINTED_BYTES if out is None else MAX_FILE_BYTES,
    )  # fmt: skip
    if out is None:
        for text in texts:
            typer.echo(text, nl=False)
        return
    ranks = schedules[0].layout.ranks
    with (
        writing(out),
        replacing_file(out.resolve()) as unfinished,
        unfinished.open("w", encoding="utf-8") as file,
        progress_counter("ranks") as show_progress,
    ):
        for written, text in enumerate(texts):
            file.write(text)
            show_progress(written, ranks)


@family.command(
    epilog="Example: hpccoll evidence logs --network rdma, of a run with NCCL_DEBUG=INFO NCCL_DEBUG_FILE=logs/%h.%p.log"
)
def evidence(
    logs: Annotated[list[Path], typer.Argument(help="logs, or directories with logs", metavar="LOGS...")],
    *,
    network: Annotated[str | None, typer.Option(help="expected network between nodes: rdma or tcp")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output")] = False,
) -> int:
    """Report what libraries executed, from their logs.

    Logs of NCCL, RCCL, UCC and SHARP are read. The report names the algorithm, the network and the reason of a
    fallback, separately for each launch. Dumps of NCCL's topology among the logs show whether each GPU has a NIC as
    near as its peers'. Ends with 3 if the logs name another network between nodes than --network, or if a library
    failed, such as at the creation of a communicator.
    """
    from hpccoll.evidence.log_set import read_log_files
    from hpccoll.render import log_report

    if network not in (None, "rdma", "tcp"):
        raise BadInputError("--network", network, ["rdma", "tcp"])
    log_set = read_log_files(logs)
    show_found(log_report.logs_json(log_set, network), log_report.log_lines(log_set, network), as_json=as_json)
    return INCOMPLETE if log_report.has_critical_findings(log_set, network) else 0


@family.command(epilog="Example: hpccoll doctor")
def doctor() -> int:
    """Check MPI, its launcher, Snakemake, Slurm, GPUs and RDMA.

    Each line is ok, none (not installed, with what to install), warn (usable with a restriction), or WRONG (a sweep
    cannot run before it is fixed). The last line names the profile to use. Ends with 1 if a line is WRONG.
    """
    from hpccoll.common.text import finding_line
    from hpccoll.sweep.doctor import examine

    fatal = False
    for finding in examine():
        fatal |= finding.severity == "critical"
        typer.echo(finding_line(finding))
    return int(fatal)
