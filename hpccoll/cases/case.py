"""Cases and jobs: what to measure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from hpccoll.cases.keys import DEFAULT_OPERATIONS
from hpccoll.common import limits
from hpccoll.common.errors import BadInputError
from hpccoll.common.files import parse_json
from hpccoll.common.records import from_builtins, json_text
from hpccoll.common.units import format_count

Parameter = int | str

COMPILED, PYTHON = "compiled", "python"
EXECUTORS = COMPILED, PYTHON
"""What runs schedules and the timing loop in host memory."""

SINGLE = "single"
AGGREGATED = "aggregated"
NCCL_TESTS = "nccl-tests"
OSU = "osu"
TIMINGS = SINGLE, AGGREGATED, NCCL_TESTS, OSU
"""How operations are timed: each after a barrier; on a GPU's stream many back to back; or by the
loop of another program, as the sources of imported results are called."""
LOOPS_OF_PROGRAMS = NCCL_TESTS, OSU
"""The timings whose time is a mean over operations and ranks."""
BACK_TO_BACK = AGGREGATED, NCCL_TESTS
"""The timings in which an iteration has several operations."""

LOAD = "load"
"""The argument of every collective that says what each rank computes meanwhile: one of LOADS; idle if it is absent."""
IDLE = "idle"
LOADS = IDLE, "gemm"
"""Nothing, or a thread that multiplies matrices, as a backward pass does beside the all-reduces of its gradients."""

RUN_JOB = "run"
"""The name of the job that a command line of ``hpccoll run`` describes."""

MAX_ROUNDS = limits.ROUNDS.maximum
LEAST_ITERATIONS = 6
"""With fewer samples not even the extremes enclose the median with 95 % confidence."""

PASS_S = 0.05
"""Seconds that a pass which counts the bytes of a case takes, if one operation is not longer."""
SETTLE_S = 0.011
"""Seconds between the last operation of that pass and the second reading of the counters.

