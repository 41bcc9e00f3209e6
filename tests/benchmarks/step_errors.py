"""How far predicted training steps are from measured ones on the testbed, and what the best bucket size is.

By hand, as root, on an idle machine:

    python tests/benchmarks/step_errors.py                    # both rates, about 40 minutes
    python tests/benchmarks/step_errors.py 1gbit --keep DIR   # one of them; keeps the raw files in DIR
    python tests/benchmarks/step_errors.py 1gbit --read DIR   # prints the tables of raw files kept there

The machine is fitted to the patterns of calibrate.yaml on at most 4 nodes. It ends with 1 if an
error is larger than asked.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from model_errors import CALIBRATE, CPU_RATE, CPUS
from testbed_bench import run_settings, run_sweep, run_testbed, verdict

from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_size
from hpccoll.extensions.steps.model.step_prediction import ComputeRate, StepRequest, predict_steps
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.model.machine_file import MachineFile
from hpccoll.model.machine_sections import DeclaredSections
from hpccoll.model.run_model import models_of
from hpccoll.store.load_results import read_results
from hpccoll.store.result_files import read_all
from hpccoll.store.rows import Row

HOSTS = "--nodes 8 --cpus 1 --aggregators 1"
EFFORT = {"warmup": 1, "min_iterations": 6, "max_iterations": 12, "seconds": 3}
STEPS = {
    "workloads": [{"model": "resnet50", "scale": 64, "compute_us": 200_000, "overlap": [1, 0]}],
    "algorithms": ["ring", "hierarchical", "sharp_emulated", "native", "null"],
    "nodes": [2, 4, 8],
    "aggregators": 1,
    "effort": EFFORT,
    "rounds": 3,
    "seed": 1,
}
BUCKETS = STEPS | {
    "workloads": [
        {
            "model": "resnet50",
            "scale": 64,
            "compute_us": 200_000,
            "bucket": ["2M", "5M", "10M", "25M", "50M", "100M"],
        }
    ],
    "algorithms": ["ring", "null"],
    "nodes": [4, 8],
    "aggregators": 0,
}
FASTER = 8
"""At 1 Gbit/s tensors are so many times larger than at 100 Mbit/s; eight ranks then move what two CPUs can."""

DECLARED: Mapping[str, dict[str, Any]] = {
    "100mbit": {},
    "1gbit": {"cpus": {**CPUS, "bytes_per_s": CPU_RATE}},
}
MEDIAN, HIDDEN, BUCKET = 0.10, 0.10, 0.05
"""What is asked: the median error of the step, what overlap hides over the step, and the cost of the named bucket."""


def scaled_sweep(sweep: Mapping[str, Any], rate: str) -> dict[str, Any]:
    """Return a sweep for a rate of the wires."""
    factor = FASTER if rate == "1gbit" else 1
    return {
        **sweep,
        "workloads": [{**each, "scale": each["scale"] // factor} for each in sweep["workloads"]],
    }


def sweeps(rate: str) -> dict[str, Mapping[str, Any]]:
    """Return the sweeps of a rate by name."""
    return {
        "calibrate": CALIBRATE,
        "steps": scaled_sweep(STEPS, rate),
        "buckets": scaled_sweep(BUCKETS, rate),
    }


def measure(rate: str, keep: Path) -> None:
    """Measure all sweeps of a rate into ``keep``."""
    try:
        run_testbed("up", *HOSTS.split(), "--rate", rate)
        for name, sweep in sweeps(rate).items():
            run_sweep(f"{rate}-{name}", sweep, keep)
    finally:
        run_testbed("down", check=False)


def fitted(rate: str, keep: Path) -> MachineFile:
    raw = read_all([keep / f"{rate}-calibrate"]).raw_results
    declared = DeclaredSections.model_validate(DECLARED[rate]) if DECLARED[rate] else None
    return next(model.machine_file() for model in models_of(raw, declared) if model.machine)


def predicted_s(machine: MachineFile, row: Row) -> float | None:
    """Return the predicted time of a measured step; None if the library's own algorithm ran."""
    workload = TrainingStep.of(row.params)
    if row.algorithm == "native":
        return None
    parallelism = workload.parallelism(row.ranks, row.dtype)
    compute = ComputeRate(step_s=workload.compute_us * 1e-6)
    if row.floor:
        return compute.step_s
    request = StepRequest(
        workload.shape(),
        [row.nodes],
        compute,
        workload.parallel,
        parallelism,
        algorithm=row.algorithm,
        aggregators=row.aggregators or None,
    )
    try:
        return predict_steps(machine, request).predictions[0].step.step_s
    except BadInputError as error:
        print(f"{row.algorithm} on {row.nodes} nodes: {error}", file=sys.stderr)
        return None


