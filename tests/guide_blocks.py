"""The guides, their code blocks, and a copy of the working directory in which the blocks run as written."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from cli_runner import ENVIRONMENT, CommandResult
from shipped_sweeps import sweep_files

ROOT = Path(__file__).parents[1]
GUIDES = (
    "README.md",
    "workflows/README.md",
    "workflows/KUBERNETES.md",
    "workflows/HARNESSES.md",
    "slurm/README.md",
    "slurm/GPU.md",
    "results/README.md",
    "results/REPORT.md",
    "results/CHOOSE.md",
    "results/PREDICT.md",
    "results/FILES.md",
    "results/ALL_IS_WELL.md",
    "results/ORDER.md",
    "hpccoll/README.md",
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)

ON_SLURM = (
    ("slurm/README.md", "hpccoll doctor"),
    ("slurm/README.md", "sbatch -N 2 --ntasks-per-node=2"),
    ("slurm/README.md", "sbatch -p all -N 3"),
    ("slurm/README.md", "srun --mpi=pmi2 -n 3"),
    ("slurm/README.md", "slurm/testbed/testbed up --nodes 4 "),
)
"""Blocks that run on the testbed: the guide and how the block begins."""

NOT_RUN = {
    ("README.md", "pip install -e '.[local,analysis]'"): "needs a network; prepare() sweeps",
    (
        "README.md",
        "hpccoll doctor                ",
    ): "needs slurmdbd and the site's MPI; "
    "slurm/README.md has the same commands for the profile slurm-nodbd",
    (
        "README.md",
        "sbatch -N 64 slurm/diagnose.sbatch",
    ): "has 64 nodes; tests/slurm/test_scripts.py runs it on fewer",
    (
        "slurm/README.md",
        "slurm/testbed/testbed up --nodes 8 --cpus 1 --rate 1gbit --racks 2",
    ): "has up to 11 hosts; tests/slurm/test_fabric.py has racks, rails and aggregators on fewer",
    (
        "results/PREDICT.md",
        "slurm/testbed/testbed up --nodes 8",
    ): "has 8 hosts, and ping-pongs take minutes",
    (
        "workflows/KUBERNETES.md",
        "kubectl create",
    ): "needs Kubernetes; tests/sweep/kubernetes/test_manifests.py runs what the launcher's pod runs",
    (
        "workflows/HARNESSES.md",
        "reframe",
    ): "has four nodes; tests/interop/test_reframe_check.py runs the check on fewer",
    ("workflows/HARNESSES.md", "for i in"): "has four nodes",
    ("slurm/GPU.md", "pip install"): "needs a network, GPUs and slurmdbd",
    (
        "slurm/GPU.md",
        "sbatch -N 2 slurm/nccl.sbatch",
    ): "needs GPUs; tests/slurm/test_scripts.py runs them with a stand-in for srun",
    ("slurm/GPU.md", "NCCL_DEBUG=INFO"): "starts a training program on GPUs",
    (
        "hpccoll/README.md",
        "python -m hpccoll.executor.build --sanitize",
    ): "compiles and tests for minutes",
    (
        "results/CHOOSE.md",
        "hpccoll compare --make-reference run1.txt",
    ): "has six outputs; tests/cli/test_accept.py runs it",
    ("results/README.md", "export TORCH"): "needs a job that hangs; tests/cli/test_trace.py traces",
    (
        "results/PREDICT.md",
        "hpccoll import pico/results/lumi",
    ): "needs PICO's results; tests/model/test_fit_to_imported_results.py fits small ones",
    (
        "results/PREDICT.md",
        "hpccoll import pico/results/leonardo",
    ): "needs PICO's results; tests/model/test_fit_to_imported_results.py predicts from small ones",
    ("results/FILES.md", "h5dump"): "tests/analysis/test_files_guide.py runs it",
    ("results/CHOOSE.md", "hpccoll compare results/last-week"): "noise decides its exit code; "
    "tests/analysis/test_run_comparison.py compares",
    ("results/CHOOSE.md", "hpccoll accept"): "tests/cli/test_accept.py accepts",
    ("results/CHOOSE.md", "mkdir own"): "tests/cli/test_contribute.py contributes",
    ("results/FILES.md", "hpccoll import"): "tests/interop imports outputs",
}
"""Blocks that run nowhere in the tests, or elsewhere, with the reason."""

SHORT = {
    "bytes": [1024],
    "effort": {"warmup": 1, "min_iterations": 6, "max_iterations": 6, "seconds": 0.05},
    "rounds": 1,
}
"""What replaces the keys of the sweep files that guides name, so that a sweep takes seconds."""


@dataclass(frozen=True)
class Block:
    """A code block of a guide."""

    guide: str  # the path of the guide
    language: str  # the language after the fence
    text: str  # the code
    before: str  # the text of the guide before it

    def is_in(self, table) -> bool:
        return any(
            self.guide == guide and self.text.startswith(beginning) for guide, beginning in table
        )

    @property
    def path(self) -> str | None:
        """The file whose content the block is: named in a comment at its beginning, or just before it."""
        commented = re.match(r"# (\S+\.yaml)\n", self.text)
        named = re.search(r"`(hpccoll/algorithms/\w+\.py)`:\s*\Z", self.before)
        return commented[1] if commented else named[1] if named else None


def blocks(language: str, guide: str | None = None) -> Iterator[Block]:
    """Yield the blocks of a guide, or of all guides."""
    for name in GUIDES if guide is None else (guide,):
        text = (ROOT / name).read_text()
        for found in BLOCK.finditer(text):
            if found[1] == language:
                yield Block(name, language, found[2], text[: found.start()])


def copy_working_directory(into: Path) -> Path:
    """Copy what commands of guides use; sweeps of the copy are short, and Snakemake looks at their jobs at once."""
    for name in ("hpccoll", "workflows", "slurm", "tests", "results"):
        tracked = shutil.ignore_patterns("__pycache__", *(() if name != "results" else ("[!g]*",)))
        shutil.copytree(ROOT / name, into / name, ignore=tracked)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, into)
    profile = into / "workflows" / "profiles" / "slurm-nodbd" / "profile.yaml"
    profile.write_text(re.sub(r"(?<=status-checks: )\d+", "1", profile.read_text()))
    for path in sweep_files(into / "workflows"):
        sweep = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump(sweep | SHORT | ({"ranks": 2} if "ranks" in sweep else {})))
    return into


def write_files(home: Path, guide: str) -> None:
    """Write the files that a guide shows, and add its algorithms to the two tables of contents."""
    for block in (*blocks("yaml", guide), *blocks("python", guide)):
        if block.path:
            (home / block.path).write_text(block.text)
        if block.path and block.language == "python":
            name = Path(block.path).stem
            contents = home / "hpccoll" / "algorithms" / "__init__.py"
            readme = home / "hpccoll" / "README.md"
            listed = contents.read_text().replace(
                '"all_reduce": {', f'"all_reduce": {{\n        "{name}": "{name}",'
            )
            contents.write_text(listed)
            readme.write_text(
                readme.read_text().replace("2(n-1)/n | `ring`", f"2(n-1)/n | `{name}`, `ring`")
            )


def environment(home: Path) -> dict[str, str]:
    """Return the environment of commands that import the copy, with the thread level of MPI that a reader has."""
    changed = {"PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": ""}
    return {
        name: value for name, value in ENVIRONMENT.items() if name != "MPI4PY_RC_THREAD_LEVEL"
    } | changed


def run_here(text: str, home: Path) -> CommandResult:
    """Run commands in the copy with bash, until one fails."""
    ran = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text],
        cwd=home,
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    return CommandResult(ran.returncode, ran.stdout, ran.stderr)
