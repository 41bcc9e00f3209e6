"""From which rate of the network downward compression pays: predicted blind, and measured on the testbed.

By hand, as root, on an idle machine with two CPUs or more, a few minutes a rate:

    python tests/benchmarks/compression_pays.py                # prints the tables of results/golden/compression_pays.md
    python tests/benchmarks/compression_pays.py --keep DIR     # keeps the raw files in DIR
    python tests/benchmarks/compression_pays.py --read DIR     # prints the tables of raw files kept there
    python tests/benchmarks/compression_pays.py --predict      # prints the table of GPUs alone, which measures nothing

The machine and its codecs are fitted at 1 Gbit/s on two hosts, of one rank and CPU each, so that no
codec waits for a CPU. Steps at 100 Mbit/s are then predicted, and so is the rate below which each
compression pays; steps at three rates around that of BRACKETED show where it does. It ends with 1
if a figure is not as asked.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tables
import yaml
from testbed_bench import run_testbed, verdict

from hpccoll.common.units import format_bit_rate
from hpccoll.extensions.steps.model.step_prediction import (
    ComputeRate,
    StepPrediction,
    StepRequest,
    predict_steps,
)
from hpccoll.extensions.steps.training.compression import DENSE, compressions
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.parallelism import Mesh, Parallelism
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.model.machine_file import MachineFile, read_machine
from hpccoll.model.run_model import models_of
from hpccoll.store.load_results import read_results
from hpccoll.store.result_files import read_all
from hpccoll.store.rows import Row

COMPRESSIONS = [DENSE, "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "topk=1%"]
BRACKETED = "fp16"
AROUND = 0.7, 1.0, 1.4
"""The rates around that of BRACKETED, in parts of it."""

NAME, HOSTS = "pays", "--nodes 2 --cpus 1"
FITTED, BLIND = 1000, 100
"""Rates in Mbit/s: to which the machine is fitted, and at which steps are predicted."""

EFFORT = {"warmup": 1, "min_iterations": 6, "max_iterations": 12, "seconds": 2}
WORKLOAD = {"model": "resnet50", "scale": 8, "compute_us": 50_000, "overlap": 0}
STEPS: dict[str, Any] = {
    "workloads": [{**WORKLOAD, "compress": COMPRESSIONS}],
    "algorithms": ["ring", "null"],
    "nodes": [2],
    "effort": EFFORT,
    "rounds": 2,
    "seed": 1,
}
PATTERNS: dict[str, Any] = {
    "collectives": ["send_recv", "bidirectional", "gather", "reduce_scatter", "all_gather"],
    "algorithms": ["ping_pong", "exchange", "train", "direct", "ring"],
    "params": {"train": {"messages": [1, 8], "copies": [0, 128]}},
    "bytes": [8, 512, "8K", "64K", "1M", "4M", "16M"], "in_place": [False], "nodes": [2],
    "effort": {"warmup": 1, "min_iterations": 1, "max_iterations": 200, "seconds": 0.2, "precision": 0.02},
    "rounds": 2, "seed": 1,
}  # fmt: skip
FOLDS = PATTERNS | {
    "collectives": ["reduce_scatter", "all_gather"], "algorithms": ["ring"], "params": {},
    "bytes": ["64K", "256K", "1M", "4M"], "dtypes": ["float16", "bfloat16"],
}  # fmt: skip
BLIND_ERROR = 0.20
"""The largest error that is asked of a step at the rate at which nothing was measured."""

GPUS = {"400 Gbit/s": ("8xh100-400g", 1.0), "100 Gbit/s": ("8xh100-400g", 0.25)}
GPU_NODES = [2, 8]


def measure(rate: int, sweeps: Mapping[str, Mapping[str, Any]], keep: Path) -> None:
    """Measure sweeps at a rate in Mbit/s into ``keep``."""
    try:
        run_testbed("up", "--name", NAME, *HOSTS.split(), "--rate", f"{rate}mbit")
        for name, sweep in sweeps.items():
            out = keep / f"{rate}-{name}"
            out.with_suffix(".yaml").write_text(yaml.safe_dump(dict(sweep)))
            command = (
                "hpccoll",
                "sweep",
                str(out.with_suffix(".yaml")),
                "--profile",
                "testbed",
                "--out",
                str(out),
            )
            run_testbed("run", "--name", NAME, *command)
    finally:
        run_testbed("down", "--name", NAME, check=False)


def fitted(keep: Path) -> MachineFile:
    raw = read_all(sorted(each for each in keep.glob(f"{FITTED}-*") if each.is_dir())).raw_results
    return next(model.machine_file() for model in models_of(raw) if model.machine)


def measured(keep: Path, rate: int) -> dict[str, Row]:
    """Return the steps at a rate, by compression."""
    rows = read_results([keep / f"{rate}-steps"]).rows
    usable = [
        row
        for row in rows
        if row.collective == "training_step" and row.status == "ok" and not row.floor
    ]
    return {str(row.params.get("compress", DENSE)): row for row in usable}


def predicted(machine: MachineFile) -> dict[str, StepPrediction]:
    """Return the predicted steps on two hosts, by compression."""
    workload = TrainingStep.of(WORKLOAD)
    request = StepRequest(
        workload.shape(),
        [2],
        ComputeRate(step_s=workload.compute_us * 1e-6),
        parallelism=Parallelism(Mesh(), workload.parallelism(2, "float32").buckets, overlap=False),
        algorithm="ring",
        compressions=compressions(",".join(COMPRESSIONS)),
    )
    return {each.compress or DENSE: each for each in predict_steps(machine, request).predictions}


def crossing(keep: Path, rates: Iterable[int], compress: str) -> float:
    """Return the rate at which both steps take as long, in bits a second: the difference is a + b / rate."""
    steps = {rate: measured(keep, rate) for rate in rates}
    longer = [(of[compress].median_s or 0.0) - (of[DENSE].median_s or 0.0) for of in steps.values()]
    slope, offset = np.polyfit([1 / (1e6 * rate) for rate in steps], longer, 1)
    return float(-slope / offset) if offset > 0 else float("inf")


def show(keep: Path) -> Iterator[bool]:
    machine = fitted(keep)
    likely, slow = predicted(machine), predicted(machine.with_network(BLIND / FITTED))
    now, blind = measured(keep, FITTED), measured(keep, BLIND)
    rates = sorted(
        int(each.name.partition("-")[0]) for each in keep.glob("*-steps") if each.is_dir()
    )
    around = [rate for rate in rates if rate not in (FITTED, BLIND)]
    print(
        "## Two hosts of the testbed, resnet50/8\n\nTimes are in ms; *codec* is that of the step.\n"
    )
    heads = (
        f"step at {FITTED} Mbit/s | predicted | codec | at {BLIND} Mbit/s "
        f"| predicted | error | pays below | measured"
    )
    print(f"| compression | {heads} | interval |\n| --- |{' --: |' * 8} --- |")
    errors = {}
    for name in COMPRESSIONS:
        one, then, pays = likely[name], blind[name].median_s or 0.0, likely[name].pays
        errors[name] = abs(slow[name].step.step_s / then - 1)
        ends = f"{format_bit_rate(pays.low)} to {format_bit_rate(pays.high)}" if pays else ""
        cells = (
            [format_bit_rate(each) for each in (pays.likely, crossing(keep, rates, name))]
            if pays
            else ["", ""]
        )
        print(
            f"| {name} | {1e3 * (now[name].median_s or 0):.0f} | {1e3 * one.step.step_s:.0f} "
            f"| {1e3 * one.step.codec_s:.0f} | {1e3 * then:.0f} | {1e3 * slow[name].step.step_s:.0f} "
            f"| {errors[name]:.1%} | {' | '.join(cells)} | {ends} |"
        )
    print()
    yield verdict(f"largest error of a step at {BLIND} Mbit/s", max(errors.values()), BLIND_ERROR)
    pays = likely[BRACKETED].pays
    for rate in around:
        steps = measured(keep, rate)
        both = (1e3 * (steps[name].median_s or 0.0) for name in (DENSE, BRACKETED))
        print(
            f"- at {rate} Mbit/s: {next(both):.0f} ms without, {next(both):.0f} ms with {BRACKETED}"
        )
    if around and pays:
        found = crossing(keep, around, BRACKETED)
        text = f"{format_bit_rate(found)}, interval {format_bit_rate(pays.low)} to {format_bit_rate(pays.high)}"
        yield tables.verdict(
            f"both take as long with {BRACKETED}", text, pays.low <= found <= pays.high
        )
    show_gpus()


def show_gpus() -> None:
    print("\n## 8 H100 a node, resnet50 and 30 ms of computation: predicted\n")
    print(
        "| network | GPUs | compression | codec us | exposed us | pays below | interval |\n"
        "| --- | --: | --- | --: | --: | --: | --- |"
    )
    for network, (cluster, factor) in GPUS.items():
        request = StepRequest(
            model_of("resnet50"),
            GPU_NODES,
            ComputeRate(step_s=0.03),
            compressions=compressions(",".join(COMPRESSIONS)),
        )
        for one in predict_steps(
            read_machine(cluster, "--cluster").with_network(factor), request
        ).predictions:
            words = (
                one.pays.text.removeprefix("pays ").partition(" (") if one.pays else ("", "", "")
            )
            print(
                f"| {network} | {one.layout.workers} | {one.compress or DENSE} | {1e6 * one.step.codec_s:.0f} "
                f"| {1e6 * one.step.exposed_s:.0f} | {words[0]} | {words[2].removesuffix(')')} |"
            )


def main() -> int:
    parse = argparse.ArgumentParser(
        description="From which rate of the network downward does compression pay?"
    )
    parse.add_argument("--keep", type=Path, help="directory of the raw files [a temporary one]")
    parse.add_argument(
        "--read", type=Path, help="directory of raw files that were kept: nothing is measured"
    )
    parse.add_argument("--predict", action="store_true", help="print the table of GPUs alone")
    given = parse.parse_args()
    if given.predict:
        show_gpus()
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        keep = (given.read or given.keep or Path(temporary)).resolve()
        keep.mkdir(parents=True, exist_ok=True)
        if not given.read:
            measure(FITTED, {"patterns": PATTERNS, "folds": FOLDS, "steps": STEPS}, keep)
            pays = predicted(fitted(keep))[BRACKETED].pays
            assert pays, "the testbed has no network"
            around = [round(part * pays.likely / 1e6) for part in AROUND]
            print(
                f"{BRACKETED} {pays.text}: predicted before steps at {BLIND} and {around} Mbit/s",
                file=sys.stderr,
            )
            for rate in (BLIND, *around):
                measure(rate, {"steps": STEPS}, keep)
        return 0 if all([*show(keep)]) else 1


if __name__ == "__main__":
    sys.exit(main())
