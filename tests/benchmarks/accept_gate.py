"""How often ``hpccoll accept`` is right on the testbed, held against a reference of five sweeps of it.

By hand, as root, on a machine where nothing else runs; a sweep of four hosts takes a minute:

    python tests/benchmarks/accept_gate.py --keep DIR            # 5 sweeps for the reference, 20 healthy ones, 10 slow
    python tests/benchmarks/accept_gate.py --keep DIR --read     # nothing is measured

Each sweep is a line in ``DIR/sweeps.jsonl`` when it has ended, and a raw file beside it. A call
that was killed continues there. A slow sweep has one host, which is drawn, whose wire has 80 % of
its rate: the gate must fail at sizes for which the wire sets the time, and not at 8 bytes. Of 20
healthy sweeps at most one may fail. It ends with 1 where what is asked is missed.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tables import print_table, verdict
from testbed_bench import run_testbed

from hpccoll.common.units import format_size
from hpccoll.judge.acceptance import Judged
from hpccoll.judge.held import Acceptance
from hpccoll.judge.reference import Reference, make_reference
from hpccoll.judge.verdicts import judge_rows
from hpccoll.store.load_results import read_results, to_results
from hpccoll.store.result_files import read_all

REFERENCE, HEALTHY, SLOW = "reference", "healthy", "slow"

RUN = "-a ring,recursive_doubling,rabenseifner,native -b 8 -e 2M -f 8 -n 20 --rounds 5 --in-place"
SMALLEST, LARGE = 8, 256 << 10
"""The smallest size, and that from which on the wire sets the time, in bytes."""

LEFT = 0.8
"""What is left of the rate of a slow host's wire."""

MOST_ALARMS = 1 / 20
"""The share of healthy sweeps that may fail."""


@dataclass(frozen=True)
class Setting:
    """A testbed, by its name."""

    name: str
    hosts: int
    rate: float  # of a wire, in Mbit/s

    def call(self, command: str, *words: str, check: bool = True) -> int:
        return run_testbed(command, "--name", self.name, *words, check=check)

    def up(self) -> None:
        self.call("up", "--nodes", str(self.hosts), "--cpus", "1", "--rate", f"{self.rate:g}mbit")


class Sweep(NamedTuple):
    """A sweep, with the slow host, which follows from the seed; 0 if none is slow."""

    kind: str  # REFERENCE, HEALTHY or SLOW
    number: int
    host: int

    def raw(self, keep: Path) -> Path:
        return keep / f"{self.kind}-{self.number:02}.h5"

    def measure(self, setting: Setting, raw: Path) -> dict[str, object]:
        """Measure the sweep, and return its record."""
        setting.call("clear")
        if self.host:
            setting.call("fault", f"n{self.host}", "--rate", f"{LEFT * setting.rate:g}mbit")
        hosts, begun = str(setting.hosts), time.monotonic()
        launch = (
            "srun",
            "-N",
            hosts,
            "-n",
            hosts,
            "--mpi=pmi2",
            "hpccoll",
            "run",
            *RUN.split(),
            "--out",
            str(raw),
        )
        code = setting.call("run", *launch, check=False)
        return {**self._asdict(), "code": code, "seconds": time.monotonic() - begun}


def sweeps_of(asked: argparse.Namespace) -> list[Sweep]:
    """Return all sweeps: those of the reference, then the others as drawn, so that whatever drifts meets all."""
    rng = np.random.default_rng(asked.seed)
    others = [Sweep(HEALTHY, number, 0) for number in range(asked.healthy)]
    others += [
        Sweep(SLOW, number, int(rng.integers(asked.hosts)) + 1) for number in range(asked.slow)
    ]
    return [
        *(Sweep(REFERENCE, number, 0) for number in range(asked.reference)),
        *(others[place] for place in rng.permutation(len(others))),
    ]


def measured(keep: Path, sweeps: Sequence[Sweep]) -> list[Sweep]:
    """Return the sweeps that have ended; what a killed call has left of a line does not count."""
    lines = (
        (keep / "sweeps.jsonl").read_text().splitlines(keepends=True)
        if (keep / "sweeps.jsonl").exists()
        else []
    )
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    ended = {
        Sweep(*(record[name] for name in Sweep._fields)) for record in records if not record["code"]
    }
    return [sweep for sweep in sweeps if sweep in ended]


def measure(setting: Setting, sweeps: Sequence[Sweep], keep: Path) -> None:
    """Measure the sweeps that have not ended yet."""
    file = keep / "sweeps.jsonl"
    if file.exists() and not file.read_text().endswith("\n"):
        file.write_text(file.read_text().rpartition("\n")[0] + "\n")
    ended = measured(keep, sweeps)
    missing = [sweep for sweep in sweeps if sweep not in ended]
    if not missing:
        return
    try:
        setting.up()
        for left, sweep in zip(reversed(range(len(missing))), missing, strict=True):
            record = sweep.measure(setting, sweep.raw(keep))
            with file.open("a") as lines:
                print(json.dumps(record), file=lines)
            print(
                f"{sweep.raw(keep).stem}: {record['seconds']:.0f} s; {left} left", file=sys.stderr
            )
    finally:
        setting.call("down", check=False)


