"""How far predictions are from measurements on the testbed: fitted on at most 4 nodes, tested on up to 8.

By hand, as root, on an idle machine:

    python tests/benchmarks/model_errors.py                    # all settings, about an hour
    python tests/benchmarks/model_errors.py 1gbit --keep DIR   # one of them; keeps the raw files in DIR
    python tests/benchmarks/model_errors.py 1gbit --read DIR   # prints the table of raw files kept there

It ends with 1 if an error, or what choosing by the model costs, is larger than asked.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from testbed_bench import ROOT, run_settings, run_sweep, run_testbed, verdict

from hpccoll.common.units import format_size
from hpccoll.model.machine_sections import DeclaredSections
from hpccoll.model.run_model import RunModel, models_of
from hpccoll.model.validation import Errors, Regret, Validated
from hpccoll.render.model_report import model_lines
from hpccoll.store.result_files import read_all

CALIBRATE = yaml.safe_load((ROOT / "workflows" / "config" / "calibrate.yaml").read_text())
ALGORITHMS = [
    "ring",
    "bidirectional_ring",
    "rabenseifner",
    "recursive_doubling",
    "double_binary_tree",
    "hierarchical",
    "torus",
    "sharp_emulated",
]
TESTED = {
    "collectives": ["all_reduce"], "algorithms": ALGORITHMS, "bytes": {"from": "64K", "to": "16M", "factor": 4},
    "in_place": [False], "nodes": [2, 3, 4, 6, 8], "aggregators": 1, "seed": 1,
    "effort": {"warmup": 1, "min_iterations": 6, "max_iterations": 30, "seconds": 0.3, "precision": 0.02},
}  # fmt: skip
CPUS = {"cores": 2, "of": "machine"}
CPU_RATE = 2.95e8
"""Bytes of messages that one CPU moves in a second, with four ranks to a CPU. Patterns on 4 nodes
at 1 Gbit/s do not fill two CPUs; the same patterns on one, after
``taskset -c 1 testbed up --nodes 4 --rate 1gbit``, do: the median over all-gathers of 64 KiB to 16
MiB, by ring and direct, which were 213 to 371 MB/s."""


@dataclass(frozen=True)
class Setting:
    """What is measured, and what is asked of the errors."""

    hosts: str  # the testbed, but for its number of nodes
    calibrate: dict[str, object]  # the sweep to which the machine is fitted
    test: dict[str, object]  # the sweep, on 8 nodes, with which its predictions are compared
    fitted_nodes: int = 8  # the nodes of the testbed for the first sweep
    median: float | None = None  # the largest median error
    tail: float | None = None  # the largest 90th percentile
    each: float | None = None  # the largest error of each case, if that is asked
    # sections of the machine file that no pattern shows
    declared: dict[str, object] = field(default_factory=dict)

    @property
    def stages(self) -> list[tuple[str, str, dict[str, object]]]:
        """The name, the options of the testbed and the sweep of both measurements."""
        stages = ("calibrate", self.fitted_nodes, self.calibrate), ("test", 8, self.test)
        return [(name, f"--nodes {nodes} {self.hosts}", sweep) for name, nodes, sweep in stages]


LONG = {"warmup": 1, "min_iterations": 3, "max_iterations": 30, "seconds": 0.2, "precision": 0.02}
SETTINGS = {
    "100mbit": Setting(
        "--cpus 1 --rate 100mbit --aggregators 1", CALIBRATE, TESTED | {"effort": LONG}, median=0.10, tail=0.30
    ),
    "1gbit": Setting(
        "--cpus 1 --rate 1gbit --aggregators 1", CALIBRATE, TESTED, median=0.10, tail=0.30,
        declared={"cpus": {**CPUS, "bytes_per_s": CPU_RATE}},
    ),
    "two-ranks": Setting(
        "--cpus 2 --rate 100mbit --aggregators 1",
        CALIBRATE | {"nodes": [1, 2, 4], "ranks_per_node": [2], "bytes": CALIBRATE["bytes"][:-1]},
        TESTED | {
            "nodes": [4, 8], "ranks_per_node": [2], "effort": LONG,
            "bytes": {"from": "64K", "to": "1M", "factor": 4},
        },
        median=0.15, declared={"cpus": CPUS},
    ),
    "racks": Setting(
        "--cpus 1 --rate 1gbit --racks 2 --uplink 200mbit", CALIBRATE,
        TESTED | {
            "algorithms": ["ring", "hierarchical"], "mapping": ["block", "cyclic"], "nodes": [8], "aggregators": 0,
        },
        fitted_nodes=4, each=0.25,
    ),
}  # fmt: skip
REGRET = 1.05


def measure(name: str, keep: Path) -> None:
    """Measure a setting into ``keep``."""
    up = None
    try:
        for what, hosts, sweep in SETTINGS[name].stages:
            if hosts != up:
                if up:
                    run_testbed("down")
                run_testbed("up", *hosts.split())
                up = hosts
            run_sweep(f"{name}-{what}", sweep, keep)
    finally:
        run_testbed("down", check=False)


def print_errors(name: str, keep: Path) -> list[bool]:
    """Print the errors of a setting, and return whether each is no larger than asked."""
    asked = SETTINGS[name]
    raw = read_all([keep / f"{name}-calibrate", keep / f"{name}-test"]).raw_results
    declared = DeclaredSections.model_validate(asked.declared) if asked.declared else None
    model = next(each for each in models_of(raw, declared) if each.machine)
    tested = [
        one for one in model.held_out if one.seconds and one.observation.collective == "all_reduce"
    ]
    created = min(one.attempts[0][0].created for one in raw)
    print(
        f"## {name}\n\n{created}; {', '.join(model.measured_on)}; {'; '.join(hosts for _, hosts, _ in asked.stages)}.\n"
    )
    print("```text", *parameter_lines(model), "```", "", sep="\n")
    print_table(tested)
    return [*verdicts(asked, tested)]


def parameter_lines(model: RunModel) -> Iterator[str]:
    lines = list(model_lines(model))
    first = next(number for number, line in enumerate(lines) if line.startswith("parameters"))
    yield lines[first]
    for line in lines[first + 1 :]:
        if not line.startswith("  "):
            return
        yield line


def print_table(tested: Sequence[Validated]) -> None:
    """Print measured over predicted times, of the median and of each round, and errors by nodes."""
    sizes = sorted({one.observation.nbytes for one in tested})
    rows: dict[tuple[int, str], dict[int, Validated]] = defaultdict(dict)
    for one in tested:
        rows[one.observation.layout.nodes, one.observation.name][one.observation.nbytes] = one
    print("| nodes | algorithm | " + " | ".join(map(format_size, sizes)) + " |")
    print("| --: | --- |" + " --: |" * len(sizes))
    for (nodes, algorithm), row in sorted(rows.items()):
        cells = [cell(row[nbytes]) if nbytes in row else "" for nbytes in sizes]
        print(f"| {nodes} | {algorithm} | " + " | ".join(cells) + " |")
    print("\nMeasured over predicted; in brackets the lowest and the highest round.\n")
    for nodes in sorted({one.observation.layout.nodes for one in tested}):
        errors = Errors.of(one for one in tested if one.observation.layout.nodes == nodes)
        if errors:
            print(
                f"- {nodes} nodes: error {errors.error_median:.1%} (median), {errors.error_p90:.1%} (90th percentile)"
            )


def cell(one: Validated) -> str:
    ratios = [seconds / (one.seconds or 1) for seconds in one.observation.rounds_s]
    return f"{one.ratio:.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def verdicts(asked: Setting, tested: Sequence[Validated]) -> Iterator[bool]:
    """Yield whether each error is no larger than asked, and print it."""
    errors, regret = Errors.of(tested), Regret.of(tested)
    if errors is None or regret is None:
        raise SystemExit("nothing was measured")
    worst = max(abs((one.ratio or 1) - 1) for one in tested)
    for what, got, most in (
        (f"median error of {errors.cases} cases", errors.error_median, asked.median),
        ("90th percentile", errors.error_p90, asked.tail),
        ("largest error", worst, asked.each),
    ):
        if most is not None:
            yield verdict(what, got, most)
    hidden = "reached but for noise" if regret.held_out <= REGRET else "**missed**"
    print(f"- {regret.text}, asked {REGRET}: {'reached' if regret.mean <= REGRET else hidden}\n")
    yield regret.held_out <= REGRET


if __name__ == "__main__":
    sys.exit(
        run_settings(
            "Compare predictions with measurements on the testbed.", SETTINGS, measure, print_errors
        )
    )
