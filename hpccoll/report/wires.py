"""The wires between nodes: how fast they are, what of it a result reaches, and what was sent over them.

Only the wires of a testbed are calibrated, and only of a calibrated wire is there a per cent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hpccoll.store.rows import Row, Run
from hpccoll.store.wire import ETHERNET, IPV4, TCP, with_headers

TOLERANCE = 0.02
"""How far a calibrated wire may be from what TCP carries of its rate, and a size's calibration from the wire's."""
HEADERS = IPV4 + TCP


@dataclass(frozen=True, slots=True)
class Wire:
    """What is known of the wires of a run.

    Args:
        words: their rate where they are a testbed's, empty on real machines.
        mtu: the same on every port, None where it is not, or where a port is not Ethernet's.
        carried: bytes per second of one of them, None unless it is calibrated and keeps what its rate promises.
        least: bytes from which on the calibration gives ``carried``; less may pass as a burst.
        kept: the part of what TCP carries of its rate that it was seen to carry, where that is not nearly all.
    """

    words: str = ""
    mtu: int | None = None
    carried: float | None = None
    least: int = 0
    kept: float | None = None

    @classmethod
    def of(cls, run: Run | None) -> "Wire":
        """Return what ``run`` recorded of its wires."""
        provenance: Mapping[str, Any] = run.provenance if run else {}
        mtu, bed = _mtu(provenance.get("ports") or ()), provenance.get("testbed")
        if not bed:
            return cls(mtu=mtu)
        rate, seen, mtu = bed["rate_bps"], bed["wire_Bps"], mtu or bed["mtu"]
        words = format_bits(rate) if rate else "unmetered wires"
        if uplink := bed.get("uplink_bps"):
            # What leaves a rack shares one wire: that of a node says little.
            return cls(f"{words}, {format_bits(uplink)} from each rack", mtu)
        # What several rails carry together is not calibrated.
        if not rate or not seen or bed.get("rails", 1) > 1:
            return cls(words, mtu)
        if abs((kept := seen / promised(rate, mtu)) - 1) > TOLERANCE:
            return cls(words, mtu, kept=kept)
        least = _least(bed["calibration"], seen)
        return cls(words, mtu) if least is None else cls(words, mtu, seen, least)


def promised(rate_bps: float, mtu: int) -> float:
    """Return the bytes per second that TCP carries over an Ethernet of that rate: 99.3 % where frames are jumbo."""
    return rate_bps / 8 * (mtu - HEADERS) / (mtu + ETHERNET)


def _least(calibration: Iterable[Mapping[str, int]], seen: float) -> int | None:
    """Return the smallest size from which on all sizes that were calibrated come to what the wire carries."""
    least = None
    for entry in sorted(calibration, key=lambda entry: -entry["bytes"]):
        if abs(entry["Bps"] / seen - 1) > TOLERANCE:
            break
        least = entry["bytes"]
    return least


def _mtu(hosts: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the MTU that all ports of all hosts have, None where they differ or are not all Ethernet's."""
    ports = [port for alike in hosts for port in alike["ports"]]
    mtus = {port["mtu"] if port["kind"] == "netdev" else None for port in ports}
    return mtus.pop() if len(mtus) == 1 else None


def share(row: Row, wire: Wire) -> float | None:
    """Return busbw over what a wire carries, None where that says nothing.

    With one rank on each node, busbw is at most what a wire carries; ranks that share a node's wire may exceed it.
    """
    if wire.carried is None or not row.busbw_Bps or row.nodes < 2 or row.ranks != row.nodes or row.bytes < wire.least:
        return None
    if row.collective == "all_to_all_v":  # its busbw is of the mean, and the busiest of unequal ranks sets the time
        return None
    return row.busbw_Bps / wire.carried


def counted_with_headers(row: Row, wire: Wire) -> float | None:
    """Return the bytes that all nodes send by our count of the schedule, headers and acknowledgements among them."""
    if row.nodes < 2 or not row.wire_bytes_predicted or wire.mtu is None:
        return None
    return with_headers(row.wire_bytes_predicted, wire.mtu)


def measured_to_counted(row: Row, wire: Wire) -> float | None:
    """Return the bytes that the ports sent over those that we count, with headers."""
    expected = counted_with_headers(row, wire)
    return row.wire_bytes_measured / expected if expected and row.wire_bytes_measured is not None else None


def per_node(row: Row, sent: int | None) -> float | None:
    """Return bytes ``sent`` by all nodes as those of one node, in units of S; None where some only aggregate."""
    if sent is None or row.nodes < 2 or not row.bytes or row.aggregators:
        return None
    return sent / row.nodes / row.bytes


HEADER_MODEL = (
    f"Counted with headers: the bytes that our schedule sends between nodes, in full frames of the MTU, each with "
    f"{HEADERS + ETHERNET} bytes of Ethernet, IPv4 and TCP headers, and an acknowledgement for every second one; a "
    "small message has a frame, and the header of the MPI library, to itself, and is above it."
)


def format_bits(bps: float) -> str:
    """Return a rate as people name wires: ``100 Mbit/s``, ``2.5 Gbit/s``."""
    return f"{bps / 1e9:g} Gbit/s" if bps >= 1e9 else f"{bps / 1e6:g} Mbit/s"


def rate_unit(largest: float) -> tuple[float, str]:
    """Return the unit in which rates up to ``largest`` bytes per second are read best, by its scale and name."""
    return (1e9, "GB/s") if largest >= 1e9 else (1e6, "MB/s")


def format_rate(rate: float) -> str:
    """Return bytes per second with three significant digits: ``3.2 GB/s``, ``12.4 MB/s``."""
    scale, unit = rate_unit(rate)
    return f"{rate / scale:.3g} {unit}"
