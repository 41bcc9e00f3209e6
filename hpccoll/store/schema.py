"""The schema of raw files, as a table, which ``hpccoll list columns`` prints.

A raw file holds one job. Its root names the job; each attempt is a group with the dimensions
``case``, ``iteration``, ``rank``, ``node_number`` and ``port``. Times are int64 nanoseconds of the
ranks' clocks; everything else is in SI units without prefixes.

``CaseResult`` declares the results of a case, equal on all ranks: a new one is one field there,
which ``AttemptRunner._collect`` sets, and needs no other line. The datasets of raw files, the
records of journals, how rounds are joined, rows, exports, ``hpccoll list columns`` and the table of
the report follow. ``RankResult`` declares those of each rank, which rows have not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from operator import add, or_
from typing import Any, TypeAlias

SCHEMA = "hpccoll-raw"

ON_TESTBED = "measured on a testbed"
"""The kind of attempts on hosts that are namespaces of one machine."""

ON_SHARED_GPU = "measured on a shared GPU"
"""The kind of results of ranks that share a GPU: they show that code works, and are compared with no link."""

SIMULATED, MODELLED = "simulated", "modelled"
PREDICTED_KINDS = SIMULATED, MODELLED
"""The kinds of results that nothing measured: from a schedule, or from a formula."""

IMPORTED = "imported"
"""The kind of results that another program measured."""

PEERS = "peers"
"""The parameter of an imported case that says to which other ranks than those of our algorithm its messages went."""

ADDRESSES = "addresses"
"""The parameter of an imported case whose ranks exchange the addresses of their buffers first."""

ADDRESSES_OF_ALL, ADDRESSES_OF_PEERS = "all", "peers"
"""What it says: to all, in an all-gather over MPI, or to those that they send to, in a message over MPI each."""

PORT_USE = "port_use"
"""The parameter of an imported case that says how a rank used several ports, if not at once."""

IN_TURN = "in turn"
"""What it says: one port after the other."""

COPIED = "copied"
"""The parameter of an imported case that says what a rank copied in its memory, where its program tells."""

NOTHING_COPIED, VECTOR_COPIED = "nothing", "vector"
PARTS_COPIED = "parts"
"""What it says: nothing; the vector; or for each port at once its part of the vector."""

HOST_LOAD = "host_load"
"""The key of the provenance with what else used the hosts: a list with an entry for each of them."""

COPY_RATES = "copy_rates"
"""The key of the provenance of a run: ``ranks`` that copied at once, and ``sizes``, each with the
``bytes`` of the two buffers of a rank and the bytes per second, ``Bps``, that all ranks together
read and wrote."""

BEYOND_CACHES = 64 << 20
"""The bytes of the two buffers of a rank that its caches are taken not to hold: larger ones have the same rate."""


class OfKind:
    """What follows from the kind of an attempt, or of a row."""

    __slots__ = ()
    kind: str

    @property
    def predicted(self) -> bool:
        """Whether nothing was measured: the times are simulated or modelled."""
        return self.kind in PREDICTED_KINDS

    @property
    def imported(self) -> bool:
        """Whether another program measured the times."""
        return self.kind == IMPORTED

    @property
    def ours(self) -> bool:
        """Whether hpccoll measured the times: they are neither predicted nor imported."""
        return not (self.predicted or self.imported)

    @property
    def precedence(self) -> int:
        """Its place among other kinds: what we measured comes first, then what others measured, then predictions."""
        return 2 if self.predicted else int(self.imported)


@dataclass(frozen=True, slots=True)
class Column:
    """A dataset of an attempt."""

    name: str  # the name of the dataset
    dims: tuple[str, ...]  # its dimensions
    # ``str``, ``bool`` (stored as uint8), ``maybe`` (true, false or absent, stored as int8) or a
    # NumPy name
    dtype: str
    unit: str  # the unit of its values; empty if they have none
    # the value of absent entries, also beyond ``iterations(case)`` and for ranks not kept
    absent: object
    meaning: str  # one phrase
    heading: str = ""  # the heading in the report's table of rows; empty if it is not declared here
    format: str = "text"  # how the report writes the values: a key of ``report_columns.FORMATS``


def _case(name: str, dtype: str, meaning: str, unit: str = "", absent: object = None) -> Column:
    return Column(name, ("case",), dtype, unit, "" if dtype == "str" else absent, meaning)


def _node(name: str, meaning: str) -> Column:
    return Column(name, ("case", "node_number"), "float64", "B", float("nan"), meaning)


def _port(name: str, meaning: str) -> Column:
    return Column(name, ("case", "node_number", "port"), "float64", "B", float("nan"), meaning)


_ABSENT = {"str": "", "bool": None, "maybe": -1, "int64": -1, "float64": float("nan")}
"""The absent value in the dataset of a result, by its type."""


Merge: TypeAlias = Callable[[Any, Any], Any]
"""Returns the value of all rounds, given that of the earlier rounds and that of a later one."""


def _last(_earlier: Any, later: Any) -> Any:
    return later


def _sum(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else earlier + later


def _added(earlier: int | None, later: int | None) -> int | None:
    return (earlier or 0) + (later or 0) or None


def _listed(earlier: str | None, later: str | None) -> str | None:
    return "; ".join(filter(None, (earlier, later))) or None


def _both(earlier: bool | None, later: bool | None) -> bool:
    return bool(earlier and later)


def result(
    dtype: str, meaning: str, *, default: object = None, merge: Merge = _last, **column_fields: Any
) -> Any:
    """Return a field of ``CaseResult``.

    Args:
        dtype: the type of the dataset: a key of ``_ABSENT``.
        meaning: one phrase for ``hpccoll list columns`` and the dataset's ``long_name``.
        default: the value of a case that has none.
        merge: joins the values of two rounds; either value may be None [the later value counts,
            also if it is None].
        column_fields: the ``unit``; and for the table of the report the ``heading``, which names
            the unit in which the report writes the value, and its ``format``, a key of
            ``report_columns.FORMATS``.
    """
    declared = {
        "dims": ("case",),
        "dtype": dtype,
        "unit": "",
        "absent": _ABSENT[dtype],
        "meaning": meaning,
        **column_fields,
    }
    return field(default=default, metadata={"column": declared, "merge": merge})


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The results of a case that are stored, exported and reported under one name."""

    wrong: int | None = result(
        "int64",
        "wrong elements of the result, of src and next to the buffers, over ranks and timed iterations",
        merge=_sum,
    )
    overflowed: int | None = result(
        "int64",
        "gradients that the type of their message cannot hold, over ranks and all iterations; absent: none",
        merge=_added,
    )
    not_finite: int | None = result(
        "int64",
        "compressed gradients whose mean is infinite or NaN, over ranks and all iterations; absent: none",
        merge=_added,
    )
    converged: bool | None = result(
        "maybe",
        "1 if the interval of the median became narrow enough within the limits",
        merge=_both,
    )
    wire_bytes_predicted: int | None = result(
        "int64",
        "bytes between nodes per operation, all ranks, as counted from the schedule",
        unit="B",
    )
    wire_bytes_measured: int | None = result(
        "int64",
        "bytes between nodes per operation by port counters, which include headers",
        unit="B",
    )
    rack_bytes_predicted: int | None = result(
        "int64",
        "bytes between racks per operation, all ranks, as counted from the schedule",
        unit="B",
    )
    requested: str | None = result(
        "str", "the algorithm requested from the library: ring, sharp; empty: none"
    )
    executed: str = result("str", "the algorithm that ran, by the evidence", default="unknown")
    evidence: str | None = result("str", "the evidence for executed")
    tcp_traffic: str | None = result(
        "str",
        "JSON: bytes by rank and TCP connection, of an operation as it ran and with each algorithm forced",
    )
    floor: bool = result("bool", "an empty schedule: the cost of the harness", default=False)
    load: str | None = result(
        "str", "what each rank computed meanwhile: gemm; empty: nothing", heading="load"
    )
    executor: str | None = result(
        "str",
        "what ran the operation and its timing loop: compiled, python; empty: python",
        heading="executor",
    )
    operations: int | None = result(
        "int64",
        "operations of an iteration, timed together: raw times are those of all of them, rows of one; absent: 1",
        heading="operations of an iteration",
        format="count",
    )
    lowered_rounds: str | None = result(
        "str",
        "rounds in which a limit lowered the clock of a GPU, with the limits: 2: power, heat; empty: none",
        merge=_listed,
        heading="clocks lowered in rounds",
    )
    loss: float | None = result(
        "float64",
        "of a training, the loss of the last batch before its update",
        heading="loss",
        format="ratio",
    )
    accuracy: float | None = result(
        "float64",
        "of a training, the share of held-out images that it names rightly in the end",
        heading="accuracy",
        format="percent",
    )
    diverged_steps: int | None = result(
        "int64", "of a training, the steps after which ranks had different weights", merge=_sum
    )
    serial_difference: float | None = result(
        "float64",
        "of a training, the largest difference of a weight to a serial run, over the largest weight; 0: none",
    )
    weights: str | None = result("str", "of a training, the SHA-256 of the weights in the end")
    shard_s: float | None = result(
        "float64",
        "of a training, the time for a rank's part of the batch: of the slowest rank the median",
        unit="s",
    )
    gradients_s: float | None = result(
        "float64", "of a training, the time of both passes, likewise", unit="s"
    )
    update_s: float | None = result(
        "float64", "of a training, the time of the update, likewise", unit="s"
    )
    source: str | None = result(
        "str", "the program that measured: osu, nccl-tests, rccl-tests, imb; empty: hpccoll"
    )
    reported: str | None = result(
        "str", "JSON: of a result of another program, what each output says of it, by column"
    )


