"""What a variant must show before a row is named after it: in words, and as a question to a record."""

from collections.abc import Callable
from dataclasses import dataclass

from hpccoll.evidence.asked import IN_SWITCHES
from hpccoll.evidence.records import Record


@dataclass(frozen=True, slots=True)
class Demand:
    """Evidence that is demanded of a launch as a whole; of a case, ``verdict`` asks for its own lines.

    Args:
        words: what must be seen, for people.
        met: whether a record shows it; None where no log does, and only counters of ports can.
    """

    words: str
    met: Callable[[Record], bool] | None


def ran(algorithm: str) -> Demand:
    """Return the demand that NCCL logged ``algorithm`` for a collective."""
    words = f"a TUNING line with Algo {algorithm.upper()} for each size"
    return Demand(words, lambda record: any(one.algorithm == algorithm for one in record.ran))


def ran_with(protocol: str) -> Demand:
    """Return the demand that NCCL logged ``protocol`` for a collective."""
    words = f"a TUNING line with proto {protocol} for each size"
    return Demand(words, lambda record: any(one.protocol == protocol for one in record.ran))


def in_switches(record: Record) -> bool:
    """Return whether NCCL's lines show that switches between nodes reduce: the algorithm, and SHARP's own lines.

    NVLS over several nodes needs them as well; NVLS_TREE shows that they do not.
    """
    across = record.nodes is not None and record.nodes > 1
    algorithms = {one.algorithm for one in record.ran}
    return bool(record.sharp) and bool(algorithms & {*IN_SWITCHES} or (across and "nvls" in algorithms))


def by_ucc(record: Record) -> bool:
    """Return whether UCC's trace names its SHARP layer, and SHARP's own lines show a group."""
    return bool(record.sharp) and any(one.algorithm == "sharp" for one in record.ran)


def group_of_switches(record: Record) -> bool:
    """Return whether lines of libsharp show that a group of ranks was given a tree of switches."""
    return bool(record.trees)


def nothing_in_switches(record: Record) -> bool:
    """Return whether no line shows SHARP: the negative control."""
    return not (record.collnet or record.sharp or any(one.algorithm in {*IN_SWITCHES, "sharp"} for one in record.ran))


SHARP_BY_NCCL = Demand(
    "a TUNING line with Algo COLLNET_DIRECT, COLLNET_CHAIN or, over several nodes, NVLS; "
    "a SHARP group; and one vector up per port instead of 2(n-1)/n",
    in_switches,
)
SHARP_BY_UCC = Demand(
    "TL_SHARP in the lines of UCC_COLL_TRACE; a SHARP group; and one vector up per port instead of 2(n-1)/n", by_ucc
)
SHARP_BY_ITS_LINES = Demand(
    "a SHARP group in the lines of libsharp, and one vector up per port instead of 2(n-1)/n", group_of_switches
)
NO_SHARP = Demand("no line of CollNet or SHARP: the negative control", nothing_in_switches)
NVLS = Demand(
    "lines that say NVLS multicast is available and connected, and a TUNING line with Algo NVLS",
    lambda record: bool(record.nvls) and any(one.algorithm == "nvls" for one in record.ran),
)
NO_NVLS = Demand(
    "no TUNING line with Algo NVLS: the negative control",
    lambda record: not any(one.algorithm.startswith("nvls") for one in record.ran),
)
DIRECT = Demand("channels via NET/.../GDRDMA, all of them", lambda record: record.gdr is True)
NOT_DIRECT = Demand("channels via NET/... without GDRDMA", lambda record: record.gdr is False)
ONE_RAIL = Demand("NET/IB : Using names one port", lambda record: len(record.devices) == 1)
SEVERAL_RAILS = Demand("NET/IB : Using names several ports", lambda record: len(record.devices) > 1)
BY_PORTS = Demand("bytes per port: the share of each rail in wire_bytes", None)
TCP = Demand("NCCL says that it uses Socket", lambda record: record.network == ("Socket",))
