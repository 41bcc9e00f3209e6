"""Commands that measure nothing: what there is to measure with, what algorithms do, what logs say, what is here."""

import json
from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli.common import INCOMPLETE
from hpccoll.errors import BadInputError

family = typer.Typer()


@family.command("list", epilog="Example: hpccoll list --json | jq '.algorithms[].name'")
def list_(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List collectives, algorithms, transports and variants.

    With what variants set and where they make sense, and what is missing here; --json has what they must show, too.
    """
    from hpccoll.spec.listing import listing, listing_lines

    found = listing()
    typer.echo(json.dumps(found, indent=1) if as_json else "\n".join(listing_lines(found)))


@family.command(epilog="Example: hpccoll show ring -p 8 --out ring.svg")
def show(
    algorithm: Annotated[str, typer.Argument(help="Its name; see hpccoll list.", metavar="ALGORITHM")],
    workers: Annotated[int, typer.Option("-p", "--workers", help="The number of workers.")],
    collective: Annotated[
        str | None, typer.Option("-c", "--collective", help="Whose algorithm it is [the first that has it].")
    ] = None,
    ranks_per_node: Annotated[
        int | None, typer.Option(help="Workers on a node; the last may have fewer [all on one node].")
    ] = None,
    racks: Annotated[int, typer.Option(help="Racks that the nodes are dealt to, in blocks.")] = 1,
    aggregators: Annotated[int, typer.Option(help="Ranks that aggregate, each on a node of its own.")] = 0,
    root: Annotated[int | None, typer.Option("-r", "--root", help="The root, where the collective has one.")] = None,
    param: Annotated[list[str] | None, typer.Option(help="A parameter of the algorithm.", metavar="K=V")] = None,
    unit: Annotated[int | None, typer.Option(help="Whose way the table follows [chosen to say most].")] = None,
    out: Annotated[Path | None, typer.Option(help="Draw it there.", metavar="F.svg|F.png")] = None,
) -> int:
    """Say what an algorithm does, round by round, and draw it.

    Who talks to whom, what happens when, and who holds what.
    """
    import hpccoll.spec.catalogue  # noqa: F401  fills the registry
    from hpccoll.draw import ask, describe, draw

    subject = ask(
        algorithm, collective, workers, ranks_per_node=ranks_per_node, racks=racks, aggregators=aggregators,
        root=root, parameters=param or (),
    )  # fmt: skip
    words = describe(subject, unit)
    if out:
        draw(subject, out, unit)
    typer.echo(words)
    return INCOMPLETE if subject.fault() else 0


@family.command(
    epilog="Example: hpccoll evidence logs --network rdma, of a run with NCCL_DEBUG=INFO NCCL_DEBUG_FILE=logs/%h.%p.log"
)
def evidence(
    logs: Annotated[list[Path], typer.Argument(help="Logs, or directories of some.", metavar="LOGS...")],
    *,
    network: Annotated[str | None, typer.Option(help="What was expected between nodes: rdma or tcp.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say what ran, by logs of NCCL, UCC and SHARP.

    Over which network, and why not what was asked for. Logs of several launches are told apart. Also of dumps of NCCL's
    topology beside them: whether each GPU has a NIC as near as its peers'. Ends with 3 where lines name another network
    between nodes than was expected.
    """
    from hpccoll.evidence import report
    from hpccoll.evidence.log_set import read_log_files

    if network not in (None, "rdma", "tcp"):
        raise BadInputError("--network", network, ["rdma", "tcp"])
    log_set = read_log_files(logs)
    lines = report.report_lines(log_set, network)
    typer.echo(report.to_json(log_set, network) if as_json else "\n".join(lines))
    return INCOMPLETE if report.network_mismatches(log_set, network) else 0


@family.command(epilog="Example: hpccoll doctor")
def doctor() -> int:
    """Look at MPI, its launcher, Snakemake, Slurm, GPUs and RDMA.

    Say what is there (ok), what is not and what to install (none), what is of less use than it could be (warn), what
    has to be mended before a sweep can run (WRONG), and which profile fits. Ends with 1 where something is WRONG.
    """
    from hpccoll.sweep.doctor import examine

    fatal = False
    for finding in examine():
        fatal |= finding.fatal
        typer.echo(str(finding))
    return int(fatal)
