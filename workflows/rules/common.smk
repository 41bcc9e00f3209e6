# Names that the rules share, and the environment of their commands.

import json
import sys
from pathlib import Path

CONFIG = Path(workflow.configfiles[-1]) if workflow.configfiles else Path(workflow.basedir) / "config" / "default.yaml"
OUT = config.get("out", f"results/{CONFIG.stem}")

# hpccoll and mpiexec are those of the environment that Snakemake runs in; the variable marks every process of this
# sweep, so that the next one can find what a killed one left running.
shell.prefix(f"export PATH={str(Path(sys.executable).parent)!r}:$PATH HPCCOLL_SWEEP={str(Path(OUT).resolve())!r}; ")


def raw_files(_wildcards):
    plan = json.loads(Path(checkpoints.plan.get().output[0]).read_text())
    return [f"{OUT}/raw/{job['name']}.h5" for job in plan["jobs"]]


def launch(wildcards, input):
    return json.loads(Path(input.plan).read_text())["launch"][wildcards.job]
