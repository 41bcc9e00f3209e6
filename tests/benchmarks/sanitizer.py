"""compute-sanitizer on small launches of the kernels of this project."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from here import TESTS, Here, rank_environment
from verdicts import Verdict, not_run, right

TOOLS = {"memcheck": ["--report-api-errors", "no"], "racecheck": []}
"""The options of each tool: calls of CUDA that CuPy makes to see whether they fail are no errors."""
FAILED = 9
"""The exit code that compute-sanitizer is asked for where it finds an error."""
SECONDS = 60


def program() -> str | None:
    """Return the path of compute-sanitizer, which CUDA's toolkit has."""
    homes = [
        f"{os.environ[name]}/bin" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)
    ]
    path = os.pathsep.join([os.environ.get("PATH", ""), *homes, "/usr/local/cuda/bin"])
    return shutil.which("compute-sanitizer", path=path)


def sanitizer(here: Here) -> Iterator[Verdict]:
    """Each tool once; it runs ``main`` of this file."""
    found = program()
    for tool, options in TOOLS.items():
        what = f"compute-sanitizer, {tool}: errors in small folds, fills and counts"
        if not found:
            yield not_run(what, "there is no compute-sanitizer")
            continue
        command = [
            found,
            "--tool",
            tool,
            *options,
            "--error-exitcode",
            str(FAILED),
            sys.executable,
            __file__,
        ]
        try:
            ran = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=min(SECONDS, max(1, here.seconds_left)),
                env=rank_environment(),
            )
        except subprocess.TimeoutExpired:
            yield not_run(what, "it took too long")
            continue
        lines = [
            line for line in (ran.stdout + ran.stderr).splitlines() if line.startswith("=========")
        ]
        print(*lines[:100], sep="\n", flush=True)  # in the log
        if ran.returncode == FAILED:
            yield right(what, 1, next((line for line in lines if "rror" in line), "an error")[:200])
        elif ran.returncode:
            yield not_run(
                what, f"exit code {ran.returncode}: {(ran.stderr.splitlines() or [''])[-1][:200]}"
            )
        else:
            yield right(what, 0)


def main() -> None:
    """Run small folds of every kind, and fills and counts."""
    sys.path.append(str(TESTS))
    from checks import ELEMENTS, FEW, faults_missed
    from folds import wrong_elements

    here = Here(Path(), SECONDS)
    for element, op in (
        ("float32", "sum"),
        ("bfloat16", "avg"),
        ("float16", "max"),
        ("uint8", "prod"),
    ):
        assert wrong_elements(here, element, op)[0] == 0
    assert not any(faults_missed(here, element, FEW[-1]) for element in ELEMENTS)


if __name__ == "__main__":
    main()