class Gate(NamedTuple):
    """What the gate says of a sweep."""

    sweep: Sweep
    judged: Sequence[Judged]

    @classmethod
    def of(cls, sweep: Sweep, keep: Path, reference: Reference) -> "Gate":
        files = read_all([sweep.raw(keep)])
        return cls(sweep, judge_rows(files, to_results(files), reference))

    def fails(self, least: int, most: int) -> int:
        """Return the number of rows that fail, of sizes from ``least`` to ``most``."""
        failed = (each for each in self.judged if each.acceptance is Acceptance.FAIL)
        return sum(least <= each.row.bytes <= most for each in failed)

    @property
    def is_right(self) -> bool:
        """Whether a slow sweep fails at large sizes and not at the smallest, and any other does not fail."""
        if self.sweep.kind == SLOW:
            return self.fails(LARGE, sys.maxsize) > 0 and not self.fails(SMALLEST, SMALLEST)
        return not self.fails(0, sys.maxsize)


def print_gates(gates: Sequence[Gate]) -> bool:
    """Print what the gate says of all sweeps, and return whether it is what is asked."""
    between = f"between {format_size(SMALLEST)} and {format_size(LARGE)}:"
    head = (
        "sweep",
        "slow host",
        "rows:",
        "judged:",
        f"fails from {format_size(LARGE)}:",
        between,
        "at 8 B:",
    )
    rows = []
    for gate in gates:
        counts = Counter(each.acceptance for each in gate.judged)
        fails = (
            gate.fails(LARGE, sys.maxsize),
            gate.fails(SMALLEST + 1, LARGE - 1),
            gate.fails(SMALLEST, SMALLEST),
        )
        host = f"n{gate.sweep.host}" if gate.sweep.host else ""
        decided = counts[Acceptance.PASS] + counts[Acceptance.FAIL]
        rows.append(
            [f"{gate.sweep.kind} {gate.sweep.number}", host, len(gate.judged), decided, *fails]
        )
    print_table(head, rows)
    slow, healthy = (
        [gate for gate in gates if gate.sweep.kind == kind] for kind in (SLOW, HEALTHY)
    )
    right, alarms = sum(gate.is_right for gate in slow), sum(not gate.is_right for gate in healthy)
    what = f"slow sweeps that fail from {format_size(LARGE)} on and not at {format_size(SMALLEST)}"
    most = MOST_ALARMS * len(healthy)
    return all(
        [
            verdict(what, f"{right} of {len(slow)}", right == len(slow)),
            verdict(
                f"healthy sweeps that fail: at most {most:g} of {len(healthy)}",
                str(alarms),
                alarms <= most,
            ),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4, help="hosts of the testbed [4]")
    parser.add_argument(
        "--rate", type=float, default=100, help="rate of their wires in Mbit/s [100]"
    )
    parser.add_argument("--reference", type=int, default=5, help="sweeps of the reference [5]")
    parser.add_argument(
        "--healthy", type=int, default=20, help="further sweeps of the healthy testbed [20]"
    )
    parser.add_argument("--slow", type=int, default=10, help="sweeps with a slow host [10]")
    parser.add_argument("--seed", type=int, default=44, help="of all that is drawn [44]")
    parser.add_argument(
        "--keep", type=Path, required=True, help="directory of the records and raw files"
    )
    parser.add_argument("--read", action="store_true", help="measure nothing")
    parser.add_argument("--name", default="accept", help="name of the testbed [accept]")
    asked = parser.parse_args()
    setting = Setting(asked.name, asked.hosts, asked.rate)
    keep, sweeps = asked.keep.resolve(), sweeps_of(asked)
    keep.mkdir(parents=True, exist_ok=True)
    if not asked.read:
        measure(setting, sweeps, keep)
    ended = measured(keep, sweeps)
    of_reference = [sweep for sweep in ended if sweep.kind == REFERENCE]
    reference = make_reference([read_results([sweep.raw(keep)]) for sweep in of_reference])
    print(
        f"## {setting.hosts} hosts, wires of {setting.rate:g} Mbit/s: a reference of {len(of_reference)} sweeps\n"
    )
    print(f"`srun -N {setting.hosts} hpccoll run {RUN}`: {len(reference.cases)} cases.\n")
    return (
        0 if print_gates([Gate.of(s, keep, reference) for s in ended if s.kind != REFERENCE]) else 1
    )


if __name__ == "__main__":
    sys.exit(main())