hw_counters are read from the device again when they are older than their ``lifespan``, 10 ms
(sysfs-class-infiniband).
"""


@dataclass(frozen=True, kw_only=True)  # without slots, because cached_property needs a __dict__
class Case:
    """One point of a sweep."""

    collective: limits.Name  # the name of the collective, such as ``all_reduce``
    # the registered name of the algorithm, ``native`` for the library's own collective, or ``auto``
    # for the choice of the job's table
    algorithm: limits.Name
    # how bytes move: ``mpi``, ``shm`` or ``tiered``; between GPUs ``nccl``, ``peer``, ``mpi`` or
    # ``staged``
    transport: limits.Name = "mpi"
    device: limits.Name = "cpu"  # where the buffers are: ``cpu`` or ``cuda``
    dtype: limits.Name = "float32"  # the type of the elements, a name of NumPy or ``bfloat16``
    op: limits.Name | None = "sum"  # the reduction; None if the collective does not reduce
    # the requested size S in bytes, as nccl-tests counts it; the case moves the whole elements that fit
    bytes: limits.Size
    in_place: bool = False  # whether the contribution and the result share a buffer
    # the root of a rooted collective, or the first of two ranks; None for other collectives
    root: Annotated[int, limits.RANK.meta] | None = None
    # the requested parameters of the algorithm, of any schedule (``channels``, ``window``,
    # ``segment``) and of the transport (``graph``), and the arguments of the collective (``peer``,
    # ``traffic``, ``concurrent``, ``load``)
    params: limits.Values = field(default_factory=dict)
    ranks: limits.Ranks | None = None  # the number of workers; None for all workers of the job
    # the number of nodes with workers; None for all nodes of the job
    nodes: limits.Ranks | None = None
    # how ranks are numbered over racks and nodes: ``block``, ``cyclic``, or None for the launcher's
    # order
    mapping: limits.Name | None = None
    timing: limits.Name = SINGLE  # how operations are timed, one of TIMINGS

    @property
    def load(self) -> str | None:
        """What each rank computes meanwhile; None if it is idle."""
        return str(self.params[LOAD]) if LOAD in self.params else None

    @property
    def all_but_size(self) -> tuple[object, ...]:
        """All that was requested except the size, to recognise cases that differ in it alone."""
        return (
            self.collective,
            self.algorithm,
            self.transport,
            self.device,
            self.dtype,
            self.op,
            self.in_place,
            self.root,
            self.mapping,
            self.timing,
            *self.params.items(),
        )

    @cached_property
    def id(self) -> str:
        """The name of the case, unique within a job."""
        fields = [self.collective, self.algorithm, self.transport, self.device, self.dtype]
        if self.op:
            fields.append(self.op)
        fields += [f"{self.bytes}B", "in" if self.in_place else "out"]
        if self.root is not None:
            fields.append(f"root{self.root}")
        for name, value in sorted(self.params.items()):
            # The id becomes part of file names: a parameter that is a path contributes only the
            # name of its file.
            file_name = str(value).rpartition("/")[2]
            fields.append(f"{name}={file_name}")
        if self.ranks is not None:
            fields.append(f"p{self.ranks}")
        if self.nodes is not None:
            fields.append(f"n{self.nodes}")
        if self.mapping:
            fields.append(self.mapping)
        if self.timing != SINGLE:
            fields.append(self.timing)
        return ".".join(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a case is measured, summed over its rounds; ``keys.EFFORT`` and ``keys.SWEEP`` explain the keys."""

    warmup: Annotated[int, limits.WARMUP.meta] = 5
    min_iterations: Annotated[int, limits.ITERATIONS.meta] = 20
    max_iterations: Annotated[int, limits.ITERATIONS.meta] = 1000
    seconds: Annotated[float, limits.SECONDS.meta] = 1.0
    precision: Annotated[float, limits.PRECISION.meta] = 0.02
    timeout: Annotated[float, limits.SECONDS.meta] = 120.0
    rounds: Annotated[int, limits.ROUNDS.meta] = 1
    operations: Annotated[int, limits.OPERATIONS.meta] = DEFAULT_OPERATIONS
    # the operations of a round if the loop of another program times them; None: as many as the
    # program runs by default
    loop_warmup: Annotated[int, limits.WARMUP.meta] | None = None
    loop_iterations: Annotated[int, limits.ITERATIONS.meta] | None = None

    def __post_init__(self) -> None:
        if self.max_iterations < self.min_iterations:
            raise BadInputError(
                "effort.max_iterations", self.max_iterations, f"at least {self.min_iterations}"
            )
        # 1 and 1.0 are one effort, and differ in the digest of a job
        for name in ("seconds", "precision", "timeout"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def of_a_round(self) -> "Effort":
        """The effort of one round.

        A round has enough iterations for an interval of their median, unless fewer were requested.
        The warm-up is not divided: each round has all of it.
        """
        share = -(-self.min_iterations // self.rounds)
        least = min(self.min_iterations, max(share, LEAST_ITERATIONS))
        most = max(least, -(-self.max_iterations // self.rounds))
        seconds = self.seconds / self.rounds
        return replace(self, min_iterations=least, max_iterations=most, seconds=seconds, rounds=1)


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """The ranks and nodes of one launch; as text ``4x2`` (4 nodes with 2 ranks each), or ``4n:7p`` if uneven."""

    nodes: int  # the number of nodes with workers
    ranks: int  # the number of workers
    aggregators: int = 0  # the number of ranks after the workers that only aggregate: ``1x4+1``
    # whether each aggregator has a host of its own next to the nodes. It only says how the shape is
    # launched: shapes that differ in it alone are equal
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
        on_nodes = self.ranks if self.dedicated_aggregators else self.processes
        return -(-on_nodes // self.nodes)

    def __str__(self) -> str:
        per_node, uneven = divmod(self.ranks, self.nodes)
        text = f"{self.nodes}x{per_node}"
        if uneven:
            text = f"{self.nodes}n:{self.ranks}p"
        if self.aggregators:
            text += f"+{self.aggregators}"
        return text

    @property
    def text(self) -> str:
        ranks, nodes = format_count(self.ranks, "rank"), format_count(self.nodes, "node")
        with_aggregators = (
            f" and {format_count(self.aggregators, 'aggregator')}" if self.aggregators else ""
        )
        if self.aggregators and self.dedicated_aggregators:
            return f"{ranks} on {nodes}{with_aggregators} on other hosts"
        return f"{ranks}{with_aggregators} on {nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One allocation, one environment and many cases; ``seed`` determines their order in each round.

    Each shape of its cases is one launch, on the first nodes of the allocation: a scaling curve
    thus compares the same nodes.
    """

    schema: Literal["hpccoll-job 2.0"] = "hpccoll-job 2.0"
    name: Annotated[str, limits.FILE_NAME.meta]
    ranks: limits.Ranks
    nodes: limits.Ranks = 1
    aggregators: limits.Aggregators = 0  # ranks after the workers
    dedicated_aggregators: bool = False  # whether each aggregator has a host of its own
    variant: limits.Name | None = None
    environment: Annotated[
        Mapping[limits.Name, limits.LongLine], Meta(max_length=limits.MAX_NAMES)
    ] = field(default_factory=dict)
    """The variables of the variant."""
    # the settings of its NCCL communicators
    communicator: limits.Values = field(default_factory=dict)
    seed: Annotated[int, limits.SEED.meta] = 1
    effort: Effort = field(default_factory=Effort)
    # the JSON of a table of 'hpccoll tune', if a case is auto
    table: Mapping[str, Any] | None = None
    # one of EXECUTORS; None for the compiled one where it is available
    executor: limits.Name | None = None
    # the user's own models of training steps, by name
    models: Mapping[str, Any] = field(default_factory=dict)
    # where the files of algorithms are, by the name of the algorithm: in job files only, no part of
    # a job's identity
    plans: Annotated[Mapping[limits.Name, limits.LongLine], Meta(max_length=limits.MAX_NAMES)] = (
        field(default_factory=dict, compare=False)
    )
    # the tables of the extensions that its cases need on ranks, as entry points name them; no key
    # of JSON if they need none, so that the digests of such jobs stay
    extensions: (
        Annotated[tuple[limits.Name, ...], Meta(max_length=limits.MAX_NAMES)] | UnsetType
    ) = UNSET
    # of a request of all algorithms, those that it names as well: of equal schedules of the others,
    # the first is measured. No key of JSON without such a request, so that the digests stay
    named: Annotated[tuple[limits.Name, ...], Meta(max_length=limits.MAX_NAMES)] | UnsetType = UNSET
    cases: Annotated[tuple[Case, ...], Meta(max_length=limits.MAX_CASES)]

    def shape(self, case: Case) -> Shape:
        """Return the ranks and nodes of ``case``."""
        return Shape(
            case.nodes or self.nodes,
            case.ranks or self.ranks,
            self.aggregators,
            self.dedicated_aggregators,
        )

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
        requested = {(case.nodes, case.ranks): case for case in self.cases}
        shapes = {self.shape(case) for case in requested.values()}
        return tuple(sorted(shapes))

    @property
    def measurements(self) -> int:
        """The number of measurements: cases times rounds."""
        return len(self.cases) * self.effort.rounds

    @property
    def sha256(self) -> str:
        """The digest of the job; a result file of a job with another digest is never continued."""
        identity = replace(self, plans={}).to_json()
        return hashlib.sha256(identity.encode()).hexdigest()

    def to_json(self) -> str:
        return json_text(self)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Return the job of a result file, whose values are valid one by one.

        Raises:
            ValueError: if the text is not a job.
        """
        return from_builtins(parse_json(text), cls)
