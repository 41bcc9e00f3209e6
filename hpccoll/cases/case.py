"""Cases and jobs: what to measure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hpccoll.cases.keys import DEFAULT_OPERATIONS, EFFORT, SWEEP
from hpccoll.common.errors import BadInputError
from hpccoll.common.files import parse_json, read_text
from hpccoll.common.limits import (
    AGGREGATORS,
    FILE_NAME,
    JOB_BYTES,
    MAX_BYTES,
    MAX_CASES,
    MAX_NAMES,
    NAME,
    RANK,
    RANKS,
    ROUNDS,
    SEED,
    VALUE,
    VARIABLE_VALUE,
    AnyOf,
    Boolean,
    IntegerRange,
    ValueKind,
    check_fields,
    check_mapping,
)
from hpccoll.common.units import format_count

Parameter = int | str

COMPILED, PYTHON = "compiled", "python"
EXECUTORS = COMPILED, PYTHON
"""What runs schedules and the timing loop in host memory."""

SINGLE, AGGREGATED = "single", "aggregated"
TIMINGS = SINGLE, AGGREGATED
"""How operations on a GPU's stream are timed: one between two clock readings of the host, or many back to back."""

RUN_JOB = "run"
"""The name of the job that a command line of ``hpccoll run`` describes."""

MAX_ROUNDS = ROUNDS.maximum
LEAST_ITERATIONS = 6
"""With fewer samples not even the extremes enclose the median with 95 % confidence."""

