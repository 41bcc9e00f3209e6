"""A diagnosis as it was measured: every slot with its times, and what it takes to judge them again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from hpccoll.common.errors import UnusableError
from hpccoll.common.own_variables import NODE_NAME_VARIABLE
from hpccoll.diagnosis.cluster import judged_racks
from hpccoll.diagnosis.slot_records import LEAST_RACK, Diagnosis, Floats, Slots
from hpccoll.store.host_names import canonical_hosts, host_ranges

KEPT = "kept"
"""The key of the provenance of what was kept of a diagnosis before its end, to which it may not have come.

Its value is the time at which that was kept: ISO 8601, UTC; of earlier releases True.
"""


@dataclass(frozen=True, slots=True)
class MeasuredSlots:
    """Slots, and the times that were measured of them: of all, or of those up to the first without an answer."""

    slots: Slots
    seconds: Floats  # [slots, endpoints], as ``records.Procedure`` has them


@dataclass(frozen=True, slots=True)
class Question:
    """What a diagnosis is asked: the arguments of ``procedure.diagnose``, with names of nodes and racks."""

    hosts: tuple[str, ...]  # [nodes]
    seed: int
    # of shape [nodes]: the rack of each node; None if racks are unknown
    racks: tuple[str, ...] | None = None
    rails: int = 1
    links: bool | None = None
    expected_s: float | None = None

    @property
    def rack_names(self) -> tuple[str, ...]:
        """The names of the racks by their numbers."""
        return tuple(dict.fromkeys(self.racks or ()))

    @property
    def rack_numbers(self) -> list[int] | None:
        """The number of the rack of each node."""
        if not self.racks:
            return None
        numbers = {name: number for number, name in enumerate(self.rack_names)}
        return [numbers[name] for name in self.racks]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisOptions:
    """What a user asks of a diagnosis, before its nodes are known."""

    seed: int
    links: bool | None = None  # as in ``procedure.diagnose``
    # by host, with or without domain; None: Slurm's, if it has a topology
    racks: Mapping[str, str] | None = None
    uplinks: bool = False  # whether racks must be known, and enough to be judged
    expected_bytes_per_s: float | None = None  # the usual rate of a transfer; None if it is unknown
    together: bool | None = None  # as in ``Load``; None: if all nodes have RDMA ports
    # that of the memory, cpu or cuda; None: GPUs over NCCL if all ranks have one each
    device: str | None = None
    # how long a slot transfers, in seconds; None: as the rate and the noise ask for
    slot_s: float | None = None

    def question(
        self,
        hosts: Sequence[str],
        racks: Sequence[str] | None = None,
        rails: int = 1,
        expected_s: float | None = None,
    ) -> Question:
        """Return the question for known nodes.

        Args:
            hosts: their names.
            racks: the rack of each node, where the user does not say it; None if it is unknown.
            rails: how many ports each node has.
            expected_s: the usual time of a transfer.

        Raises:
            UnusableError: if the user gives racks, but none for a host, or wants uplinks, and racks
                do not help.
        """
        if self.racks is not None:
            names = canonical_hosts([*self.racks, *hosts])
            rack_of = {names[host]: rack for host, rack in self.racks.items()}
            if missing := [host for host in hosts if names[host] not in rack_of]:
                raise UnusableError("--racks", f"no rack is given for {host_ranges(missing)}")
            racks = [rack_of[names[host]] for host in hosts]
        if racks is not None:
            racks = tuple(racks)
        question = Question(tuple(hosts), self.seed, racks, rails, self.links, expected_s)
        if self.uplinks and not judged_racks(question.rack_numbers or ()).size:
            racks_text = "they are unknown"
            if racks:
                racks_text = f"there are {len(question.rack_names)}, of {len(hosts)} nodes"
            needed = f"uplinks are judged among at least {LEAST_RACK} racks of at least {LEAST_RACK} nodes"
            raise UnusableError("--uplink", f"{needed}, and {racks_text}; do: --racks FILE")
        return question


class StoppedError(Exception):
    """A signal ends the diagnosis.

    Args:
        rows: the times of the slots of the request that were measured before, each [endpoints].
    """

    def __init__(self, rows: Sequence[Floats]) -> None:
        super().__init__(rows)
        self.rows = rows


@dataclass(slots=True)
class Recorder:
    """Keeps the slots that a function measures, also those before a StoppedError."""

    measure: Callable[[Slots], Floats]
    measured: list[MeasuredSlots] = field(default_factory=list)

    def __call__(self, slots: Slots) -> Floats:
        try:
            seconds = self.measure(slots)
        except StoppedError as stopped:
            if stopped.rows:
                self.measured.append(MeasuredSlots(slots, np.array(stopped.rows)))
            raise
        self.measured.append(MeasuredSlots(slots, seconds))
        return seconds


@dataclass(frozen=True, slots=True)
class Load:
    """What was transferred in a slot, and how."""

    program: str  # "MPI", "NCCL", or the name of another program that made the transfers
    memory: str  # "host" or "GPU"
    bytes: int  # of the transfer whose seconds are recorded
    together: bool  # whether both directions of a pair transfer at once; in turn otherwise


@dataclass(frozen=True, slots=True)
class RecordedDiagnosis:
    """A diagnosis with all of its measurements."""

    question: Question
    load: Load
    measured: tuple[MeasuredSlots, ...]
    diagnosis: Diagnosis | None  # None if it was interrupted
    # by what was measured on each node alone (memory, ...): seconds [repetitions, nodes]
    rates: Mapping[str, Floats]
    kind: str  # what a result is: measured, measured on a testbed, ...
    machine: str
    # with run_id, begun (ISO 8601, UTC), hosts, versions, variables, ports, GPUs
    provenance: Mapping[str, object]

    @property
    def names_kubernetes_nodes(self) -> bool:
        """Whether ranks were given the names of their nodes, as pods of Kubernetes are."""
        return NODE_NAME_VARIABLE in self._variables

    @property
    def kept_at(self) -> str | None:
        """When a diagnosis without an end was kept last, empty if unknown; None if it ended, by a signal, too."""
        if KEPT not in self.provenance:
            return None
        try:
            moment = datetime.fromisoformat(str(self.provenance[KEPT]))
        except ValueError:
            return ""
        return moment.astimezone(UTC).isoformat(timespec="seconds")

    @property
    def slurm_job(self) -> str:
        """The Slurm job that it ran in; empty without one."""
        job = str(self._variables.get("SLURM_JOB_ID", ""))
        if not job.isdecimal():
            return ""
        return job

    @property
    def _variables(self) -> Mapping[str, object]:
        variables = self.provenance.get("variables")
        if not isinstance(variables, Mapping):
            return {}
        return variables
