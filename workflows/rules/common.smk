# Names that the rules share, and the environment of their commands.

import json
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

# A workflow that imports this one as a module says in its config where the sweep file is: {sweep: FILE, out: DIR}.
CONFIG = Path(config.get("sweep") or (workflow.configfiles or [Path(workflow.basedir) / "config" / "default.yaml"])[-1])
OUT = config.get("out", f"results/{CONFIG.stem}")
for key in ("out", "site"):
    if not isinstance(config.get(key, ""), str):
        raise WorkflowError(f"--config {key}: Snakemake reads {config[key]!r}, which is no text; give an absolute path")
if set(OUT) & set("{}"):
    raise WorkflowError(f"--config out: {OUT!r} has braces, which are wildcards to Snakemake")
# Where it runs: the profile of that name has to be given to Snakemake, too.
PLACE = [f"--profile={config.get('profile', 'local')}", *([f"--site={config['site']}"] if config.get("site") else [])]

# hpccoll and mpiexec are those of the environment that Snakemake runs in; the variable marks every process of this
# sweep, so that the next one can find what a killed one left running.
PROGRAMS = shlex.quote(str(Path(sys.executable).parent))
MARK = shlex.quote(str(Path(OUT).resolve()))
shell.prefix(f"export PATH={PROGRAMS}:$PATH HPCCOLL_SWEEP={MARK}; ".replace("{", "{{").replace("}", "}}"))


# Only measuring is submitted to Slurm.
localrules:
    all,
    plan,
    raw,
    report,


def sweep_file(_wildcards):
    return str(CONFIG)  # as it is; a name that is written below a rule would have its braces filled in


def results(_wildcards):
    return OUT


def place(_wildcards):
    return PLACE


def raw_files(_wildcards):
    plan = json.loads(Path(checkpoints.plan.get().output[0]).read_text())
    return [f"{OUT}/raw/{job['name']}.h5" for job in plan["jobs"]]


def asked(name, otherwise):
    """What a job asks of Slurm under this name; what it is otherwise, which says nothing, for jobs on this machine."""

    def ask(wildcards):
        plan = Path(OUT) / "plan.json"
        resources = json.loads(plan.read_text())["resources"] if plan.exists() else {}
        return resources.get(wildcards.job, {}).get(name, otherwise)

    return ask
