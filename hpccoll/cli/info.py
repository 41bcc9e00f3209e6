"""Commands that measure nothing: list, show, evidence and doctor."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli.common import INCOMPLETE
from hpccoll.errors import BadInputError

family = typer.Typer()


@family.command("list", epilog="Example: hpccoll list --json | jq '.algorithms[].name'")
def list_(*, as_json: Annotated[bool, typer.Option("--json", help="JSON output")] = False) -> None:
    """List collectives, algorithms, transports and variants.

    Variants have their settings and requirements, and every entry what is missing for it on this machine. --json
    also has the evidence that each variant requires.
    """
    from hpccoll.spec.listing import listing, listing_lines

    tables = listing()
    typer.echo(json.dumps(tables, indent=1) if as_json else "\n".join(listing_lines(tables)))


@family.command(epilog="Example: hpccoll show ring -p 8 --out ring.svg")
def show(
    algorithm: Annotated[str, typer.Argument(help="name of the algorithm; see hpccoll list", metavar="ALGORITHM")],
    workers: Annotated[int, typer.Option("-p", "--workers", help="number of workers")],
    collective: Annotated[
        str | None, typer.Option("-c", "--collective", help="collective [the first one with this algorithm]")
    ] = None,
    ranks_per_node: Annotated[
        int | None, typer.Option(help="workers per node; the last node may have fewer [all on one node]")
    ] = None,
    racks: Annotated[int, typer.Option(help="number of racks, each with a block of nodes")] = 1,
    aggregators: Annotated[int, typer.Option(help="number of aggregators, each on its own node")] = 0,
    root: Annotated[int | None, typer.Option("-r", "--root", help="root of a rooted collective")] = None,
    param: Annotated[list[str] | None, typer.Option(help="parameter of the algorithm", metavar="K=V")] = None,
    unit: Annotated[int | None, typer.Option(help="unit that the table follows [the most informative one]")] = None,
    out: Annotated[Path | None, typer.Option(help="file of the drawing", metavar="F.svg|F.png")] = None,
) -> None:
    """Describe the schedule of an algorithm, and draw it.

    The text lists the rounds. The drawing shows the messages, their times, and the contents of the buffers.
    """
    from hpccoll.draw import describe, draw, view_of

    view = view_of(
        algorithm, collective, workers, ranks_per_node=ranks_per_node, racks=racks, aggregators=aggregators,
        root=root, parameters=param or (),
    )  # fmt: skip
    text = describe(view, unit)
    if out:
        draw(view, out, unit)
    typer.echo(text)


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

    Logs of NCCL, UCC and SHARP are read. The report names the algorithm, the network and the reason of a fallback,
    separately for each launch. Dumps of NCCL's topology among the logs show whether each GPU has a NIC as near as
    its peers'. Ends with 3 if the logs name another network between nodes than --network.
    """
    from hpccoll.evidence import log_report
    from hpccoll.evidence.log_set import read_log_files

    if network not in (None, "rdma", "tcp"):
        raise BadInputError("--network", network, ["rdma", "tcp"])
    log_set = read_log_files(logs)
    lines = log_report.report_lines(log_set, network)
    typer.echo(log_report.to_json(log_set, network) if as_json else "\n".join(lines))
    return INCOMPLETE if log_report.network_mismatches(log_set, network) else 0


@family.command(epilog="Example: hpccoll doctor")
def doctor() -> int:
    """Check MPI, its launcher, Snakemake, Slurm, GPUs and RDMA.

    Each line is ok, none (not installed, with what to install), warn (usable with a restriction), or WRONG (a sweep
    cannot run before it is fixed). The last line names the profile to use. Ends with 1 if a line is WRONG.
    """
    from hpccoll.sweep.doctor import examine

    fatal = False
    for finding in examine():
        fatal |= finding.fatal
        typer.echo(str(finding))
    return int(fatal)
