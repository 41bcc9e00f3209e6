"""Commands that measure: sweep, plan, launch, and those that ranks run."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpccoll.cli.common import INCOMPLETE, PROFILE, SITE, show_found
from hpccoll.cli.diagnosing import DIAGNOSE_SUMMARY
from hpccoll.cli.diagnosing import main as run_diagnosis
from hpccoll.cli.job_program import main as run_job
from hpccoll.cli.results import write_report
from hpccoll.cli.run_options import RUN_SUMMARY
from hpccoll.common.errors import BadInputError, to_one_line
from hpccoll.common.extensions import contributed, contributed_names
from hpccoll.common.interruption import INTERRUPTED

if TYPE_CHECKING:
    from hpccoll.cases.plan import Plan
    from hpccoll.cli.extension_commands import JobCommand

family = typer.Typer()


@family.command(
    epilog="Example: hpccoll sweep my.yaml --out results/tuesday -- --cores 1",
    context_settings={"allow_extra_args": True},
)
def sweep(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Argument(help="sweep file [a small sweep of about a minute]", metavar="[CONFIG]")
    ] = None,
    profile: PROFILE = "local",
    site: SITE = None,
    out: Annotated[
        Path | None, typer.Option(help="directory of the results [results/NAME of the sweep file]", metavar="DIR")
    ] = None,
) -> int:
    """Measure the cases of a sweep file, and write a report.

    Cases with results are not measured again. Arguments after -- are passed to Snakemake; -- -n is a dry run.
    """
    from hpccoll.render.plan_text import plan_summary
    from hpccoll.sweep import workflow
    from hpccoll.sweep.paths import default_sweep
    from hpccoll.sweep.planner import check_output_directory, make_plan, write_plan
    from hpccoll.sweep.progress import MeasurementCounter, progress_display
    from hpccoll.sweep.slurm.job_supervisor import SlurmMonitor

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
        every_s = 5.0 if profile == "testbed" else 30.0  # spare the controller of a large cluster
        monitor = SlurmMonitor(out, every_s) if plan.launcher.slurm else None
        orphans = workflow.kill_orphans(out) + (monitor.cancel_and_wait("the next sweep ended it") if monitor else [])
        for orphan in orphans:
            typer.echo(f"ended an orphan of an earlier sweep: {orphan}", err=True)
        write_plan(plan, out)
        typer.echo("\n".join((*plan_summary(plan), f"$ {shlex.join(command)}")))
        counter = MeasurementCounter(plan, out)
        with progress_display(counter.total, slurm=plan.launcher.slurm) as show:
            code = workflow.run_workflow(command, out, lambda: show(counter.count()), monitor)
            show(counter.count())
        if code not in (0, INTERRUPTED):
            last_line = to_one_line(workflow.last_log_line(out))
            typer.echo(f"snakemake ended with {code} ({last_line}): see {out}/logs/snakemake.log", err=True)
        slow = plan.diagnose is not None and print_diagnoses(plan, out)
        typer.echo("writing the report", err=True)
        try:
            return write_report([out], out / "report") or (INCOMPLETE if code or slow else 0)
        except BadInputError as error:  # such as a full disk; the results remain for 'hpccoll report'
            typer.echo(f"hpccoll: {error}", err=True)
            return INCOMPLETE


def print_diagnoses(plan: "Plan", out: Path) -> int:
    """Print the verdict of the newest diagnosis of each job, and return the worst exit code of ``hpccoll diagnose``."""
    from hpccoll.cases.plan import diagnosis_seconds
    from hpccoll.cli.diagnosing import print_recorded
    from hpccoll.diagnosis.diagnosis_file import diagnosis_of_job

    codes = []
    for job in (each for each in plan.jobs if diagnosis_seconds(each, plan.diagnose)):
        pattern = diagnosis_of_job(out / "raw", job.name, "*")
        typer.echo(f"diagnosis of {job.name}:")
        try:
            newest = max(pattern.parent.glob(pattern.name), key=lambda path: path.stat().st_mtime)
            codes.append(print_recorded([newest], None, as_json=False))
        except ValueError as error:  # there is none, or it cannot be read
            reason = f"hpccoll: {error}" if isinstance(error, BadInputError) else f"none: {out}/logs has its output"
            typer.echo(reason, err=True)
            codes.append(INCOMPLETE)
    return max(codes, default=0)


@family.command(epilog="Example: hpccoll plan workflows/config/default.yaml")
def plan(
    config: Annotated[Path, typer.Argument(help="sweep file", metavar="CONFIG")],
    profile: Annotated[
        str | None,
        typer.Option(help="local, slurm, slurm-nodbd or testbed [for a cluster: offline]", metavar="NAME"),
    ] = None,
    site: SITE = None,
    out: Annotated[Path | None, typer.Option(help="directory for plan.json and the job files", metavar="DIR")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="JSON output")] = False,
) -> None:
    """Show the jobs of a sweep file and the skipped cases.

    Each job is shown with its environment and the evidence that it requires. Nothing is submitted. Without --profile, a
    sweep over nodes or for a --site is planned offline, on any machine; with a Slurm profile the cluster is queried.
    """
    from hpccoll.render.plan_text import plan_json, plan_lines
    from hpccoll.sweep.planner import check_output_directory, make_plan, write_plan

    made = make_plan(config, profile, site, out)
    if out:
        check_output_directory(made, out)
        write_plan(made, out)
    record = plan_json(made) if as_json else None
    show_found(record, plan_lines(made), as_json=as_json)


@family.command(hidden=True, epilog="Example: hpccoll launch results/my/plan.json mpi.p4 --out mpi.p4.h5")
def launch(
    plan_file: Annotated[Path, typer.Argument(help="plan.json of a sweep", metavar="PLAN")],
    job: Annotated[str, typer.Argument(help="name of one of its jobs", metavar="JOB")],
    out: Annotated[Path, typer.Option(help="raw file", metavar="F.h5")],
) -> int:
    """Start the ranks of a job, for the workflow.

    On Slurm it runs inside the allocation.
    """
    from hpccoll.sweep.launch import launch as start

    return 0 if start(plan_file, job, out) else INCOMPLETE


# Of these three only the help of all commands knows: __main__ starts ranks without the other commands.
RANKS: Any = {"add_help_option": False, "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True}}


@family.command(help=RUN_SUMMARY, **RANKS)
def run(context: typer.Context) -> int:
    return run_job(context.args)


def _add_job_command(name: str) -> None:
    """Add a command of an extension that ranks run."""
    command: JobCommand = contributed("job_commands", name)

    def start(context: typer.Context) -> int:
        return run_job(context.args, command)

    family.command(name, help=command.summary, **RANKS)(start)


for name in contributed_names("job_commands"):
    _add_job_command(name)


@family.command(help=DIAGNOSE_SUMMARY, **RANKS)
def diagnose(context: typer.Context) -> int:
    return run_diagnosis(context.args)
