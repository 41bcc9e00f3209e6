"""What ``hpccoll train --model digits`` learns: the tables of ``results/golden/digits.md``.

    python tests/benchmarks/digits.py                  # about ten minutes on two cores

Ranks of this machine train for all 225 steps. Other seeds than that of the suite are trained in
this process, where each of four ranks sends its largest gradients.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from hpccoll.extensions.steps.measure.codecs import largest_positions
from hpccoll.extensions.steps.measure.digits_replica import Digits, Replica
from hpccoll.extensions.steps.training.models.digits import RATE, SEED, STEPS
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.store.load_results import read_results

ALGORITHMS = "ring,rabenseifner,hierarchical,native"
COMPRESSIONS = "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "topk=1%"
SEEDS, RANKS = range(24), 4


def trained(ranks, *options):
    """Return the rows of trainings on so many ranks."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "digits.h5"
        command = [
            "mpiexec",
            "-n",
            str(ranks),
            sys.executable,
            "-m",
            "hpccoll",
            "train",
            "--model",
            "digits",
        ]
        subprocess.run(
            [*command, "--rounds", "1", "--out", out, *options],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return read_results([out]).rows


def line(row):
    serial = "equal" if row.serial_difference == 0 else f"{row.serial_difference:.1e}"
    compress, feedback = row.params.get("compress", "none"), row.params.get("feedback", 0)
    phases = (row.shard_s, row.gradients_s, row.communication_s, row.update_s, row.median_s)
    return (
        f"| {row.ranks} | {row.algorithm} | {compress}{', feedback' if feedback else ''} | {row.iterations} | "
        f"{row.diverged_steps} | {serial} | {row.loss:.3f} | {row.accuracy:.3f} | {row.weights[:8]} | "
        + " | ".join(f"{1e3 * each:.2f}" for each in phases)
        + " |"
    )


def accuracy_of_seed(seed, kept, *, feedback):
    """Return the accuracy of a training with another seed, dense if it keeps all."""
    data, (program,) = (
        Digits.read(seed),
        TrainingStep.of({"model": "digits"}).programs(RANKS, "float32"),
    )
    weights = data.initial_weights()
    gradients, left = (
        np.zeros((RANKS, len(weights)), np.float32),
        np.zeros((RANKS, len(weights)), np.float32),
    )
    replicas = [
        Replica(data, program, [own], weights, (rank, RANKS), micro_batches=1, mean=False)
        for rank, own in enumerate(gradients)
    ]
    for _ in range(STEPS):
        for rank, replica in enumerate(replicas):
            replica.compute_all()
            own, sent = gradients[rank] + left[rank], np.zeros(len(weights), np.float32)
            if kept < 1:
                at = largest_positions(own, int(np.ceil(kept * len(own))))
                sent[at] = own[at]
                left[rank], gradients[rank] = (own - sent) * feedback, sent
        gradients[0] = gradients.sum(0)
        replicas[0].end_step()
        for each in replicas[1:]:
            each.step += 1
    return replicas[0].accuracy()


print(f"\n## Trainings\n\nSeed {SEED}, rate {RATE}; times in ms, medians.\n")
print(
    "| ranks | algorithm | compression | steps | steps after which ranks differ | serial run | loss | accuracy | "
    "weights | shard | gradients | all-reduce | update | step |"
)
print("| --: | --- | --- | --: | --: | --- | --: | --: | --- | --: | --: | --: | --: | --: |")
for ranks in range(1, 5):
    for row in trained(ranks, "-a", ALGORITHMS):
        print(line(row), flush=True)
for ranks in range(2, 5):
    for row in trained(
        ranks, "-a", "ring", "--compress", ",".join(COMPRESSIONS), "--feedback", "0,1"
    ):
        print(line(row), flush=True)
print(
    f"\n## {len(SEEDS)} seeds, {RANKS} ranks\n\n| compression | mean | standard deviation | lowest | highest |"
)
print("| --- | --: | --: | --: | --: |")
for name, kept, feedback in (
    ("none", 1.0, 0),
    ("topk=1%", 0.01, 0),
    ("topk=1%, feedback", 0.01, 1),
):
    found = [accuracy_of_seed(seed, kept, feedback=feedback) for seed in SEEDS]
    print(
        f"| {name} | {mean(found):.3f} | {stdev(found):.3f} | {min(found):.3f} | {max(found):.3f} |",
        flush=True,
    )
