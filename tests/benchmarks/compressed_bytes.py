"""The bytes of compressed gradients on the wires of the testbed, beside those of the formulas.

    python tests/benchmarks/compressed_bytes.py --keep DIR      # 2, 4 and 8 hosts: about 10 minutes
    python tests/benchmarks/compressed_bytes.py --read DIR      # from raw files that were kept

A step of resnet50, 25.6 million gradients, on one rank of each host. The ports count frames:
headers are taken off by the ratio that full frames of the MTU have. The table is that of
results/golden/compression.md.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from tables import print_table
from testbed_bench import run_settings, run_testbed, verdict

from hpccoll.analysis.wire_bandwidth import Wire, add_headers
from hpccoll.extensions.steps.training.compressed_bucket import part_bytes
from hpccoll.extensions.steps.training.compression import Compression
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.store.call_key import call_arguments
from hpccoll.store.load_results import read_results

HOSTS = ("2", "4", "8")
NAME = "codec"
COMPRESSIONS = "none", "fp16", "fp8_e4m3", "topk=1%"
TRAIN = f"hpccoll train -a ring --compute none --compress {','.join(COMPRESSIONS)} -n 2 -w 0"


def measure(hosts: str, keep: Path) -> None:
    out = keep / f"{hosts}.h5"
    if out.exists():
        return
    bed = "--name", NAME
    try:
        run_testbed("up", *bed, "--nodes", hosts, "--cpus", "1", "--rate", "1gbit")
        command = f"srun -N {hosts} -n {hosts} --mpi=pmi2 {TRAIN} --out {out}"
        run_testbed("run", *bed, *command.split())
    finally:
        run_testbed("down", *bed, check=False)


def formula(text: str, ranks: int, dtype: str = "float32") -> float:
    """Return the bytes that all ranks send in a step, by the formula of each compression."""
    (program,) = TrainingStep.of({"model": "resnet50"}).programs(ranks, dtype)
    sizes = [bucket.elements for bucket in program.buckets]
    if text.startswith("topk"):
        return sum(8 * ranks * (ranks - 1) * Compression.parse(text).kept_of(n) for n in sizes)
    # parts, their sums with a scale each, and the largest magnitude of all
    if text.startswith("fp8"):
        return sum((ranks - 1) * (ranks * (2 * part_bytes(n, ranks) + 4) + 2 * 4) for n in sizes)
    return sum(2 * (ranks - 1) * n * (2 if text == "fp16" else 4) for n in sizes)


def show(hosts: str, keep: Path) -> Iterator[bool]:
    results, ranks = read_results([keep / f"{hosts}.h5"]), int(hosts)
    wire = Wire.of(next(iter(results.runs)))
    rows, worst, dense = [], 0.0, formula("none", ranks)
    for row in sorted(
        results.rows, key=lambda row: COMPRESSIONS.index(call_arguments(row)["compress"])
    ):
        text = call_arguments(row)["compress"]
        expected, counted, ports = (
            formula(text, ranks),
            row.wire_bytes_predicted,
            row.wire_bytes_measured,
        )
        without = ports / (add_headers(counted, wire.mtu) / counted)
        worst = max(worst, abs(without / expected - 1))
        rows.append(
            (
                text,
                f"{expected / 1e6:.3f}",
                f"{counted / 1e6:.3f}",
                f"{without / 1e6:.3f}",
                f"{without / expected:.4f}",
                f"{expected / dense:.4f}",
                row.wrong,
            )
        )
    print(f"\n{hosts} hosts\n")
    head = (
        "compression",
        "formula (MB):",
        "counted (MB):",
        "ports (MB):",
        "ports / formula:",
        "of dense:",
        "wrong:",
    )
    print_table(head, rows)
    yield verdict("the ports differ from the formula by", worst, 0.01)
    yield verdict(
        "steps with wrong means",
        sum(bool(row.wrong) for row in results.rows) / len(results.rows),
        0.0,
    )


if __name__ == "__main__":
    sys.exit(run_settings(__doc__ or "", HOSTS, measure, show, "HOSTS"))
