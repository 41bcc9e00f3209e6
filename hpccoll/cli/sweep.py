"""Commands that measure: sweep, plan, launch, and those that ranks run."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpccoll.cli.command import Command
from hpccoll.cli.common import INCOMPLETE, JSON, PROFILE, SITE, show_found
from hpccoll.cli.diagnose import DIAGNOSE_SUMMARY
from hpccoll.cli.diagnose import main as run_diagnosis
from hpccoll.cli.extension_commands import WordsCommand
from hpccoll.cli.job_program import main as run_job
from hpccoll.cli.option_parser import OPTIONS
from hpccoll.cli.order import ORDER_SUMMARY
from hpccoll.cli.order import main as run_order
from hpccoll.cli.report import write_report
from hpccoll.cli.run_options import RUN_SUMMARY
from hpccoll.common.errors import BadInputError, UnusableError, to_one_line
from hpccoll.common.interruption import INTERRUPTED
from hpccoll.common.options import Option, PositionalArgument

if TYPE_CHECKING:
    from hpccoll.cases.plan import Plan


def sweep(
    rest: Sequence[str],
    config: Path | None = None,
    profile: str = "local",
    site: str | None = None,
    out: Path | None = None,
) -> int:
    """Measure the cases of a sweep file, and write a report.

    Cases with results are not measured again. Arguments after -- are passed to Snakemake; -- -n is
    a dry run.
    """
    from hpccoll.render.plan_text import plan_summary
    from hpccoll.sweep import workflow
    from hpccoll.sweep.paths import default_sweep
    from hpccoll.sweep.planner import check_output_directory, make_plan, write_plan
    from hpccoll.sweep.progress import MeasurementCounter, progress_display
    from hpccoll.sweep.slurm.job_supervisor import SlurmMonitor

    config = config or default_sweep()
    out = out or Path("results") / config.stem
    plan = make_plan(config, profile, site, out)
    command = workflow.snakemake_command(config, profile, site, out, rest)
    if {"-n", "--dry-run", "--dryrun"} & set(rest):
        return subprocess.run(command, check=False).returncode
    with workflow.exclusive(out):
        check_output_directory(plan, out)
        every_s = 5.0 if profile == "testbed" else 30.0  # spare the controller of a large cluster
        monitor = None
        if plan.launcher.slurm:
            monitor = SlurmMonitor(out, every_s)
        orphans = workflow.kill_orphans(out) + (
            monitor.cancel_and_wait("the next sweep ended it") if monitor else []
        )
        for orphan in orphans:
            print(f"ended an orphan of an earlier sweep: {orphan}", file=sys.stderr)
        write_plan(plan, out)
        print("\n".join((*plan_summary(plan), f"$ {shlex.join(command)}")))
        counter = MeasurementCounter(plan, out)
        with progress_display(counter.total, slurm=plan.launcher.slurm) as show:
            code = workflow.run_workflow(command, out, lambda: show(counter.count()), monitor)
            show(counter.count())
        if code not in (0, INTERRUPTED):
            last_line = to_one_line(workflow.last_log_line(out))
            print(
                f"snakemake ended with {code} ({last_line}): see {out}/logs/snakemake.log",
                file=sys.stderr,
            )
        slow = plan.diagnose is not None and print_diagnoses(plan, out)
        print("writing the report", file=sys.stderr)
        try:
            return write_report([out], out / "report") or (INCOMPLETE if code or slow else 0)
        # such as a full disk; the results remain for 'hpccoll report'
        except BadInputError as error:
            print(f"hpccoll: {error}", file=sys.stderr)
            return INCOMPLETE


SWEEP = Command(
    name="sweep",
    run=sweep,
    example="Example: hpccoll sweep my.yaml --out results/tuesday -- --cores 1",
    arguments=(
        PositionalArgument(
            "config",
            "sweep file [a small sweep of about a minute]",
            "[CONFIG]",
            kind="path",
            must_exist=True,
        ),
    ),
    options={
        OPTIONS: (
            PROFILE,
            SITE,
            Option(
                ("--out",),
                "directory of the results [results/NAME of the sweep file]",
                metavar="DIR",
                kind="path",
            ),
        )
    },
)


def print_diagnoses(plan: "Plan", out: Path) -> int:
    """Print the verdict of the newest diagnosis of each job, and return the worst exit code of ``hpccoll diagnose``."""
    from hpccoll.cases.plan import diagnosis_seconds
    from hpccoll.cli.diagnose import print_recorded
    from hpccoll.diagnosis.diagnosis_file import diagnosis_of_job

    codes = []
    for job in (planned for planned in plan.jobs if diagnosis_seconds(planned, plan.diagnose)):
        pattern = diagnosis_of_job(out / "raw", job.name, "*")
        print(f"diagnosis of {job.name}:")
        try:
            newest = max(pattern.parent.glob(pattern.name), key=lambda path: path.stat().st_mtime)
            codes.append(print_recorded([newest], None, as_json=False))
        except ValueError as error:  # there is none, or it cannot be read
            if isinstance(error, BadInputError):
                reason = f"hpccoll: {error}"
            else:
                reason = f"none: {out}/logs has its output"
            print(reason, file=sys.stderr)
            codes.append(INCOMPLETE)
    return max(codes, default=0)


def plan(
    config: Path,
    profile: str | None = None,
    site: str | None = None,
    out: Path | None = None,
    *,
    as_json: bool = False,
    manifest_format: str | None = None,
) -> None:
    """Show the jobs of a sweep file and the skipped cases.

    Each job is shown with its environment and the evidence that it requires. Nothing is submitted.
    Without --profile, a sweep over nodes or for a --site is planned offline, on any machine; with a
    Slurm profile the cluster is queried. --format prints manifests for Kubernetes instead, for a
    site file with the key kubernetes.
    """
    from hpccoll.render.plan_text import plan_json, plan_lines
    from hpccoll.sweep.planner import check_output_directory, make_plan, write_plan

    if manifest_format is not None:
        _check_manifest_options(manifest_format, profile, site, as_json=as_json)
    made = make_plan(config, profile, site, out)
    if out:
        check_output_directory(made, out)
        write_plan(made, out)
    if manifest_format is not None:
        from hpccoll.sweep.kubernetes.manifests import manifest_text
        from hpccoll.sweep.site_file import load_site

        print(manifest_text(made, load_site(site, "slurm"), manifest_format), end="")
        return
    record = plan_json(made) if as_json else None
    show_found(record, plan_lines(made), as_json=as_json)


MANIFEST_FORMATS = ("mpijob", "trainjob")
"""The values of ``plan --format``: MPIJob of the MPI Operator, TrainJob of Kubeflow Trainer."""


def _check_manifest_options(
    manifest_format: str, profile: str | None, site: str | None, *, as_json: bool
) -> None:
    """Check what is given with --format.

    Raises:
        BadInputError: if the format is unknown, or does not go with another option.
    """
    if manifest_format not in MANIFEST_FORMATS:
        raise BadInputError("--format", manifest_format, MANIFEST_FORMATS)
    if site is None:
        raise UnusableError("--format", "needs --site F.yaml, a site file with the key kubernetes")
    if profile is not None:
        raise BadInputError("--profile", profile, "left out beside --format")
    if as_json:
        raise UnusableError("--json", "left out beside --format, which prints YAML")


PLAN = Command(
    name="plan",
    run=plan,
    example="Example: hpccoll plan workflows/config/default.yaml",
    arguments=(PositionalArgument("config", "sweep file", "CONFIG", kind="path", must_exist=True),),
    options={
        OPTIONS: (
            Option(
                ("--profile",),
                "local, slurm, slurm-nodbd or testbed [for a cluster: offline]",
                metavar="NAME",
            ),
            SITE,
            Option(
                ("--out",), "directory for plan.json and the job files", metavar="DIR", kind="path"
            ),
            Option(
                ("--format",),
                "manifests for Kubernetes instead: mpijob or trainjob",
                metavar="NAME",
                name="manifest_format",
            ),
            JSON,
        )
    },
)


def launch(plan_file: Path, job: str, out: Path) -> int:
    """Start the ranks of a job, for the workflow.

    On Slurm it runs inside the allocation.
    """
    from hpccoll.sweep.launch import launch as start

    if start(plan_file, job, out):
        return 0
    return INCOMPLETE


LAUNCH = Command(
    name="launch",
    run=launch,
    example="Example: hpccoll launch results/my/plan.json mpi.p4 --out mpi.p4.h5",
    arguments=(
        PositionalArgument("plan_file", "plan.json of a sweep", "PLAN", kind="path"),
        PositionalArgument("job", "name of one of its jobs", "JOB"),
    ),
    options={
        OPTIONS: (Option(("--out",), "raw file", metavar="F.h5", kind="path", required=True),)
    },
)


RUN = WordsCommand(RUN_SUMMARY, run_job)
DIAGNOSE = WordsCommand(DIAGNOSE_SUMMARY, run_diagnosis)
ORDER = WordsCommand(ORDER_SUMMARY, run_order)
