"""The command line: one short function for each command. Ranks never import this."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from hpccoll import __version__
from hpccoll.errors import BadInputError

app = typer.Typer(
    name="hpccoll",
    help="How fast a cluster's collectives are, why, and what to do about it.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

PATHS = Annotated[list[Path], typer.Argument(help="Raw files, or directories that hold some.", metavar="PATHS...")]
PROFILE = Annotated[str, typer.Option(help="Where to run: local, slurm, slurm-nodbd or testbed; see hpccoll doctor.")]
SITE = Annotated[
    str | None,
    typer.Option(help="How jobs run on the cluster: a site file, or one of slurm/sites [all left to Slurm]"),
]
INCOMPLETE = 3
"""The exit code of what ran, where something planned is missing or wrong, or nothing could be measured."""


@app.callback(invoke_without_command=True)
def hpccoll(
    context: typer.Context, *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog="Example: hpccoll sweep workflows/config/default.yaml --out results/tuesday -- --cores 1",
    context_settings={"allow_extra_args": True},
)
def sweep(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Argument(help="The sweep file [a small one, about a minute].", metavar="[CONFIG]")
    ] = None,
    profile: PROFILE = "local",
    site: SITE = None,
    out: Annotated[Path | None, typer.Option(help="Where results go [results/NAME, NAME of the sweep file].")] = None,
) -> int:
    """Measure what a sweep file names, and report. What is measured is not measured again.

    Arguments after -- are Snakemake's: -- -n shows what it would do.
    """
    from hpccoll.sweep import drive
    from hpccoll.sweep.follow import Follower
    from hpccoll.sweep.locate import default_sweep
    from hpccoll.sweep.plan import check_out, make_plan, write_plan
    from hpccoll.sweep.progress import Tally, shown
    from hpccoll.sweep.tell import head

    if context.args and "--" not in sys.argv:
        raise BadInputError("sweep", shlex.join(context.args), "one sweep file; arguments of Snakemake come after --")
    config = config or default_sweep()
    out = out or Path("results") / config.stem
    plan = make_plan(config, profile, site, out)
    command = drive.snakemake_command(config, profile, site, out, context.args)
    if {"-n", "--dry-run", "--dryrun"} & set(context.args):
        return subprocess.run(command, check=False).returncode
    with drive.alone(out):
        check_out(plan, out)
        every_s = 5.0 if profile == "testbed" else 30.0  # a controller of thousands of nodes has other things to do
        follower = Follower(out, every_s) if plan.launcher.slurm else None
        left = drive.end_leftovers(out) + (follower.end_all("the next sweep ended it") if follower else [])
        for what in left:
            typer.echo(f"ended what an earlier sweep left running: {what}", err=True)
        write_plan(plan, out)
        typer.echo("\n".join((*head(plan), f"$ {shlex.join(command)}")))
        tally = Tally(plan, out)
        with shown(tally.total) as show:
            code = drive.drive(command, out, lambda: show(tally.done()), follower)
            show(tally.done())
        if code:
            typer.echo(f"snakemake ended with {code}: see {out}/logs", err=True)
        try:
            return _report([out], out / "report") or (INCOMPLETE if code else 0)
        except BadInputError as error:  # such as a full disk; what was measured is there, for 'hpccoll report'
            typer.echo(f"hpccoll: {error}", err=True)
            return INCOMPLETE


@app.command(epilog="Example: hpccoll plan workflows/config/default.yaml")
def plan(
    config: Annotated[Path, typer.Argument(help="The sweep file.", metavar="CONFIG")],
    profile: Annotated[
        str | None,
        typer.Option(help="Where it is to run: local, slurm, slurm-nodbd or testbed [for a cluster: on paper]."),
    ] = None,
    site: SITE = None,
    out: Annotated[Path | None, typer.Option(help="Write plan.json and the job files there.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Show the jobs of a sweep file, their environments, the evidence that they will demand, and what is skipped.

    Nothing is submitted. Without --profile a sweep over nodes, or one for a --site, is planned by its files alone, on
    any machine; with a profile of Slurm's the cluster is asked what it can give.
    """
    from hpccoll.sweep import tell
    from hpccoll.sweep.plan import check_out, make_plan, write_plan

    made = make_plan(config, profile, site, out)
    if out:
        check_out(made, out)
        write_plan(made, out)
    typer.echo(tell.as_json(made) if as_json else "\n".join(tell.lines(made)))