RESULT_COLUMNS = tuple(
    Column(declared.name, **declared.metadata["column"]) for declared in fields(CaseResult)
)
RESULT_MERGES = {declared.name: declared.metadata["merge"] for declared in fields(CaseResult)}
"""How the values of two rounds are joined, by the name of the result."""


def rank_result(dtype: str, meaning: str, unit: str, merge: Merge) -> Any:
    """Return a field of ``RankResult``.

    Args:
        dtype: the type of the dataset, ``int64`` or ``float64``.
        meaning: one phrase.
        unit: the unit; empty without one.
        merge: joins the values of two rounds if both are known.
    """
    column = {
        "dims": ("case", "rank"),
        "dtype": dtype,
        "unit": unit,
        "absent": _ABSENT[dtype],
        "meaning": meaning,
    }
    return field(default=(), metadata={"column": column, "merge": merge})


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult(CaseResult):
    """Adds the results of each rank, [rank]; None where unknown, empty if unknown for all.

    Ranks that share a GPU have its values once, at the first of them. All values are of the timed
    iterations with what is between them: the fill and the check of the buffers. NVML is read
    between blocks of iterations.
    """

    gpu_sm_clock: Sequence[float | None] = rank_result(
        "float64",
        "SM clock of the GPU: the median over blocks, the lowest of all rounds",
        "Hz",
        min,
    )
    gpu_memory_clock: Sequence[float | None] = rank_result(
        "float64", "memory clock of the GPU, likewise", "Hz", min
    )
    gpu_power: Sequence[float | None] = rank_result(
        "float64", "mean power of the GPU, the highest of all rounds", "W", max
    )
    gpu_temperature: Sequence[float | None] = rank_result(
        "float64", "highest temperature of the GPU", "degC", max
    )
    gpu_clock_events: Sequence[int | None] = rank_result(
        "int64",
        "why its clock was lowered: nvmlClocksEventReasons of all blocks, joined by or",
        "",
        or_,
    )
    gpu_power_limit_s: Sequence[float | None] = rank_result(
        "float64", "time for which the power limit lowered its clock", "s", add
    )
    gpu_thermal_s: Sequence[float | None] = rank_result(
        "float64", "time for which a thermal limit lowered its clock", "s", add
    )
    gpu_sync_boost_s: Sequence[float | None] = rank_result(
        "float64", "time for which another GPU of its sync boost group lowered its clock", "s", add
    )
    gpu_nvlink_sent: Sequence[float | None] = rank_result(
        "float64",
        "bytes per operation that the GPU sent over NVLink, in the last round",
        "B",
        _last,
    )
    gpu_nvlink_received: Sequence[float | None] = rank_result(
        "float64",
        "bytes per operation that the GPU received over NVLink, in the last round",
        "B",
        _last,
    )
    gpu_pcie_sent: Sequence[float | None] = rank_result(
        "float64",
        "bytes per operation that the GPU sent over PCIe, commands included, in the last round",
        "B",
        _last,
    )
    gpu_pcie_received: Sequence[float | None] = rank_result(
        "float64", "bytes per operation that the GPU received over PCIe, likewise", "B", _last
    )


