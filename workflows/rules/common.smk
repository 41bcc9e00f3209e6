# Names that the rules share, and the environment of their commands.

import shlex
import sys
from functools import lru_cache
from pathlib import Path

import msgspec
from snakemake.exceptions import WorkflowError

# A workflow that imports this one as a module says in its config where the sweep file is: {sweep: FILE, out: DIR}.
CONFIG = Path(
    config.get("sweep")
    or (workflow.configfiles or [Path(workflow.basedir) / "config" / "default.yaml"])[-1]
)
OUT = config.get("out", f"results/{CONFIG.stem}")
for key in ("out", "site"):
    if not isinstance(config.get(key, ""), str):
        raise WorkflowError(
            f"--config {key}: Snakemake reads {config[key]!r}, which is no text; give an absolute path"
        )
if set(OUT) & set("{}"):
    raise WorkflowError(f"--config out: {OUT!r} has braces, which are wildcards to Snakemake")
# Where it runs: the profile of that name has to be given to Snakemake, too.
PLACE = [
    f"--profile={config.get('profile', 'local')}",
    *([f"--site={config['site']}"] if config.get("site") else []),
]

# hpccoll and mpiexec are those of the environment that Snakemake runs in. No rule names a conda environment or a
# container, which 'snakemake --lint' asks for: the environment's MPI library is what a sweep measures, and on a cluster it
# is the site's. A site file names modules or a container for the ranks. The variable marks every process of this sweep, so
# that the next one can find what a killed one left running.
PROGRAMS = shlex.quote(str(Path(sys.executable).parent))
MARK = shlex.quote(str(Path(OUT).resolve()))
shell.prefix(
    f"export PATH={PROGRAMS}:$PATH HPCCOLL_SWEEP={MARK}; ".replace("{", "{{").replace("}", "}}")
)


# Only measuring is submitted to Slurm.
localrules:
    all,
    plan,
    raw,
    report,


def sweep_file(_wildcards):
    return str(
        CONFIG
    )  # as it is; a name that is written below a rule would have its braces filled in


def results(_wildcards):
    return OUT


def place(_wildcards):
    return PLACE


# What the workflow needs of the plan. All else is skipped when it is read: a plan may have a hundred thousand cases.
PlannedJob = msgspec.defstruct("PlannedJob", [("name", str)])
PlannedJobs = msgspec.defstruct(
    "PlannedJobs", [("jobs", list[PlannedJob]), ("resources", dict[str, dict])]
)


@lru_cache(maxsize=1)
def plan_as_of(_changed_ns):
    """The plan of that moment: it is read once, because each job asks for a dozen resources."""
    return msgspec.json.decode((Path(OUT) / "plan.json").read_bytes(), type=PlannedJobs)


def raw_files(_wildcards):
    plan = plan_as_of(Path(checkpoints.plan.get().output[0]).stat().st_mtime_ns)
    return [f"{OUT}/raw/{job.name}.h5" for job in plan.jobs]


def asked(name, otherwise):
    """What a job asks of Slurm under this name; what it is otherwise, which says nothing, for jobs on this machine."""

    def ask(wildcards):
        plan = Path(OUT) / "plan.json"
        if not plan.exists():
            return otherwise
        resources = plan_as_of(plan.stat().st_mtime_ns).resources
        return resources.get(wildcards.job, {}).get(name, otherwise)

    return ask