@app.command(epilog="Example: hpccoll launch results/my/plan.json mpi.p4 --out results/my/raw/mpi.p4.h5")
def launch(
    plan_file: Annotated[Path, typer.Argument(help="The plan of a sweep.", metavar="PLAN")],
    job: Annotated[str, typer.Argument(help="The name of one of its jobs.", metavar="JOB")],
    out: Annotated[Path, typer.Option(help="The raw file.", metavar="F.h5")],
) -> int:
    """Start the ranks of a job, where it runs; the workflow calls this.

    On Slurm that is inside the allocation.
    """
    from hpccoll.sweep.launch import launch as start

    return 0 if start(plan_file, job, out) else INCOMPLETE


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context) -> int:
    """Measure on the ranks of an MPI job.

    mpiexec -n 4 hpccoll run -a ring,native. See 'hpccoll run --help'.
    """
    from hpccoll.run import main as run_main

    return run_main(context.args)


@app.command(epilog="Example: hpccoll report results/default")
def report(
    paths: PATHS,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the report goes [DIR/report, or FILE.report beside FILE.h5, of the first of PATHS]."),
    ] = None,
) -> int:
    """Write a report of raw files.

    Curves, tables, what is missing, provenance: one HTML file that opens offline.
    """
    from hpccoll.report.place import default_place, others

    place = out or default_place(paths)
    lost = others(paths, place)
    if lost and out is None:
        raise BadInputError("--out", str(place), f"a place of its own for this one: there is the report of {lost}")
    where = "" if out or paths[0].is_dir() else "; --out DIR puts it elsewhere"
    return _report(paths, place, f"{where}, in place of that of {lost}" if lost else where)


def _report(paths: list[Path], out: Path, note: str = "") -> int:
    from hpccoll.report.build import build
    from hpccoll.report.lines import outcome_lines
    from hpccoll.report.place import stem
    from hpccoll.store.results import read_results

    results = read_results(paths)
    try:
        page = build(results, out, title=stem(paths[0]), paths=paths)
    except OSError as error:
        raise BadInputError("--out", str(out), f"a directory that can be written ({error.strerror})") from None
    for line in outcome_lines(results):
        typer.echo(line)
    typer.echo(f"report: {page}{note}")
    return 0 if results.measured and not results.missing else INCOMPLETE


@app.command(epilog="Example: hpccoll export results/default --format csv > default.csv")
def export(
    paths: PATHS,
    format_: Annotated[str, typer.Option("--format", help="json, csv or nccl-tests.")] = "json",
    timing: Annotated[str, typer.Option(help="The time of an operation: max or span.")] = "max",
) -> None:
    """Print the rows, one a case and attempt, in SI units."""
    from hpccoll.report.export import export as write
    from hpccoll.store.results import read_results

    if timing not in ("max", "span"):
        raise BadInputError("--timing", timing, ("max", "span"))
    typer.echo(write(read_results(paths, timing), format_))


@app.command(epilog="Example: hpccoll tune results/default --out table.json")
def tune(
    paths: PATHS,
    out: Annotated[Path | None, typer.Option(help="Write the table there.", metavar="TABLE.json")] = None,
    judge: Annotated[
        Path | None, typer.Option(help="Say what this table loses in PATHS, over the best there.", metavar="TABLE.json")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="With --judge: print JSON.")] = False,
) -> None:
    """Make a table of what to choose for which size, for the algorithm auto.

    Or judge one by other results.
    """
    from hpccoll.choices.table import TuneTable, load_table
    from hpccoll.store.results import read_results
    from hpccoll.tune.judge import judge as judged
    from hpccoll.tune.make import make, write

    if (out is None) == (judge is None):
        asked = "neither --out nor --judge" if out is None else "--out and --judge"
        raise BadInputError("hpccoll tune", asked, "either --out or --judge, with a table's file")
    if as_json and out:
        raise BadInputError("--json", str(out), "left out with --out: a table is JSON itself")
    results = read_results(paths)
    if judge:
        judgement = judged(TuneTable.from_json(load_table(judge, "--judge")), results)
        typer.echo(json.dumps(judgement.to_json(), indent=1) if as_json else "\n".join(judgement.lines()))
    elif out:
        typer.echo("\n".join(write(make(results), out)))


@app.command(epilog="Example: hpccoll model results/model")
def model(
    paths: PATHS, *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in SI units.")] = False
) -> None:
    """Fit alpha, beta and gamma to a run, and confront what they predict with what it measured.

    From its ping-pongs, for every algorithm that declares a cost; with the sizes from which one overtakes another.
    """
    import hpccoll.measure.catalogue  # noqa: F401  fills the registry
    from hpccoll.model import tell

    models = tell.modelled(paths)
    if as_json:
        typer.echo(json.dumps([tell.as_json(each) for each in models], indent=1))
        return
    for each in models:
        for line in tell.lines(each):
            typer.echo(line)


