"""What a node copies and reduces alone: its memory, its GPUs, and all-reduce among ranks in the node."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hpccoll.common.errors import BadInputError
from hpccoll.common.text import Finding, absent, critical
from hpccoll.common.units import format_count
from hpccoll.diagnosis.node_health import NodeState
from hpccoll.store.load_results import read_results
from hpccoll.sweep.health.checked_node import CheckedNode, measurement_failed
from hpccoll.sweep.paths import mpiexec_command

HANGS_S = 20.0
"""The seconds after which a measurement counts as hanging; each takes 1 to 5 s on a healthy node."""

ON_HOST = ("-b", "4M", "-e", "4M")
ON_GPUS = ("--device", "cuda", "-t", "nccl", "-b", "256M", "-e", "256M")
"""The sizes of all-reduce, at which its rate depends on memory or NVLink more than on latency."""

EFFORT = ("-a", "native", "--in-place", "-n", "50", "--seconds", "0.5", "--rounds", "3")


def memory_copies(node: CheckedNode) -> NodeState:
    """Measure the copies of all CPUs together."""
    answer = node.ask("hpccoll.measure.diagnose.node_copies", "memory copies", HANGS_S)
    return NodeState(rates={f"memory copies on {answer['cpus']} CPUs": answer["rate"]})


def all_reduce(node: CheckedNode) -> NodeState:
    """Measure MPI's all-reduce between two ranks, which need a CPU each."""
    name = "all-reduce of 2 ranks"
    if node.cpus < 2:
        return _skipped(name, "this process may use one CPU only")
    return _measure_all_reduce(node, name, 2, ON_HOST)


def gpu_copies(node: CheckedNode) -> NodeState:
    """Measure the copies of each GPU, unless another process computes on one."""
    if not node.answering_gpus:
        return NodeState()
    name = "copies of GPUs"
    if not node.has_unused_gpus:
        return _skipped(name, "another process computes on a GPU")
    answer = node.ask("hpccoll.measure.diagnose.gpu_copies", name, HANGS_S)
    if "skipped" in answer:
        return _skipped(name, answer["skipped"])
    rates = {}
    for bus, rates_of_gpu in answer["rates"].items():
        for direction, rate in rates_of_gpu.items():
            rates[f"GPU {bus} {direction}"] = rate
    return NodeState(rates=rates, findings=list(_failed_gpus(answer["failed"])))


def _failed_gpus(failed: dict[str, str]) -> Iterator[Finding]:
    for bus, why in failed.items():
        yield critical("gpu_fails", f"GPU {bus} fails: {why}", bus=bus)


def nccl_all_reduce(node: CheckedNode) -> NodeState:
    """Measure NCCL's all-reduce among all GPUs, a rank on each."""
    count = len(node.answering_gpus)
    if count < 2:
        return NodeState()
    name = f"NCCL all-reduce of {format_count(count, 'GPU')}"
    if not node.has_unused_gpus:
        return _skipped(name, "another process computes on a GPU")
    return _measure_all_reduce(node, name, count, ON_GPUS)


def _measure_all_reduce(
    node: CheckedNode, name: str, ranks: int, options: Sequence[str]
) -> NodeState:
    """Return the bus bandwidth that ``hpccoll run`` measures in this node."""
    try:
        launcher = mpiexec_command()
    except BadInputError as error:
        return _skipped(name, str(error))
    with TemporaryDirectory(prefix="hpccoll-") as directory:
        out = Path(directory) / "all_reduce.h5"
        program = [sys.executable, "-m", "hpccoll", "run", *options, *EFFORT, "--out", str(out)]
        child = node.run([*launcher, "-n", str(ranks), *program], name, HANGS_S)
        if not out.exists():
            why = child.error or f"exit code {child.code}"
            raise measurement_failed(name, why)
        results = read_results([out])
    if not results.rows:
        reasons = [gap.reason for gap in results.skipped]
        return _skipped(name, "; ".join(reasons) or "not measured")
    (row,) = results.rows
    if row.status == "wrong":
        wrong = critical("wrong_result", f"{name}: its result is wrong", name=name)
        return NodeState(findings=[wrong])
    if row.busbw_Bps is None:
        raise measurement_failed(name, str(row.reason))
    return NodeState(rates={name: row.busbw_Bps})


def _skipped(name: str, why: str) -> NodeState:
    return NodeState(findings=[absent("rate_skipped", f"{name}: {why}", name=name)])
