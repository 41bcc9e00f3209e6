"""What ``hpccoll count`` costs a call, and whether programs run as without it and are counted right.

By hand, on a machine with several MPI libraries; it prints tables of results/golden/count.md:

    python tests/benchmarks/count.py cost /usr/bin/mpicc.openmpi .venv/bin/mpicc .venv/bin/mpicc_abi
    python tests/benchmarks/count.py programs programs.json

The cost is that of a loop of calls on one rank, with the library and without it, in turns. The file
of programs has objects with ``name``, ``command`` and ``directory``: each runs without the library
and with it. Output is compared without its numbers, because it contains times, and by its letters in any
order, because launchers mix the lines of ranks.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import tables

from hpccoll.common.units import format_per_cent, format_seconds
from hpccoll.executor.counting_library import counting_library
from hpccoll.sweep.counted_launch import join_rank_files

HERE = Path(__file__).parent
CALLS = "200000"
TURNS = 5


def times_of_calls(program: Path, directory: str | None) -> dict[str, float]:
    """Return the nanoseconds of a call by its kind; counted if there is a directory."""
    environment = dict(os.environ)
    if directory:
        environment |= {"LD_PRELOAD": str(counting_library()), "HPCCOLL_COUNT": directory}
    ran = subprocess.run(
        [program, CALLS], env=environment, capture_output=True, text=True, check=True
    )
    words = ran.stdout.split()
    return {name: float(ns) for name, ns in zip(words[::2], words[1::2], strict=True)}


def show_cost(compilers: list[str]) -> None:
    """Print what counting adds to a call of each kind, with each library."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for compiler in compilers:
            program = Path(temporary, "call_cost")
            subprocess.run([compiler, "-O2", HERE / "c" / "call_cost.c", "-o", program], check=True)
            alone: list[dict[str, float]] = []
            counted: list[dict[str, float]] = []
            for _ in range(TURNS):
                alone.append(times_of_calls(program, None))
                counted.append(times_of_calls(program, f"{temporary}/counts"))
            said = {rank.cost_s for rank in join_rank_files(Path(temporary, "counts")).ranks}
            for kind in alone[0]:
                without = sorted(times[kind] for times in alone)
                added = sorted(
                    with_it[kind] - times[kind]
                    for times, with_it in zip(alone, counted, strict=True)
                )
                span = f"{added[0]:.0f} to {added[-1]:.0f}"
                rows.append(
                    (Path(compiler).name, kind, f"{without[TURNS // 2]:.0f} ns", f"{span} ns")
                )
            rows.append(
                (Path(compiler).name, "what each rank measures", "", format_seconds(min(said)))
            )
    tables.print_table(("compiler", "call", "without:", "counting adds:"), rows)


def show_programs(path: Path) -> bool:
    """Print how programs ran, alone and counted; return whether all ran alike."""
    rows = []
    alike = True
    for program in json.loads(path.read_text()):
        ends = []
        with tempfile.TemporaryDirectory() as counts:
            preload = {"LD_PRELOAD": str(counting_library()), "HPCCOLL_COUNT": counts}
            for variables in ({}, preload):
                ran = subprocess.run(
                    program["command"],
                    cwd=program["directory"],
                    env={**os.environ, **variables},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                letters = sorted(re.sub(r"[\d\s.+-]", "", ran.stdout))
                ends.append((ran.returncode, letters))
            job = join_rank_files(Path(counts))
        is_alike = ends[0] == ends[1]
        alike = alike and is_alike
        spent = job.calls["seconds"].sum() / sum(rank.ran_s for rank in job.ranks)
        first = job.calls[job.calls["rank"] == 0]
        counting_s = [rank.writing_s + rank.cost_s * first["calls"].sum() for rank in job.ranks]
        overhead = max(counting_s) / max(rank.ran_s for rank in job.ranks)
        rows.append(
            (
                program["name"],
                job.launches[0].abi,
                ends[1][0],
                "yes" if is_alike else "NO",
                f"{first['calls'].sum():,}",
                format_per_cent(spent),
                format_per_cent(overhead),
            )
        )
    tables.print_table(
        ("program", "library", "exit code:", "alike", "calls of rank 0:", "share:", "counting:"),
        rows,
    )
    return alike


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "cost":
        show_cost(words)
    elif not show_programs(Path(words[0])):
        sys.exit(1)
