# Names that the rules share, and the environment of their commands.

import json
import shlex
import sys
from pathlib import Path

# A workflow that imports this one as a module says in its config where the sweep file is: {sweep: FILE, out: DIR}.
CONFIG = Path(config.get("sweep") or (workflow.configfiles or [Path(workflow.basedir) / "config" / "default.yaml"])[-1])
OUT = config.get("out", f"results/{CONFIG.stem}")

# hpccoll and mpiexec are those of the environment that Snakemake runs in; the variable marks every process of this
# sweep, so that the next one can find what a killed one left running.
PROGRAMS = shlex.quote(str(Path(sys.executable).parent))
shell.prefix(f"export PATH={PROGRAMS}:$PATH HPCCOLL_SWEEP={shlex.quote(str(Path(OUT).resolve()))}; ")


def results(_wildcards):
    return OUT


def raw_files(_wildcards):
    plan = json.loads(Path(checkpoints.plan.get().output[0]).read_text())
    return [f"{OUT}/raw/{job['name']}.h5" for job in plan["jobs"]]


def launch(wildcards, input):
    return json.loads(Path(input.plan).read_text())["launch"][wildcards.job]