_OF_RANKS = [declared for declared in fields(RankResult) if declared.name not in RESULT_MERGES]
RANK_RESULT_MERGES = {declared.name: declared.metadata["merge"] for declared in _OF_RANKS}
"""Likewise, by the name of the result of a rank."""

RANK_RESULT_COLUMNS = tuple(
    Column(declared.name, **declared.metadata["column"]) for declared in _OF_RANKS
)

COLUMNS = (
    _case("case_id", "str", "the case in one word, unique in the job"),
    _case("collective", "str", "all_reduce, ..."),
    _case("algorithm", "str", "the registered name; native: the library's own"),
    _case(
        "transport",
        "str",
        "how bytes moved: mpi, shm, tiered, staged, nccl; of other programs also rccl",
    ),
    _case("device", "str", "where buffers lay: cpu, cuda; of other programs also rocm"),
    _case("dtype", "str", "of the elements, by NumPy's name"),
    _case("op", "str", "the reduction"),
    _case("requested_bytes", "int64", "the requested size S", "B"),
    _case("bytes", "int64", "the moved size S: whole elements", "B", -1),
    _case("in_place", "bool", "1 if contribution and result share a buffer"),
    _case("root", "int64", "the root of a rooted collective", "", -1),
    _case("requested_ranks", "int64", "the requested workers, absent: all of the job", "", -1),
    _case("requested_nodes", "int64", "the nodes that were requested for the workers", "", -1),
    _case(
        "requested_mapping", "str", "how ranks were renumbered: block or cyclic; empty: as launched"
    ),
    _case(
        "requested_timing", "str", "how operations were timed: single, aggregated, nccl-tests, osu"
    ),
    _case("requested_params", "str", "JSON: the requested parameters"),
    _case("params", "str", "JSON: the parameters that were used, defaults included"),
    _case("status", "str", "ok, wrong, skipped, or failed: a rank stalled in it, or NCCL failed"),
    _case("reason", "str", "why the status is not ok"),
    *RESULT_COLUMNS,
    _case(
        "workers_sent_predicted",
        "int64",
        "the part of wire_bytes_predicted that nodes of workers send",
        "B",
        -1,
    ),
    _case(
        "workers_received_predicted",
        "int64",
        "the part of wire_bytes_predicted that nodes of workers receive",
        "B",
        -1,
    ),
    _case(
        "counters",
        "str",
        "JSON: further port counters, summed over all nodes, and the number of operations",
    ),
    _case(
        "predicted_low_s",
        "float64",
        "of a prediction: the lower end of its interval",
        "s",
        float("nan"),
    ),
    _case(
        "predicted_high_s",
        "float64",
        "of a prediction: the upper end of its interval",
        "s",
        float("nan"),
    ),
    _case(
        "program", "str", "JSON: of a training step, the operations and computations of each stage"
    ),
    _case("iterations", "int64", "timed iterations"),
    _case(
        "rank_stride",
        "int64",
        "times are kept of ranks 0, stride, 2 stride, ..., at most 2^22 over all rounds: the first entries along rank",
        "",
        0,
    ),
    Column("host", ("rank",), "str", "", "", "the host of the rank"),
    Column("node", ("rank",), "int64", "", None, "the node of the rank, numbered from 0"),
    Column(
        "rack",
        ("rank",),
        "int64",
        "",
        0,
        "the rack of that node, by Slurm's topology, numbered from 0",
    ),
    Column("clock", ("rank",), "int64", "", None, "ranks with equal numbers read one clock"),
    Column("pid", ("rank",), "int64", "", None, "the process of the rank"),
    Column("affinity", ("rank",), "str", "", "", "the CPUs that the rank may use"),
    _node("wire_sent", "bytes per operation that the ports of the node sent"),
    _node("wire_received", "bytes per operation that the ports of the node received"),
    Column(
        "port_name",
        ("port",),
        "str",
        "",
        "",
        "the port: eth0, mlx5_0/1; one of each host that has it",
    ),
    _port("port_sent", "bytes per operation that this port of the node sent"),
    _port("port_received", "bytes per operation that this port of the node received"),
    Column("cpu_s", ("case", "rank"), "float64", "s", float("nan"), "CPU time per operation"),
    *RANK_RESULT_COLUMNS,
    Column("min_ns", ("case", "iteration"), "int64", "ns", -1, "the shortest duration over ranks"),
    Column("median_ns", ("case", "iteration"), "int64", "ns", -1, "the median duration over ranks"),
    Column(
        "max_ns",
        ("case", "iteration"),
        "int64",
        "ns",
        -1,
        "the longest duration over ranks: rule max",
    ),
    Column(
        "span_ns",
        ("case", "iteration"),
        "int64",
        "ns",
        -1,
        "latest end minus earliest start on one clock: rule span",
    ),
    Column(
        "mean_ns",
        ("case", "iteration"),
        "int64",
        "ns",
        -1,
        "the mean duration over ranks: rule mean, of the timings nccl-tests and osu",
    ),
    Column(
        "slowest_rank", ("case", "iteration"), "int64", "", -1, "the rank of the longest duration"
    ),
    Column(
        "skew_ns",
        ("case", "iteration"),
        "int64",
        "ns",
        -1,
        "how far apart ranks of one clock start",
    ),
    Column(
        "device_max_ns",
        ("case", "iteration"),
        "int64",
        "ns",
        -1,
        "the longest time between events on the GPU of a rank",
    ),
    Column("round", ("case", "iteration"), "uint8", "", 0, "the round of the iteration, from 1"),
    Column(
        "step_loss",
        ("case", "iteration"),
        "float64",
        "",
        float("nan"),
        "of a training, the loss before the update",
    ),
    Column(
        "step_accuracy",
        ("case", "iteration"),
        "float64",
        "",
        float("nan"),
        "its accuracy on what is held out, after it",
    ),
    Column(
        "step_differing",
        ("case", "iteration"),
        "int64",
        "",
        -1,
        "ranks whose weights differ from those of most, after it",
    ),
    Column(
        "start_ns",
        ("case", "iteration", "rank"),
        "int64",
        "ns",
        -1,
        "start of the operation by the rank's clock",
    ),
    Column(
        "end_ns",
        ("case", "iteration", "rank"),
        "int64",
        "ns",
        -1,
        "end of the operation by the rank's clock",
    ),
    Column(
        "device_ns",
        ("case", "iteration", "rank"),
        "int64",
        "ns",
        -1,
        "between events on the GPU of the rank",
    ),
    Column(
        "event_ns",
        ("case", "iteration", "rank", "event"),
        "int64",
        "ns",
        -1,
        "of a training step: ready, begin and end of each operation, begin and end of each computation, as in program",
    ),
)

VERSION = "2.0"
"""The version of raw files and journals: a reader refuses any other. A later one may add columns."""
