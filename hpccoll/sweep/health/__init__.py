"""The health check of the node on which it runs, for ``hpccoll diagnose --here``; no Slurm, no other node."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpccoll.common.text import Finding, warning
from hpccoll.diagnosis.node_health import Fact, NodeState
from hpccoll.host.gpu_stack import ROOT
from hpccoll.host.machine_load import LoadSample, load_between, read_load
from hpccoll.store.host_load import HostLoad, describe_busy
from hpccoll.sweep.health import devices, rates
from hpccoll.sweep.health.checked_node import CheckedNode, MeasurementError

CHECKS: tuple[Callable[[CheckedNode], NodeState], ...] = (
    devices.host,
    rates.memory_copies,
    rates.all_reduce,
    devices.gpus,
    rates.gpu_copies,
    rates.nccl_all_reduce,
    devices.ports,  # last: errors are counted while the others run
)

USUAL_S = 30.0
"""The seconds after which a check ends, whatever hangs. Slurm ends its HealthCheckProgram after 60 s."""

LEAST_SHARE = 0.05
"""The part of the CPUs that other processes must use to explain a low rate: less costs less than the tolerance."""


def check_node(seconds: float = USUAL_S, root: Path = ROOT) -> NodeState:
    """Check this node, and return what was measured and read.

    Args:
        seconds: after that time no measurement goes on.
        root: the directory that contains dev, proc and sys.
    """
    before = read_load(root)
    node = CheckedNode(time.monotonic() + seconds, root)
    measured_rates: dict[str, float] = {}
    facts: dict[str, Mapping[str, Fact]] = {}
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            state = check(node)
        except MeasurementError as error:
            findings.append(error.finding)
            continue
        measured_rates |= state.rates
        facts |= state.facts
        findings += state.findings
    other_load = _others(before, read_load(root), node.cpus)
    return NodeState(
        rates=measured_rates,
        facts=facts,
        findings=[_beside_others(finding, other_load) for finding in findings],
        other_load=other_load,
    )


def _others(before: LoadSample | None, after: LoadSample | None, cpus: int) -> str:
    """Return what else used the node between two samples, in words; empty if it was too little to matter."""
    if before is None or after is None:
        return ""
    fields: Mapping[str, Any] = load_between(before, after, [os.getpid()])
    load = HostLoad.from_json(fields)
    if load.other_cores < LEAST_SHARE * cpus and not load.was_stolen:
        return ""
    return describe_busy([load])


def _beside_others(finding: Finding, other_load: str) -> Finding:
    """Return a measurement that did not end as one that cannot tell, if something else used the node."""
    if finding.kind != "hangs" or not other_load:
        return finding
    return warning("slow_beside_others", f"{finding.text}, while {other_load}", **finding.values)