@app.command(epilog="Example: hpccoll validate results/default")
def validate(paths: PATHS) -> int:
    """See that raw files are whole, and say what they hold."""
    from hpccoll.store.results import absent_files, find, read_raw

    found = find(paths)
    if not found:
        raise BadInputError("path", ", ".join(map(str, paths)), "raw files (*.h5) or a directory that holds some")
    partial = 0
    for path in found:
        raw = read_raw(path)
        partial += not raw.complete
        state = "complete" if raw.complete else "partial"
        cases = f"{len(raw.done)} of {len(raw.job.cases)} cases"
        if in_part := len(raw.in_part):
            cases += f" and {in_part} in part"
        typer.echo(f"{path}: {state}, {cases}, {len(raw.attempts)} attempts")
    absent = sorted(absent_files(paths))
    for path in absent:
        typer.echo(f"{path}: planned, and not there")
    return INCOMPLETE if partial or absent else 0


@app.command(epilog="Example: hpccoll status results/default")
def status(directory: Annotated[Path, typer.Argument(help="The results of a sweep.")]) -> int:
    """Show how many cases are done, and why others are not."""
    from hpccoll.report.lines import status_lines
    from hpccoll.store.results import read_results
    from hpccoll.store.scheduler import read_scheduled
    from hpccoll.sweep.drive import at_work
    from hpccoll.sweep.follow import Follower
    from hpccoll.sweep.queue import ALIVE

    busy = at_work(directory)
    if not busy and any(job.state in ALIVE for job in read_scheduled(directory)):
        Follower(directory).look_now()  # the sweep that looked last is gone
    results = read_results([directory])
    typer.echo("a sweep is at work" if busy else "no sweep is at work")
    for line in status_lines(results, directory):
        typer.echo(line)
    return 0 if results.measured and not results.missing else INCOMPLETE


@app.command("list", epilog="Example: hpccoll list --json | jq '.algorithms[].name'")
def list_(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List collectives, algorithms, transports and variants.

    With what variants set and where they make sense, and what is missing here; --json has what they must show, too.
    """
    from hpccoll.measure.listing import lines, listing

    found = listing()
    typer.echo(json.dumps(found, indent=1) if as_json else "\n".join(lines(found)))


@app.command(epilog="Example: hpccoll show ring -p 8 --out ring.svg")
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
    import hpccoll.measure.catalogue  # noqa: F401  fills the registry
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


@app.command(
    epilog="Example: hpccoll evidence logs --network rdma, of a run with NCCL_DEBUG=INFO NCCL_DEBUG_FILE=logs/%h.%p.log"
)
def evidence(
    logs: Annotated[list[Path], typer.Argument(help="Logs, or directories of some.", metavar="LOGS...")],
    *,
    network: Annotated[str | None, typer.Option(help="What was expected between nodes: rdma or tcp.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say what logs of NCCL, UCC and SHARP prove: what ran, over what, and why not what was asked for.

    Logs of several launches are told apart. Also of dumps of NCCL's topology beside them: whether each GPU has a NIC as
    near as its peers'. Ends with 3 where nodes did not talk by the network that was expected.
    """
    from hpccoll.evidence import tell

    if network not in (None, "rdma", "tcp"):
        raise BadInputError("--network", network, ["rdma", "tcp"])
    read = tell.read_files(logs)
    typer.echo(tell.to_json(read, network) if as_json else "\n".join(tell.lines(read, network)))
    return INCOMPLETE if tell.alarms(read, network) else 0


@app.command(epilog="Example: hpccoll doctor")
def doctor() -> int:
    """Look at MPI, its launcher, this machine, Snakemake, Slurm, GPUs and RDMA.

    Say what is there (ok), what is not and what to install (none), what is of less use than it could be (warn), what
    has to be mended before a sweep can run (WRONG), and which profile fits. Ends with 1 where something is WRONG.
    """
    from hpccoll.sweep.doctor import examine

    fatal = False
    for finding in examine():
        fatal |= finding.fatal
        typer.echo(str(finding))
    return int(fatal)


def main() -> int:
    """Run the command line and return its exit code; what is wrong with the input takes one line."""
    try:
        return int(app(standalone_mode=False) or 0)
    except BadInputError as error:
        typer.echo(f"hpccoll: {error}", err=True)
        return 2
    except typer.TyperException as error:
        typer.echo(f"hpccoll: {' '.join(error.format_message().split())} See 'hpccoll --help'.", err=True)
        return error.exit_code
    except typer.Abort:
        return 1
