"""Whether a program that nobody changed takes less time with a table that ``tune`` wrote: a broadcast of MPICH.

By hand, as root, on an idle machine; a sweep of about six minutes, and a minute for the program:

    python tests/benchmarks/tuned_program.py               # prints a table of results/golden/recognised_algorithms.md
    python tests/benchmarks/tuned_program.py --keep DIR    # keeps the sweep, and the table, in DIR

A sweep on a testbed of four hosts forces each algorithm of MPICH's broadcast, and ``tune`` makes a
table of it. Then a C program broadcasts without the table and with it, in turn. It ends with 1 if
fewer than three sizes at which the table has a rule take at most MOST of their time in each turn.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tables
from agree import compile_programs
from testbed_bench import TESTBED, run_settings, run_sweep, run_testbed

from hpccoll.common.units import format_seconds, format_size
from hpccoll.extensions.tables.formats.mpich_json import read_mpich_json

HOSTS = 4
SWEEP = {
    "collectives": ["broadcast"], "algorithms": ["native"], "nodes": [HOSTS], "seed": 1,
    "bytes": {"from": "16K", "to": "4M", "factor": 4}, "variants": {"default": {}, "mpich-*": None},
    "effort": {"warmup": 2, "min_iterations": 10, "max_iterations": 200, "seconds": 0.3, "precision": 0.02},
}  # fmt: skip
SIZES = [size << 10 for size in (64, 128, 256, 384, 448, 512, 576, 640, 1024, 2048, 4096, 8192)]
TURNS, MOST, ENOUGH = 5, 0.77, 3
PROGRAM = "single", "0.2", "21", *(f"broadcast/in/{size}" for size in SIZES)
READS_TABLE = (
    "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
    "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE",
)


def measure(_: str, keep: Path) -> None:
    """Write a table, and the times of the program in each turn, without it and with it."""
    programs = compile_programs(keep)
    if isinstance(programs, str):
        sys.exit(programs)
    table = keep / "mpich.json"
    run_testbed("up", "--nodes", str(HOSTS), "--cpus", "1", "--rate", "1gbit")
    try:
        if not table.exists():
            run_sweep("broadcast", SWEEP, keep)
            tune = (
                sys.executable,
                "-m",
                "hpccoll",
                "tune",
                keep / "broadcast",
                "--format",
                "mpich",
                "--out",
                table,
            )
            subprocess.run(tune, check=True)
        variables = dict(zip(READS_TABLE, (table, f"{table}.ch4"), strict=True))
        with (keep / "times.jsonl").open("w") as out:
            for _ in range(TURNS):
                for each in ({}, variables):
                    out.write(json.dumps(run_program(programs["collectives"], each)) + "\n")
    finally:
        run_testbed("down", check=False)


def run_program(program: Path, variables: dict[str, str | Path]) -> list[float]:
    """Return the median seconds of each size."""
    given = [f"{name}={value}" for name, value in variables.items()]
    launch = (
        "srun",
        "-N",
        str(HOSTS),
        "-n",
        str(HOSTS),
        "--mpi=pmi2",
        "env",
        *given,
        str(program),
        *PROGRAM,
    )
    run = [str(TESTBED), "run", *launch]
    printed = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = [json.loads(line) for line in printed.splitlines()]
    return [each["median_s"] for each in found if "case" in each]


def show(_: str, keep: Path) -> Iterator[bool]:
    rules = [
        rule
        for rule in read_mpich_json((keep / "mpich.json").read_text()).rules
        if rule.collective == "bcast"
    ]
    rules = [rule for rule in rules if rule.ranks[0] <= HOSTS <= rule.ranks[1]]
    turns = [json.loads(line) for line in (keep / "times.jsonl").read_text().splitlines()]
    without, with_it = (list(zip(*turns[k::2], strict=True)) for k in (0, 1))
    rows, reached = list[Iterable[object]](), 0
    for k, size in enumerate(SIZES):
        named = next(
            (rule.algorithm for rule in rules if rule.bytes[0] <= size <= rule.bytes[1]), None
        )
        ratios = tables.ratios(with_it[k], without[k])
        reached += named is not None and max(ratios) <= MOST
        times = (format_seconds(sorted(each[k])[TURNS // 2]) for each in (without, with_it))
        rows.append(
            [format_size(size), named, *times, ", ".join(f"{ratio:.2f}" for ratio in ratios)]
        )
    tables.print_table(
        ("size:", "the table says", "without it:", "with it:", "ratio of each turn"), rows
    )
    yield tables.verdict(
        f"sizes at {MOST} at most in each of {TURNS} turns", str(reached), reached >= ENOUGH
    )


if __name__ == "__main__":
    sys.exit(run_settings(__doc__.splitlines()[0], ["broadcast"], measure, show))
