"""The conditions for which choices hold: the machine, its MPI library, the executor, and what a time is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions for which choices hold."""

    machine: str  # the machine, in a line; empty if unknown
    mpi: str  # the version text of the MPI library; empty if unknown
    executor: str
    kind: str | None = None  # the kind of the measurements; None of a choice that was not measured yet
    rule: str | None = None  # the rule for the time of an operation, likewise

    @property
    def label(self) -> str:
        """The conditions under which a table is used, for people."""
        mpi, machine = self.mpi or "an unknown MPI", self.machine or "an unknown machine"
        return f"{machine} with {mpi} and the {self.executor} executor"

    @property
    def words(self) -> tuple[str, ...]:
        return self.machine, self.mpi, f"{self.executor} executor", self.kind or "", f"rule {self.rule}"


def machine_name(machine: str, provenance: Mapping[str, Any]) -> str:
    """Return the machine of a run, as the run recorded it, in a line; on a testbed with the rates of its wires."""
    testbed = provenance.get("testbed") or {}
    rates = [f"{name} {testbed[key]}" for name, key in (("wires", "rate"), ("uplinks", "uplink")) if testbed.get(key)]
    return ", ".join((machine, *rates))


def recorded_mpi_version(provenance: Mapping[str, object]) -> str:
    """Return the version text of a run's MPI library; empty if unknown."""
    mpi = provenance.get("mpi")
    return str(mpi.get("version", "")) if isinstance(mpi, Mapping) else ""
