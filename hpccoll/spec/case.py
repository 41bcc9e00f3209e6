"""A case and a job: what is asked to be measured, before anyone measures it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hpccoll.errors import BadInputError
from hpccoll.files import parse_json, read_text
from hpccoll.limits import (
    AGGREGATORS,
    FILE_NAME,
    ITERATIONS,
    JOB_BYTES,
    MAX_BYTES,
    MAX_CASES,
    MAX_NAMES,
    NAME,
    PRECISION,
    RANK,
    RANKS,
    ROUNDS,
    SECONDS,
    SEED,
    VALUE,
    VARIABLE_VALUE,
    WARMUP,
    AnyOf,
    Boolean,
    IntegerRange,
    ValueKind,
    check_fields,
    check_mapping,
)

Parameter = int | str

MOST_ROUNDS = ROUNDS.most
LEAST_ITERATIONS = 6
"""With fewer samples not even their extremes enclose the median with 95 % confidence."""

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
        collective: by name, such as ``all_reduce``.
        algorithm: the bare registered name, ``native`` for the library's own, or ``auto``: by the job's table.
        transport: how bytes move: ``mpi``, ``shm`` or ``tiered``; of a GPU's memory ``nccl``, ``mpi`` or ``staged``.
        device: where buffers lie: ``cpu`` or ``cuda``.
        dtype: of the elements, by NumPy's name, or ``bfloat16``.
        op: the reduction, None for collectives that do not reduce.
        bytes: the size S that is asked, as nccl-tests counts it; what no element fits in is left out.
        in_place: whether the contribution and the result share a buffer.
        root: the rank of a rooted collective, the first of two ranks, None for others.
        params: parameters of the algorithm and the transport, and arguments of the collective (``peer``, ``traffic``),
            that are asked for.
        ranks: the workers; None for all that its job has.
        nodes: that the workers are spread over; None for all that its job has.
        mapping: how ranks are numbered over racks and nodes: ``block``, ``cyclic``, or None, as the launcher did.
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

    @property
    def id(self) -> str:
        """The case in one word, unique within a job."""
        words = [self.collective, self.algorithm, self.transport, self.device, self.dtype]
        words += [self.op] if self.op else []
        words += [f"{self.bytes}B", "in" if self.in_place else "out"]
        words += [] if self.root is None else [f"root{self.root}"]
        # Of a file its name will do: the id becomes part of file names.
        words += [f"{name}={str(value).rpartition('/')[2]}" for name, value in sorted(self.params.items())]
        words += [] if self.ranks is None else [f"p{self.ranks}"]
        words += [] if self.nodes is None else [f"n{self.nodes}"]
        words += [self.mapping] if self.mapping else []
        return ".".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a case is measured, in all of its rounds together.

    Args:
        warmup: iterations that are thrown away, in each round.
        min_iterations: timed at least.
        max_iterations: timed at most.
        seconds: of wall time that a case may take, once it has its least iterations.
        precision: half of the 95 % confidence interval over the median, at which a round has converged.
        timeout: seconds without progress after which a rank is said to be stuck.
        rounds: times that all cases of a launch are gone through, each time in another order.
    """

    warmup: int = 5
    min_iterations: int = 20
    max_iterations: int = 1000
    seconds: float = 1.0
    precision: float = 0.02
    timeout: float = 120.0
    rounds: int = 1

    def __post_init__(self) -> None:
        for field_ in fields(self):
            if type(value := getattr(self, field_.name)) not in (int, float):
                raise BadInputError(f"effort.{field_.name}", value, "a number")
        for name, least in (("warmup", 0), ("min_iterations", 1), ("max_iterations", self.min_iterations)):
            if getattr(self, name) < least:
                raise BadInputError(f"effort.{name}", getattr(self, name), f"at least {least}")
        for name in ("seconds", "precision", "timeout"):
            if not getattr(self, name) > 0:
                raise BadInputError(f"effort.{name}", getattr(self, name), "more than 0")
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise BadInputError("effort.rounds", self.rounds, f"from 1 to {MOST_ROUNDS}")

    @property
    def of_a_round(self) -> "Effort":
        """The share of one round: never so few iterations that their median has no interval, unless so few are asked.

        Every round is warmed up as a whole.
        """
        share = -(-self.min_iterations // self.rounds)
        least = min(self.min_iterations, max(share, LEAST_ITERATIONS))
        most = max(least, -(-self.max_iterations // self.rounds))
        return replace(self, min_iterations=least, max_iterations=most, seconds=self.seconds / self.rounds, rounds=1)


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """What one launch starts, ranks on nodes; as text ``4x2``, 4 nodes with 2 ranks each, or ``4n:7p`` if uneven.

    Args:
        nodes: that the ranks are spread over.
        ranks: the workers.
        aggregators: ranks that come after them and only aggregate: ``1x4+1``.
        apart: whether each of those has a host of its own, beside the nodes; that is how a shape is launched, and two
            that differ in it alone are equal.
    """

    nodes: int
    ranks: int
    aggregators: int = 0
    apart: bool = field(default=False, compare=False)

    @property
    def processes(self) -> int:
        """What is started: workers and aggregators."""
        return self.ranks + self.aggregators

    @property
    def hosts(self) -> int:
        """What it is launched on: the nodes, and the hosts of aggregators that are apart."""
        return self.nodes + self.aggregators * self.apart

    @property
    def ranks_per_node(self) -> int:
        """The most processes on a node, aggregators that are apart left out."""
        return -(-(self.ranks if self.apart else self.processes) // self.nodes)

    def __str__(self) -> str:
        even = self.ranks % self.nodes == 0
        text = f"{self.nodes}x{self.ranks // self.nodes}" if even else f"{self.nodes}n:{self.ranks}p"
        return f"{text}+{self.aggregators}" if self.aggregators else text

    @property
    def words(self) -> str:
        ranks, nodes = (f"{n} {word}{'s' * (n > 1)}" for n, word in ((self.ranks, "rank"), (self.nodes, "node")))
        beside = f" and {self.aggregators} aggregator{'s' * (self.aggregators > 1)}" if self.aggregators else ""
        return f"{ranks} on {nodes}{beside} apart" if self.apart else f"{ranks}{beside} on {nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One allocation, one environment, many cases, in an order that ``seed`` draws for each round.

    Its launches are the shapes of its cases, each on the first nodes of the allocation: a scaling curve then compares
    the same nodes.
    """

    name: str
    ranks: int
    nodes: int = 1
    aggregators: int = 0  # ranks beside the workers, which come after them
    apart: bool = False  # whether each of those has a host of its own
    variant: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of the variant
    communicator: Mapping[str, Parameter] = field(default_factory=dict)  # what NCCL's are made with in it
    seed: int = 1
    effort: Effort = field(default_factory=Effort)
    table: Mapping[str, Any] | None = None  # of 'hpccoll tune', where a case is auto: its JSON
    cases: tuple[Case, ...]

    def shape(self, case: Case) -> Shape:
        """Return what ``case`` runs on."""
        return Shape(case.nodes or self.nodes, case.ranks or self.ranks, self.aggregators, self.apart)

    @property
    def sets(self) -> Mapping[str, Parameter]:
        """What its variant sets: variables, and what NCCL's communicators are made with."""
        return {**self.environment, **self.communicator}

    @property
    def largest(self) -> Shape:
        """What its allocation has room for."""
        return Shape(self.nodes, self.ranks, self.aggregators, self.apart)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The launches, the smallest first."""
        return tuple(sorted({self.shape(case) for case in self.cases}))

    @property
    def measurements(self) -> int:
        """What there is to measure: the rounds of all cases."""
        return len(self.cases) * self.effort.rounds

    @property
    def sha256(self) -> str:
        """Identifies what is asked; a result file of another one is never continued."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        read = parse_json(text)
        cases = tuple(Case(**case) for case in read.pop("cases"))
        return cls(**{**read, "effort": Effort(**read["effort"])}, cases=cases)

    def check(self) -> None:
        """See that every value is of its kind and within bounds, as it is in what 'hpccoll plan' writes.

        Raises:
            BadInputError: names the first that is not.
        """
        check_fields("", self, _OF_A_JOB)
        if "/" in self.name or self.name.startswith("."):
            raise BadInputError("name", self.name, "part of a file name")
        if not isinstance(self.table, dict | None):
            raise BadInputError("table", self.table, "a table of 'hpccoll tune'")
        check_mapping("environment", self.environment, MAX_NAMES, NAME, VARIABLE_VALUE)
        check_mapping("communicator", self.communicator, MAX_NAMES, NAME, VALUE)
        check_fields("effort.", self.effort, _OF_AN_EFFORT)
        if not 0 < len(self.cases) <= MAX_CASES:
            raise BadInputError("cases", len(self.cases), f"1 to {MAX_CASES} of them")
        for number, case in enumerate(self.cases):
            check_fields(f"cases.{number}.", case, _OF_A_CASE)
            check_mapping(f"cases.{number}.params", case.params, MAX_NAMES, NAME, VALUE)

    @classmethod
    def load(cls, path: Path) -> "Job":
        """Read a job file.

        Raises:
            BadInputError: where there is no such file or it is not a job.
        """
        text = read_text(path, "--job", JOB_BYTES)
        try:
            job = cls.from_json(text)
            job.check()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInputError("--job", str(path), f"a job file as 'hpccoll plan' writes it ({error})") from None
        return job


_OF_A_CASE: Mapping[str, ValueKind] = {
    **dict.fromkeys(("collective", "algorithm", "transport", "device", "dtype"), NAME),
    **dict.fromkeys(("op", "mapping"), AnyOf((NAME, None))),
    "bytes": IntegerRange(0, MAX_BYTES),
    "in_place": Boolean(),
    "root": AnyOf((RANK, None)),
    **dict.fromkeys(("ranks", "nodes"), AnyOf((RANKS, None))),
}
_OF_AN_EFFORT: Mapping[str, ValueKind] = {
    "warmup": WARMUP,
    **dict.fromkeys(("min_iterations", "max_iterations"), ITERATIONS),
    **dict.fromkeys(("seconds", "timeout"), SECONDS),
    "precision": PRECISION,
    "rounds": ROUNDS,
}
_OF_A_JOB: Mapping[str, ValueKind] = {
    "name": FILE_NAME,
    **dict.fromkeys(("ranks", "nodes"), RANKS),
    "aggregators": AGGREGATORS,
    "apart": Boolean(),
    "variant": AnyOf((NAME, None)),
    "seed": SEED,
}
"""The kinds of the values of a job, its effort and its cases; of what is no single value, ``Job.check`` says more."""