def steps(keep: Path, rate: str, name: str) -> list[Row]:
    rows = read_results([keep / f"{rate}-{name}"]).rows
    return [
        row
        for row in rows
        if row.collective == "training_step" and row.status == "ok" and row.median_s
    ]


def print_steps(rate: str, keep: Path, machine: MachineFile) -> Iterator[bool]:
    """Print measured and predicted steps, and yield whether each figure is as asked."""
    by_case: dict[tuple[int, str], dict[int, Row]] = defaultdict(dict)
    for row in steps(keep, rate, "steps"):
        by_case[row.nodes, row.algorithm][int(row.params.get("overlap", 1))] = row
    errors, hidden_errors, nulls = [], [], []
    print(
        "| nodes | algorithm | step ms | predicted | no overlap | predicted | exposed | share | hidden | predicted |"
    )
    print("| --: | --- | --: | --: | --: | --: | --: | --: | --: | --: |")
    for (nodes, algorithm), rows in sorted(by_case.items()):
        overlapped, serial = rows[1], rows[0]
        floor = by_case[nodes, "null"][1].median_s or 0.0
        measured = [row.median_s or 0.0 for row in (overlapped, serial)]
        predicted = [predicted_s(machine, row) for row in (overlapped, serial)]
        hidden, exposed = measured[1] - measured[0], measured[0] - floor
        pairs = list(zip(measured, predicted, strict=True))
        cells = [f"{1e3 * value:.0f}" if value else "" for pair in pairs for value in pair]
        gained = (
            f"{1e3 * (predicted[1] - predicted[0]):.0f}" if predicted[0] and predicted[1] else ""
        )
        print(
            f"| {nodes} | {algorithm} | {' | '.join(cells)} | {1e3 * exposed:.0f} | {exposed / measured[0]:.0%} "
            f"| {1e3 * hidden:.0f} | {gained} |"
        )
        if algorithm == "null":
            nulls += [value / (each or value) - 1 for value, each in pairs]
        elif predicted[0] and predicted[1]:
            errors += [abs(value / each - 1) for value, each in pairs if each]
            hidden_errors.append(abs(hidden - (predicted[1] - predicted[0])) / measured[0])
    print()
    yield verdict(f"median error of {len(errors)} steps", median(errors), MEDIAN)
    yield verdict("what overlap hides, largest error over the step", max(hidden_errors), HIDDEN)
    print(f"- null: {max(nulls):.1%} longer than the computation at most\n")


def print_buckets(rate: str, keep: Path, machine: MachineFile) -> Iterator[bool]:
    """Print steps by bucket size, and yield whether the size named by the model is as good as asked."""
    for nodes in (4, 8):
        rows = {
            int(row.params["bucket"]): row
            for row in steps(keep, rate, "buckets")
            if row.nodes == nodes and row.algorithm == "ring"
        }
        predicted = {size: predicted_s(machine, row) or 0.0 for size, row in rows.items()}
        print(
            f"ring on {nodes} nodes\n\n| bucket | step ms | rounds | predicted |\n| --: | --: | --- | --: |"
        )
        for size, row in sorted(rows.items()):
            rounds = ", ".join(f"{1e3 * each:.0f}" for each in row.round_medians_s if each)
            print(
                f"| {format_size(size)} | {1e3 * (row.median_s or 0):.1f} | {rounds} | {1e3 * predicted[size]:.1f} |"
            )
        named = min(predicted, key=lambda size: predicted[size])
        best = min(row.median_s or 0.0 for row in rows.values())
        print()
        cost = (rows[named].median_s or 0.0) / best - 1
        yield verdict(f"{format_size(named)}, which the model names, over the best", cost, BUCKET)
    print()


def print_rate(rate: str, keep: Path) -> Sequence[bool]:
    machine = fitted(rate, keep)
    model, scale, compute_us, _ = sweeps(rate)["steps"]["workloads"][0].values()
    what = (
        f"{model}, tensors and buckets divided by {scale}, {compute_us // 1000} ms of computation"
    )
    print(f"## {rate}\n\n`testbed up {HOSTS} --rate {rate}`; {what}.\n")
    return [*print_steps(rate, keep, machine), *print_buckets(rate, keep, machine)]


if __name__ == "__main__":
    about = "Compare predicted training steps with measured ones."
    sys.exit(run_settings(about, DECLARED, measure, print_rate, metavar="RATE"))
