"""What ``hpccoll compare`` says of runs on the testbed: of equal ones, of a slower wire, of a changed variable.

    python tests/benchmarks/compare_runs.py --keep DIR          # 38 runs, about 25 minutes
    python tests/benchmarks/compare_runs.py --read DIR          # from raw files that were kept

Equal runs follow one another, and each is compared with the next one: a regression or an
improvement is then a false one. The wire of the slower runs has 91 % of the rate. The figures are
those of results/golden/compare.md.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

from tables import print_table, verdict
from testbed_bench import run_settings, run_testbed

from hpccoll.common.units import format_factor
from hpccoll.judge.held import HeldVerdict
from hpccoll.judge.reference import compare_with_reference, make_reference
from hpccoll.judge.run_comparison import Comparison, compare
from hpccoll.store.load_results import read_results
from hpccoll.store.rows import Results

HOSTS = "--nodes 4 --cpus 1"
RATE, SLOWER = "100mbit", "91mbit"
SLOWED = 100 / 91
RUN = "-a ring,recursive_doubling,rabenseifner,double_binary_tree,native -b 2K -e 256K -f 2 -n 30 --in-place"
WIRE_BYTES = 64 << 10
"""From this size on the wire sets the time."""

RUNS = {"same": 21, "three-rounds": 6, "variable": 1, "slower": 10}
VARIABLE = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"


def measure(_name: str, keep: Path) -> None:
    """Measure all runs into ``keep``; those that are there are kept."""
    for rate, kinds in ((RATE, ("same", "three-rounds", "variable")), (SLOWER, ("slower",))):
        try:
            run_testbed("up", *HOSTS.split(), "--rate", rate)
            for kind in kinds:
                rounds = "3" if kind == "three-rounds" else "5"
                environment = {VARIABLE: "ring"} if kind == "variable" else None
                for number in range(RUNS[kind]):
                    out = keep / f"{kind}-{number:02}.h5"
                    if not out.exists():
                        command = f"srun -N 4 -n 4 --mpi=pmi2 hpccoll run {RUN} --rounds {rounds} --out {out}"
                        run_testbed("run", *command.split(), environment=environment)
        finally:
            run_testbed("down", check=False)


def runs_of(keep: Path, kind: str) -> list[Results]:
    return [read_results([path]) for path in sorted(keep.glob(f"{kind}-*.h5"))]


def print_pairs(title: str, comparisons: Sequence[Comparison]) -> int:
    """Print the verdicts of comparisons of equal runs, and return the number of pairs with a regression."""
    print(f"\n{title}\n")
    rows = []
    for number, compared in enumerate(comparisons, 1):
        counts = Counter(case.verdict for case in compared.cases)
        largest = max(
            (case.shift.factor for case in compared.cases if case.shift),
            key=lambda f: abs(math.log(f)),
        )
        of = [
            counts[name]
            for name in (
                HeldVerdict.AS_EXPECTED,
                HeldVerdict.CANNOT_TELL,
                HeldVerdict.SLOWER,
                HeldVerdict.FASTER,
            )
        ]
        rows.append((number, *of, format_factor(largest)))
    head = (
        "pair:",
        "unchanged:",
        "undecided:",
        "false regressions:",
        "false improvements:",
        "new / old of the case furthest from 1:",
    )
    print_table(head, rows)
    return sum(bool(compared.of(HeldVerdict.SLOWER)) for compared in comparisons)


def print_slower(same: Sequence[Results], slower: Sequence[Results]) -> Iterator[bool]:
    print(
        f"\nThe wire slowed to {SLOWER}, cases of at least 64 KiB: they should take {format_factor(SLOWED)} as long\n"
    )
    rows, found = [], 0
    for number, (old, new) in enumerate(zip(same, slower, strict=False), 1):
        cases = [
            c
            for c in compare(old, new).cases
            if c.shift and c.coordinates["requested_bytes"] >= WIRE_BYTES
        ]
        factors = [case.shift.factor for case in cases if case.shift]
        mean, ends = (
            geometric_mean(factors),
            " to ".join(map(format_factor, (min(factors), max(factors)))),
        )
        counts = Counter(case.verdict for case in cases)
        regressions = f"{counts[HeldVerdict.SLOWER]} of {len(cases)}"
        rows.append(
            (
                number,
                regressions,
                counts[HeldVerdict.CANNOT_TELL],
                counts[HeldVerdict.AS_EXPECTED],
                format_factor(mean),
                ends,
            )
        )
        found += abs(mean - SLOWED) <= 0.03 and counts[HeldVerdict.SLOWER] > 0
    print_table(
        ("pair:", "regressions:", "undecided:", "unchanged:", "new / old, mean:", "of the cases:"),
        rows,
    )
    yield verdict("the mean is 1.07x to 1.13x", f"{found} of {len(rows)}", found == len(rows))


def print_all(_name: str, keep: Path) -> Iterator[bool]:
    same = runs_of(keep, "same")
    print(
        f"`testbed up {HOSTS} --rate {RATE}`, `srun -N 4 hpccoll run {RUN} --rounds 5`: {len(same[0].rows)} cases."
    )
    compared = [compare(old, new) for old, new in pairwise(same)]
    false = print_pairs(
        f"Equal runs, five rounds: {len(compared)} pairs of successive runs", compared
    )
    yield verdict(
        "pairs with a false regression", f"{false} of {len(compared)}, asked at most 1", false <= 1
    )
    references = [
        compare_with_reference(make_reference(same[start : start + 5]), same[start + 5], 0.05)
        for start in range(len(same) - 5)
    ]
    false = print_pairs(
        "Equal runs, each compared with a reference of the five runs before it", references
    )
    print(f"- runs with a false regression: {false} of {len(references)}")
    three = runs_of(keep, "three-rounds")
    false = print_pairs(
        "Equal runs, three rounds", [compare(old, new) for old, new in pairwise(three)]
    )
    print(f"- pairs with a false regression: {false} of {len(three) - 1}")
    yield from print_slower(same, runs_of(keep, "slower"))
    changed = compare(same[0], runs_of(keep, "variable")[0]).changes
    named = {name: values for name, values in changed.items() if name.startswith("variables.")}
    yield verdict(
        "what changed with a variable of MPICH", str(named), [*named] == [f"variables.{VARIABLE}"]
    )


if __name__ == "__main__":
    sys.exit(run_settings("Compare runs on the testbed.", ["runs"], measure, print_all))
