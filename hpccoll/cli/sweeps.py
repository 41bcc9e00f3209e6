"""Commands that measure: a sweep, its plan, a job of it, and the ranks."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from hpccoll.cli.common import INCOMPLETE, PROFILE, SITE
from hpccoll.cli.results import write_report
from hpccoll.errors import BadInputError

family = typer.Typer()


@family.command(
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
    from hpccoll.sweep import workflow
    from hpccoll.sweep.paths import default_sweep
    from hpccoll.sweep.plan_text import head
    from hpccoll.sweep.planner import check_output_directory, make_plan, write_plan
    from hpccoll.sweep.progress import MeasurementCounter, progress_display
    from hpccoll.sweep.slurm.monitor import SlurmMonitor

    if context.args and "--" not in sys.argv:
        raise BadInputError("sweep", shlex.join(context.args), "one sweep file; arguments of Snakemake come after --")
    config = config or default_sweep()
    out = out or Path("results") / config.stem
    plan = make_plan(config, profile, site, out)
    command = workflow.snakemake_command(config, profile, site, out, context.args)
    if {"-n", "--dry-run", "--dryrun"} & set(context.args):
        return subprocess.run(command, check=False).returncode
    with workflow.exclusive(out):
        check_output_directory(plan, out)
        every_s = 5.0 if profile == "testbed" else 30.0  # a controller of thousands of nodes has other things to do
        monitor = SlurmMonitor(out, every_s) if plan.launcher.slurm else None
        left = workflow.kill_orphans(out) + (monitor.cancel_and_wait("the next sweep ended it") if monitor else [])
        for what in left:
            typer.echo(f"ended what an earlier sweep left running: {what}", err=True)
        write_plan(plan, out)
        typer.echo("\n".join((*head(plan), f"$ {shlex.join(command)}")))
        tally = MeasurementCounter(plan, out)
        with progress_display(tally.total) as show:
            code = workflow.run_workflow(command, out, lambda: show(tally.count()), monitor)
            show(tally.count())
        if code:
            typer.echo(f"snakemake ended with {code}: see {out}/logs", err=True)
        try:
            return write_report([out], out / "report") or (INCOMPLETE if code else 0)
        except BadInputError as error:  # such as a full disk; what was measured is there, for 'hpccoll report'
            typer.echo(f"hpccoll: {error}", err=True)
            return INCOMPLETE


@family.command(epilog="Example: hpccoll plan workflows/config/default.yaml")
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
    """Show the jobs of a sweep file, and what is left out and why.

    With their environments, and the evidence that they will demand. Nothing is submitted. Without --profile a sweep
    over nodes, or one for a --site, is planned by its files alone, on any machine; with a profile of Slurm's the
    cluster is asked what it can give.
    """
    from hpccoll.sweep import plan_text
    from hpccoll.sweep.planner import check_output_directory, make_plan, write_plan

    made = make_plan(config, profile, site, out)
    if out:
        check_output_directory(made, out)
        write_plan(made, out)
    typer.echo(plan_text.as_json(made) if as_json else "\n".join(plan_text.lines(made)))


@family.command(epilog="Example: hpccoll launch results/my/plan.json mpi.p4 --out results/my/raw/mpi.p4.h5")
def launch(
    plan_file: Annotated[Path, typer.Argument(help="The plan of a sweep.", metavar="PLAN")],
    job: Annotated[str, typer.Argument(help="The name of one of its jobs.", metavar="JOB")],
    out: Annotated[Path, typer.Option(help="The raw file.", metavar="F.h5")],
) -> int:
    """Start the ranks of a job; the workflow calls this.

    Where the job runs: on Slurm that is inside the allocation.
    """
    from hpccoll.sweep.launch import launch as start

    return 0 if start(plan_file, job, out) else INCOMPLETE


@family.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(context: typer.Context) -> int:
    """Measure on the ranks of an MPI job.

    mpiexec -n 4 hpccoll run -a ring,native. See 'hpccoll run --help'.
    """
    from hpccoll.run import main as run_main

    return run_main(context.args)
