"""The schema of a raw file, as a table; results/README.md shows the same table, and a test keeps the two alike.

A raw file holds one job. Its root says which; each attempt is a group with the dimensions ``case``, ``iteration``,
``rank``, ``node_number`` and ``port``. Times are int64 nanoseconds as the clocks gave them; everything else is in SI
units without prefixes.
"""

from dataclasses import dataclass

SCHEMA = "hpccoll-raw"
VERSION = "1.5"
"""A reader refuses another major version; a minor one only adds.

1.0: the first. 1.1: what crossed the wire, and cases of several numbers of ranks in a file. 1.2: racks.
1.3: mapping of the ranks of a case, bytes between racks, of each port and of the nodes of workers, and rounds.
1.4: what was asked of the library, what its logs say, and times by events of the GPU.
1.5: a digest of the content.
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A dataset of an attempt.

    Args:
        name: of the dataset.
        dims: its dimensions.
        dtype: ``str``, ``bool`` (kept as uint8) or a NumPy name.
        unit: of its values, empty where they have none.
        absent: the value that stands for "there is none", also beyond ``iterations(case)`` and for ranks not kept.
        meaning: in a sentence.
        since: the minor version that added it; in an older file it is absent.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str
    unit: str
    absent: object
    meaning: str
    since: int = 0


def _case(name: str, dtype: str, meaning: str, unit: str = "", absent: object = None, since: int = 0) -> Column:
    return Column(name, ("case",), dtype, unit, "" if dtype == "str" else absent, meaning, since)


def _node(name: str, meaning: str, since: int) -> Column:
    return Column(name, ("case", "node_number"), "float64", "B", float("nan"), meaning, since)


def _port(name: str, meaning: str, since: int) -> Column:
    return Column(name, ("case", "node_number", "port"), "float64", "B", float("nan"), meaning, since)


COLUMNS = (
    _case("case_id", "str", "the case in one word, unique in the job"),
    _case("collective", "str", "all_reduce, ..."),
    _case("algorithm", "str", "the bare name; native is the library's own"),
    _case("transport", "str", "how bytes moved: mpi, shm, tiered, staged, nccl"),
    _case("device", "str", "where buffers lay: cpu, cuda"),
    _case("dtype", "str", "of the elements, by NumPy's name"),
    _case("op", "str", "the reduction"),
    _case("requested_bytes", "int64", "the size S that was asked", "B"),
    _case("bytes", "int64", "the size S that was moved: whole elements", "B", -1),
    _case("in_place", "bool", "whether contribution and result share a buffer"),
    _case("root", "int64", "the root of a rooted collective", "", -1),
    _case("requested_ranks", "int64", "the workers that were asked for, absent: all of the job", "", -1, since=1),
    _case("requested_nodes", "int64", "the nodes that they were to be spread over", "", -1, since=1),
    _case("requested_mapping", "str", "how ranks were renumbered: block or cyclic; empty: as launched", since=3),
    _case("requested_params", "str", "JSON: parameters that were asked"),
    _case("params", "str", "JSON: parameters that were used, defaults included"),
    _case("status", "str", "ok, wrong, skipped, or failed: a rank stalled in it, or NCCL failed"),
    _case("reason", "str", "why it is not ok"),
    _case(
        "wrong",
        "int64",
        "wrong elements of the result, of src and next to the buffers, over ranks and timed iterations",
        "",
        -1,
    ),
    _case("converged", "int8", "1 where the interval of the median became tight in time", "", -1),
    _case("wire_bytes_predicted", "int64", "bytes between nodes per operation, all ranks, as counted", "B", -1),
    _case("wire_bytes_measured", "int64", "the same by the counters of the ports: headers, too", "B", -1),
    _case("rack_bytes_predicted", "int64", "bytes between racks per operation, all ranks, as counted", "B", -1, 3),
    _case("workers_sent_predicted", "int64", "what of the counted bytes nodes of workers send", "B", -1, since=3),
    _case("workers_received_predicted", "int64", "what of them nodes of workers receive", "B", -1, since=3),
    _case("counters", "str", "JSON: what else ports counted: over all nodes, in so many operations", since=1),
    _case("requested", "str", "what was asked of the library in one word: ring, sharp; empty: nothing", since=4),
    _case("executed", "str", "the algorithm that ran, as far as the evidence goes"),
    _case("evidence", "str", "how that is known"),
    _case("floor", "bool", "an empty schedule: the cost of the harness"),
    _case("iterations", "int64", "timed iterations"),
    _case("rank_stride", "int64", "times are kept of ranks 0, stride, 2 stride, ...", "", 0),
    Column("host", ("rank",), "str", "", "", "the host of the rank"),
    Column("node", ("rank",), "int64", "", None, "the node of the rank, numbered from 0"),
    Column("rack", ("rank",), "int64", "", 0, "the rack of that node, by Slurm's topology, numbered from 0", since=2),
    Column("clock", ("rank",), "int64", "", None, "ranks of one number read one clock"),
    Column("pid", ("rank",), "int64", "", None, "the process of the rank"),
    Column("affinity", ("rank",), "str", "", "", "the CPUs that the rank may use"),
    _node("wire_sent", "bytes per operation that the ports of the node sent", 1),
    _node("wire_received", "bytes per operation that the ports of the node received", 1),
    Column("port_name", ("port",), "str", "", "", "the port: eth0, mlx5_0/1; one of each host that has it", since=3),
    _port("port_sent", "bytes per operation that this port of the node sent", 3),
    _port("port_received", "bytes per operation that this port of the node received", 3),
    Column("cpu_s", ("case", "rank"), "float64", "s", float("nan"), "CPU time per operation"),
    Column("min_ns", ("case", "iteration"), "int64", "ns", -1, "the shortest duration over ranks"),
    Column("median_ns", ("case", "iteration"), "int64", "ns", -1, "the median duration over ranks"),
    Column("max_ns", ("case", "iteration"), "int64", "ns", -1, "the longest duration over ranks: timing rule max"),
    Column(
        "span_ns", ("case", "iteration"), "int64", "ns", -1, "latest end minus earliest start on one clock: rule span"
    ),
    Column("slowest_rank", ("case", "iteration"), "int64", "", -1, "the rank of the longest duration"),
    Column("round", ("case", "iteration"), "uint8", "", 0, "the round that it belongs to, from 1 on", since=3),
    Column("start_ns", ("case", "iteration", "rank"), "int64", "ns", -1, "start of the operation by the rank's clock"),
    Column("end_ns", ("case", "iteration", "rank"), "int64", "ns", -1, "end of the operation by the rank's clock"),
    Column(
        "device_ns", ("case", "iteration", "rank"), "int64", "ns", -1, "between events on the GPU of the rank", since=4
    ),
)