PASS_S = 0.05
"""Seconds that a pass which counts the bytes of a case takes, if one operation is not longer."""
SETTLE_S = 0.011
"""Seconds between the last operation of that pass and the second reading of the counters.

hw_counters are read from the device again when they are older than their ``lifespan``, 10 ms (sysfs-class-infiniband).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One point of a sweep.

    Args:
        collective: the name of the collective, such as ``all_reduce``.
        algorithm: the registered name of the algorithm, ``native`` for the library's own collective, or ``auto`` for
            the choice of the job's table.
        transport: how bytes move: ``mpi``, ``shm`` or ``tiered``; between GPUs ``nccl``, ``mpi`` or ``staged``.
        device: where the buffers are: ``cpu`` or ``cuda``.
        dtype: the type of the elements, a name of NumPy or ``bfloat16``.
        op: the reduction; None if the collective does not reduce.
        bytes: the requested size S in bytes, as nccl-tests counts it; the case moves as many whole elements as fit.
        in_place: whether the contribution and the result share a buffer.
        root: the root of a rooted collective, or the first of two ranks; None for other collectives.
        params: the requested parameters of the algorithm and the transport, and the arguments of the collective
            (``peer``, ``traffic``, ``concurrent``).
        ranks: the number of workers; None for all workers of the job.
        nodes: the number of nodes with workers; None for all nodes of the job.
        mapping: how ranks are numbered over racks and nodes: ``block``, ``cyclic``, or None for the launcher's order.
        timing: how operations are timed, one of TIMINGS.
    """

    collective: str
    algorithm: str
    transport: str = "mpi"
    device: str = "cpu"
    dtype: str = "float32"
    op: str | None = "sum"
    bytes: int
    in_place: bool = False
    root: int | None = None
    params: Mapping[str, Parameter] = field(default_factory=dict)
    ranks: int | None = None
    nodes: int | None = None
    mapping: str | None = None
    timing: str = SINGLE

    @property
    def id(self) -> str:
        """The name of the case, unique within a job."""
        fields = [self.collective, self.algorithm, self.transport, self.device, self.dtype]
        fields += [self.op] if self.op else []
        fields += [f"{self.bytes}B", "in" if self.in_place else "out"]
        fields += [] if self.root is None else [f"root{self.root}"]
        # The id becomes part of file names: a parameter that is a path contributes only the name of its file.
        fields += [f"{name}={str(value).rpartition('/')[2]}" for name, value in sorted(self.params.items())]
        fields += [] if self.ranks is None else [f"p{self.ranks}"]
        fields += [] if self.nodes is None else [f"n{self.nodes}"]
        fields += [self.mapping] if self.mapping else []
        fields += [self.timing] if self.timing != SINGLE else []
        return ".".join(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a case is measured, summed over its rounds.

    Args:
        warmup: the number of iterations before the timed ones, in each round.
        min_iterations: the smallest number of timed iterations.
        max_iterations: the largest number of timed iterations.
        seconds: the wall time after which no iterations are added to the smallest number.
        precision: the half width of the 95 % confidence interval, relative to the median, at which a round converged.
        timeout: the seconds without progress after which a rank counts as stuck.
        rounds: how often a launch goes through all of its cases, each time in another order.
        operations: the number of operations of an iteration of an aggregated case.
    """

    warmup: int = 5
    min_iterations: int = 20
    max_iterations: int = 1000
    seconds: float = 1.0
    precision: float = 0.02
    timeout: float = 120.0
    rounds: int = 1
    operations: int = DEFAULT_OPERATIONS

    def __post_init__(self) -> None:
        for field_ in fields(self):
            if type(value := getattr(self, field_.name)) not in (int, float):
                raise BadInputError(f"effort.{field_.name}", value, "a number")
        minima = {"warmup": 0, "min_iterations": 1, "max_iterations": self.min_iterations, "operations": 1}
        for name, least in minima.items():
            if getattr(self, name) < least:
                raise BadInputError(f"effort.{name}", getattr(self, name), f"at least {least}")
        for name in ("seconds", "precision", "timeout"):
            if not getattr(self, name) > 0:
                raise BadInputError(f"effort.{name}", getattr(self, name), "more than 0")
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise BadInputError("effort.rounds", self.rounds, f"from 1 to {MAX_ROUNDS}")

    @property
    def of_a_round(self) -> "Effort":
        """The effort of one round.

        A round has enough iterations for an interval of their median, unless fewer were requested. The warm-up is not
        divided: each round has all of it.
        """
        share = -(-self.min_iterations // self.rounds)
        least = min(self.min_iterations, max(share, LEAST_ITERATIONS))
        most = max(least, -(-self.max_iterations // self.rounds))
        return replace(self, min_iterations=least, max_iterations=most, seconds=self.seconds / self.rounds, rounds=1)


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """The ranks and nodes of one launch; as text ``4x2`` (4 nodes with 2 ranks each), or ``4n:7p`` if uneven.

    Args:
        nodes: the number of nodes with workers.
        ranks: the number of workers.
        aggregators: the number of ranks after the workers that only aggregate: ``1x4+1``.
        dedicated_aggregators: whether each aggregator has a host of its own next to the nodes. It only says how the
            shape is launched: shapes that differ in it alone are equal.
    """

    nodes: int
    ranks: int
    aggregators: int = 0
    dedicated_aggregators: bool = field(default=False, compare=False)

    @property
    def processes(self) -> int:
        """The number of processes: workers and aggregators."""
        return self.ranks + self.aggregators

    @property
    def hosts(self) -> int:
        """The number of hosts: the nodes, and the dedicated hosts of aggregators."""
        return self.nodes + self.aggregators * self.dedicated_aggregators

    @property
    def ranks_per_node(self) -> int:
        """The largest number of processes on a node, without aggregators on dedicated hosts."""
        return -(-(self.ranks if self.dedicated_aggregators else self.processes) // self.nodes)

    def __str__(self) -> str:
        even = self.ranks % self.nodes == 0
        text = f"{self.nodes}x{self.ranks // self.nodes}" if even else f"{self.nodes}n:{self.ranks}p"
        return f"{text}+{self.aggregators}" if self.aggregators else text

    @property
    def text(self) -> str:
        ranks, nodes = format_count(self.ranks, "rank"), format_count(self.nodes, "node")
        with_aggregators = f" and {format_count(self.aggregators, 'aggregator')}" if self.aggregators else ""
        return (
            f"{ranks} on {nodes}{with_aggregators} apart"
            if self.dedicated_aggregators
            else f"{ranks}{with_aggregators} on {nodes}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One allocation, one environment and many cases; ``seed`` determines their order in each round.

    Each shape of its cases is one launch, on the first nodes of the allocation: a scaling curve thus compares the same
    nodes.
    """

    name: str
    ranks: int
    nodes: int = 1
    aggregators: int = 0  # ranks after the workers
    dedicated_aggregators: bool = False  # whether each aggregator has a host of its own
    variant: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # the variables of the variant
    communicator: Mapping[str, Parameter] = field(default_factory=dict)  # the settings of its NCCL communicators
    seed: int = 1
    effort: Effort = field(default_factory=Effort)
    table: Mapping[str, Any] | None = None  # the JSON of a table of 'hpccoll tune', if a case is auto
    executor: str | None = None  # one of EXECUTORS; None for the compiled one where it is available
    models: Mapping[str, Any] = field(default_factory=dict)  # the user's own models of training steps, by name
    cases: tuple[Case, ...]

    def shape(self, case: Case) -> Shape:
        """Return the ranks and nodes of ``case``."""
        return Shape(case.nodes or self.nodes, case.ranks or self.ranks, self.aggregators, self.dedicated_aggregators)

    @property
    def sets(self) -> Mapping[str, Parameter]:
        """The settings of its variant: environment variables and settings of NCCL communicators."""
        return {**self.environment, **self.communicator}

    @property
    def largest(self) -> Shape:
        """The ranks and nodes of its whole allocation."""
        return Shape(self.nodes, self.ranks, self.aggregators, self.dedicated_aggregators)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of its launches, the smallest first."""
        return tuple(sorted({self.shape(case) for case in self.cases}))

    @property
    def measurements(self) -> int:
        """The number of measurements: cases times rounds."""
        return len(self.cases) * self.effort.rounds

    @property
    def sha256(self) -> str:
        """The digest of the job; a result file of a job with another digest is never continued."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        fields = {_JSON_NAMES.get(name, name): value for name, value in asdict(self).items()}
        # Jobs of earlier versions had none of these keys, and keep their digest.
        _drop_default(fields, "executor", None)
        _drop_default(fields, "models", {})
        _drop_default(fields["effort"], "operations", DEFAULT_OPERATIONS)
        for case in fields["cases"]:
            _drop_default(case, "timing", SINGLE)
        return json.dumps(fields, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        read = parse_json(text)
        read = {_FIELD_NAMES.get(name, name): value for name, value in read.items()}
        cases = tuple(Case(**case) for case in read.pop("cases"))
        return cls(**{**read, "effort": Effort(**read["effort"])}, cases=cases)

    def check(self) -> None:
        """Check that every value is of its kind and within its bounds.

        Raises:
            BadInputError: names the first value that is not.
        """
        check_fields("", self, _JOB_KINDS)
        Boolean().check(_JSON_NAMES["dedicated_aggregators"], self.dedicated_aggregators)
        if "/" in self.name or self.name.startswith("."):
            raise BadInputError("name", self.name, "part of a file name")
        if self.executor not in (*EXECUTORS, None):
            raise BadInputError("executor", self.executor, EXECUTORS)
        if not isinstance(self.table, dict | None):
            raise BadInputError("table", self.table, "a table of 'hpccoll tune'")
        if self.models:
            from hpccoll.training.model_file import model_from_json  # it imports NumPy, which a command line does not

            for name, model in self.models.items():
                model_from_json(name, model)
        check_mapping("environment", self.environment, MAX_NAMES, NAME, VARIABLE_VALUE)
        check_mapping("communicator", self.communicator, MAX_NAMES, NAME, VALUE)
        check_fields("effort.", self.effort, _EFFORT_KINDS)
        if not 0 < len(self.cases) <= MAX_CASES:
            raise BadInputError("cases", len(self.cases), f"1 to {MAX_CASES} of them")
        from hpccoll.cases.catalogue import check_case  # it knows cases

        for number, case in enumerate(self.cases):
            check_fields(f"cases.{number}.", case, _CASE_KINDS)
            check_mapping(f"cases.{number}.params", case.params, MAX_NAMES, NAME, VALUE)
            check_case(case)

    @classmethod
    def load(cls, path: Path) -> "Job":
        """Read a job file.

        Raises:
            BadInputError: if the file does not exist or is not a job.
        """
        text = read_text(path, "--job", JOB_BYTES)
        try:
            job = cls.from_json(text)
            job.check()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInputError("--job", str(path), f"a job file as 'hpccoll plan' writes it ({error})") from None
        return job


def _drop_default(fields: dict[str, Any], name: str, default: object) -> None:
    """Remove a field whose value is the default."""
    if fields[name] == default:
        del fields[name]


_JSON_NAMES = {"dedicated_aggregators": "apart"}
"""Fields whose keys in job files are older than their names: job_sha256 in raw files depends on the keys."""
_FIELD_NAMES = {key: name for name, key in _JSON_NAMES.items()}

_CASE_KINDS: Mapping[str, ValueKind] = {
    **dict.fromkeys(("collective", "algorithm", "transport", "device", "dtype", "timing"), NAME),
    **dict.fromkeys(("op", "mapping"), AnyOf((NAME, None))),
    "bytes": IntegerRange(0, MAX_BYTES),
    "in_place": Boolean(),
    "root": AnyOf((RANK, None)),
    **dict.fromkeys(("ranks", "nodes"), AnyOf((RANKS, None))),
}
_EFFORT_KINDS: Mapping[str, ValueKind] = {
    name: key.bound for name, key in (*EFFORT.items(), ("rounds", SWEEP["rounds"])) if key.bound
}
_JOB_KINDS: Mapping[str, ValueKind] = {
    "name": FILE_NAME,
    **dict.fromkeys(("ranks", "nodes"), RANKS),
    "aggregators": AGGREGATORS,
    "variant": AnyOf((NAME, None)),
    "seed": SEED,
}
"""The kinds of the values of a job, its effort and its cases; ``Job.check`` also checks those with several values."""
