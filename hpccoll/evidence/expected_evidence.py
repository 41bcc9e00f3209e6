"""What a variant must show before a row is named after it: in words, and as a question to a record."""

from collections.abc import Callable
from dataclasses import dataclass

from hpccoll.evidence.communicator import WINNERS
from hpccoll.evidence.records import Ran, Record
from hpccoll.evidence.requested import IN_SWITCHES


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


def _heard(record: Record, setting: str) -> bool:
    return record.communicator.get(setting, "0") != "0" and WINNERS.get(setting) not in record.settings


def heard(setting: str) -> Demand:
    """Return the demand that NCCL logged a setting of a communicator, other than its default."""
    words = f"a line 'Comm config ... set to ...' for {setting}, and no variable that wins over it"
    return Demand(words, lambda record: _heard(record, setting))


def not_heard(setting: str) -> Demand:
    """Return the demand of a negative control of ``heard``."""
    words = f"no line 'Comm config ... set to ...' for {setting}, or set to 0: the negative control"
    return Demand(words, lambda record: not _heard(record, setting))


def signs_of_windows(record: Record) -> tuple[str, ...]:
    """Return the lines that show kernels on symmetric windows."""
    return tuple(one.line for one in record.ran if one.algorithm == "symmetric")


def names_switches(one: Ran) -> bool:
    """Return whether a line names an algorithm, or a layer among others, that leaves the reduction to switches."""
    return one.algorithm in IN_SWITCHES or "sharp" in one.algorithm.split("+")


def in_switches(record: Record) -> bool:
    """Return whether lines show that switches between nodes reduce: the algorithm or layer, and SHARP's own lines.

    NVLS over several nodes needs them as well; NVLS_TREE shows that they do not.
    """
    across = record.nodes is not None and record.nodes > 1
    return bool(record.sharp) and any(names_switches(one) or (across and one.algorithm == "nvls") for one in record.ran)


def group_of_switches(record: Record) -> bool:
    """Return whether lines of libsharp show that a group of ranks was given a tree of switches."""
    return bool(record.trees)


def signs_of_switches(record: Record) -> tuple[str, ...]:
    """Return the lines that show SHARP, or that CollNet is connected."""
    return (*record.sharp, *record.collnet, *(one.line for one in record.ran if names_switches(one)))


def signs_of_nvls(record: Record) -> tuple[str, ...]:
    """Return the lines that show that NVLink SHARP carried out a collective."""
    return tuple(one.line for one in record.ran if one.algorithm.startswith("nvls"))


def signs_of_direct(record: Record) -> tuple[str, ...]:
    """Return the ways of channels between nodes that lead directly to the memory of GPUs."""
    return tuple(path for path in record.paths if path.startswith("NET/") and "GDRDMA" in path)


ACROSS = {"collnet_direct": "COLLNET_DIRECT", "collnet_chain": "COLLNET_CHAIN", "nvls": "NVLS over several nodes"}
"""NCCL's algorithms that leave the reduction between nodes to switches, as lines name them."""


def switches_by(*algorithms: str) -> Demand:
    """Return the demand that switches between nodes reduced, by one of those ``algorithms`` of NCCL."""
    words = f"a TUNING line with Algo {' or '.join(ACROSS[name] for name in algorithms)}; "
    return Demand(
        words + "a SHARP group; and one vector up per port instead of 2(n-1)/n",
        lambda record: in_switches(record) and any(one.algorithm in algorithms for one in record.ran),
    )


SHARP_BY_NCCL = switches_by(*ACROSS)
SHARP_BY_UCC = Demand(
    "TL_SHARP in the lines of UCC_COLL_TRACE; a SHARP group; and one vector up per port instead of 2(n-1)/n",
    in_switches,
)
SHARP_BY_ITS_LINES = Demand(
    "a SHARP group in the lines of libsharp, and one vector up per port instead of 2(n-1)/n", group_of_switches
)
NO_SHARP = Demand("no line of CollNet or SHARP: the negative control", lambda record: not signs_of_switches(record))
NVLS = Demand(
    "lines that say NVLS multicast is available and connected, and a TUNING line with Algo NVLS",
    lambda record: bool(record.nvls) and any(one.algorithm == "nvls" for one in record.ran),
)
NO_NVLS = Demand("no TUNING line with Algo NVLS: the negative control", lambda record: not signs_of_nvls(record))
DIRECT = Demand("channels via NET/.../GDRDMA, all of them", lambda record: record.gdr is True)
NOT_DIRECT = Demand(
    "channels via NET/... without GDRDMA", lambda record: record.gdr is False and not signs_of_direct(record)
)
ONE_RAIL = Demand("NET/IB : Using names one port", lambda record: len(record.devices) == 1)
SEVERAL_RAILS = Demand("NET/IB : Using names several ports", lambda record: len(record.devices) > 1)
BY_PORTS = Demand("bytes per port: the share of each rail in wire_bytes", None)
TCP = Demand("NCCL says that it uses Socket", lambda record: record.network == ("Socket",))
SYMMETRIC = Demand(
    "a TUNING line '[Symmetric]: ... -> Kernel' for each size", lambda record: bool(signs_of_windows(record))
)
NOT_SYMMETRIC = Demand(
    "no TUNING line '[Symmetric]': the negative control", lambda record: not signs_of_windows(record)
)
SIGNS = {
    NOT_SYMMETRIC: ("kernels on symmetric windows", signs_of_windows),
    NO_SHARP: ("SHARP", signs_of_switches),
    NO_NVLS: ("NVLS", signs_of_nvls),
    NOT_DIRECT: ("GPUDirect", signs_of_direct),
}
"""What a negative control is to do without, and the lines that show it all the same."""
