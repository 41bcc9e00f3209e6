"""The node that is checked, and the time that its checks have."""

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hpccoll.common.text import Finding, critical, warning
from hpccoll.host.gpu_stack import ROOT, gpu_addresses
from hpccoll.host.network_ports import Counters, find_ports, read_counters
from hpccoll.sweep.health.bounded_child import ChildResult, run_bounded

LEAST_S = 0.5
"""Seconds that a measurement needs at least: with less time left it does not begin."""

GPU_STATE_S = 10.0
"""Seconds in which NVML answers; a driver that initialises eight GPUs takes a few."""

OF_LAUNCHERS = ("SLURM_", "PMI_", "PMIX_", "OMPI_COMM_", "OMPI_UNIVERSE_", "MPI_LOCAL")
"""How variables of a launch begin: mpiexec would take this node for a part of that launch."""


class MeasurementError(Exception):
    """A measurement without a result; ``finding`` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


@dataclass
class CheckedNode:
    """The node on which this process runs."""

    until: float  # when all checks end, on the monotonic clock
    root: Path = ROOT  # contains dev, proc and sys
    counters_before: Counters = field(init=False)  # of its network ports

    def __post_init__(self) -> None:
        self.counters_before = read_counters(find_ports(self.root / "sys"))

    @property
    def cpus(self) -> int:
        """The number of CPUs that this process may use."""
        return len(os.sched_getaffinity(0))

    @cached_property
    def gpus(self) -> Sequence[str]:
        """The PCI bus addresses of the GPUs that the driver knows."""
        return [bus.lower() for bus in gpu_addresses(self.root)]

    @cached_property
    def gpu_answer(self) -> Mapping[str, Mapping[str, Any]] | MeasurementError:
        """What NVML says of the GPUs, by their addresses (``gpu_health``); empty without NVML.

        An error if the driver does not answer, which is asked once.
        """
        if not self.gpus:
            return {}
        try:
            answer = self.ask("hpccoll.host.gpu_health", "the state of the GPUs", GPU_STATE_S)
        except MeasurementError as error:
            return error
        return {bus.lower(): state for bus, state in (answer or {}).items()}

    @property
    def gpu_states(self) -> Mapping[str, Mapping[str, Any]]:
        """What NVML says of the GPUs.

        Raises:
            MeasurementError: if the driver does not answer.
        """
        if isinstance(self.gpu_answer, MeasurementError):
            raise self.gpu_answer
        return self.gpu_answer

    @property
    def answering_gpus(self) -> Sequence[str]:
        """The addresses of the GPUs that can be measured."""
        if isinstance(self.gpu_answer, MeasurementError):
            return ()
        return [bus for bus in self.gpus if "error" not in self.gpu_answer.get(bus, {})]

    @property
    def has_unused_gpus(self) -> bool:
        """Whether NVML names no process that computes on a GPU."""
        return not any(state.get("processes") for state in self.gpu_states.values())

    def ask(self, module: str, name: str, limit_s: float) -> Any:
        """Return the JSON that a module prints as a program.

        Raises:
            MeasurementError: if it fails, or does not end in time.
        """
        child = self.run([sys.executable, "-m", module], name, limit_s)
        try:
            return json.loads(child.out)
        except ValueError:
            raise measurement_failed(name, child.error or f"exit code {child.code}") from None

    def run(self, command: Sequence[str], name: str, limit_s: float) -> ChildResult:
        """Run a program of a measurement, and return how it ended.

        Raises:
            MeasurementError: if it cannot start, or does not end in time.
        """
        left_s = self.until - time.monotonic()
        if left_s < LEAST_S:
            raise measurement_failed(name, "no time left")
        try:
            child = run_bounded(command, min(limit_s, left_s), _environment())
        except OSError as error:
            raise measurement_failed(name, str(error)) from None
        if child.code is not None:
            return child
        if left_s < limit_s:  # other checks, or the user, left it less time than it may need
            raise measurement_failed(name, f"it did not end in the {left_s:.0f} s that were left")
        text = f"{name} did not end within {limit_s:.0f} s"
        raise MeasurementError(critical("hangs", text, name=name, seconds=limit_s))


def measurement_failed(name: str, why: str) -> MeasurementError:
    """Return the error of a measurement that says nothing about the node."""
    return MeasurementError(warning("check_failed", f"{name}: {why}", name=name))


def _environment() -> dict[str, str]:
    """Return the environment of measurements: without the launch that this process is part of."""
    kept = dict(os.environ)
    for name in os.environ:
        if name.startswith(OF_LAUNCHERS):
            del kept[name]
    programs = Path(sys.executable).parent
    kept["PATH"] = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    kept["OPENBLAS_NUM_THREADS"] = "1"
    return kept
