"""Bandwidth of the wires between nodes: their calibrated rate, what a result may reach of it, and their bytes.

Only the wires of a testbed are calibrated, and only a calibrated wire has a percentage.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpccoll.analysis.row_labels import offloaded
from hpccoll.common.units import format_bit_rate
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row, Run
from hpccoll.store.schema import ON_SHARED_GPU

TOLERANCE = 0.02
"""Tolerance of a calibrated wire relative to the TCP rate, and of the calibration of a size relative to the wire's."""
IPV4_BYTES = 20
TCP_BYTES = 32
ETHERNET_BYTES = 14
"""Header bytes of a frame: RFC 791; RFC 9293 with the timestamps of RFC 7323; IEEE 802.3. The
counters of network devices leave out preamble, checksum and gap
(Documentation/networking/statistics.rst of Linux)."""
IP_HEADER_BYTES = IPV4_BYTES + TCP_BYTES
FRAME_HEADER_BYTES = IP_HEADER_BYTES + ETHERNET_BYTES
FRAMES_PER_ACKNOWLEDGEMENT = 2
"""A receiver acknowledges at least every second full frame: RFC 9293, 3.8.6.3."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The wires of a run."""

    rate_label: str = ""  # the rate of the wires of a testbed, in words; empty on real machines
    # the MTU of all ports in bytes; None if they differ, or if a port is not an Ethernet port
    mtu: int | None = None
    # bytes per second of one wire; None unless it was calibrated and reaches its TCP rate
    calibrated_rate: float | None = None
    rails: int = 1  # the number of wires of each node
    # the smallest message for which ``calibrated_rate`` holds; smaller ones may be faster, as a
    # burst
    min_bytes: int = 0
    # the calibrated part of the TCP rate, if that is not nearly 1; else None
    rate_ratio: float | None = None
    # the bytes per second of all ports, as their drivers say; None on a testbed, if unknown, or if
    # ports differ
    port_rate: float | None = None
    # the bytes per second at which a wire is set, or what it carried if that is more; None without
    # a rate
    line_rate: float | None = None

    @classmethod
    def of(cls, run: Run | None) -> "Wire":
        """Return the wires that ``run`` recorded."""
        provenance: Mapping[str, Any] = run.provenance if run else {}
        hosts = provenance.get("ports") or ()
        mtu = _common(hosts, "mtu")
        testbed = provenance.get("testbed")
        if testbed:
            return cls._of_testbed(testbed, mtu or testbed["mtu"])
        speed = _common(hosts, "speed")
        return cls(mtu=mtu, port_rate=speed and 1e6 * speed / 8)

    @classmethod
    def _of_testbed(cls, testbed: Mapping[str, Any], mtu: int) -> "Wire":
        rate = testbed["rate_bps"]
        label = format_bit_rate(rate) if rate else "unmetered wires"
        uplink = testbed.get("uplink_bps")
        if uplink:
            # Messages between racks share one wire: the rate of a node's wire does not limit them.
            return cls(f"{label}, {format_bit_rate(uplink)} from each rack", mtu)
        if not rate:
            return cls(label, mtu)
        uncalibrated = cls(label, mtu, rails=testbed.get("rails", 1), line_rate=rate / 8)
        carried = testbed["wire_Bps"]
        if not carried:
            return uncalibrated
        rate_ratio = carried / tcp_rate(rate, mtu)
        if abs(rate_ratio - 1) > TOLERANCE:
            return replace(uncalibrated, rate_ratio=rate_ratio, line_rate=max(rate / 8, carried))
        least = _smallest_calibrated(testbed["calibration"], carried)
        if least is None:
            return uncalibrated
        return replace(uncalibrated, calibrated_rate=carried, min_bytes=least)


def tcp_rate(rate_bps: float, mtu: int) -> float:
    """Return the bytes per second that TCP carries over Ethernet of that rate: 99.3 % of it with an MTU of 9000."""
    payload = mtu - IP_HEADER_BYTES
    frame = mtu + ETHERNET_BYTES
    return rate_bps / 8 * payload / frame


def _smallest_calibrated(calibration: Iterable[Mapping[str, int]], seen: float) -> int | None:
    """Return the smallest calibrated size from which on all sizes reach the rate of the wire; None without one."""
    least = None
    for entry in sorted(calibration, key=lambda entry: -entry["bytes"]):
        if abs(entry["Bps"] / seen - 1) > TOLERANCE:
            break
        least = entry["bytes"]
    return least


def _common(hosts: Iterable[Mapping[str, Any]], fact: str) -> int | None:
    """Return a fact, such as the MTU, of all ports of all hosts; None if they differ or are not all Ethernet ports."""
    values = set()
    for host in hosts:
        for port in host["ports"]:
            values.add(port.get(fact) if port["kind"] == "netdev" else None)
    return values.pop() if len(values) == 1 else None


UNUSED_PORT_SHARE = 0.02
"""The part of a node's bytes up to which a port is unused: control messages of the MPI library."""


def ports_used(row: Row) -> dict[str, float]:
    """Return the ports that a node used, with their parts of its bytes, the largest first."""
    total = sum(row.port_sent.values())
    least = UNUSED_PORT_SHARE * total
    parts = [(port, sent / total) for port, sent in row.port_sent.items() if sent > least]
    parts.sort(key=lambda part: (-round(part[1], 2), part[0]))
    return dict(parts)


def wire_ceiling(row: Row, wire: Wire) -> float | None:
    """Return the total rate of the wires that ``row`` used, calibrated or as set; None if busbw may exceed it.

    The rails of a testbed are equal, and one of them is calibrated. With one rank on each node,
    busbw is at most the total rate of its wires. Ranks that share wires may exceed it, and so may
    aggregation by ranks or by switches, which sends a vector once. Ranks that share a GPU do not
    wait for wires.
    """
    if offloaded(row) or row.kind == ON_SHARED_GPU:
        return None
    rails = rails_in_use(row, wire)
    rate = wire.calibrated_rate or wire.line_rate
    if rate is None or not rails or row.nodes < 2 or row.ranks != row.nodes:
        return None
    # busbw uses the mean bytes, and the busiest rank sets the time
    if row.collective == "all_to_all_v":
        return None
    return None if _aggregated(row) else rate * rails


def wire_limit(row: Row, wire: Wire) -> float | None:
    """Return that rate for sizes for which the calibration holds; None for smaller ones, which may be bursts."""
    if wire.calibrated_rate is None or row.bytes < wire.min_bytes * rails_in_use(row, wire):
        return None
    return wire_ceiling(row, wire)


def rails_in_use(row: Row, wire: Wire) -> int:
    """Return the number of wires of a node that ``row`` used."""
    return 1 if wire.rails == 1 else len(ports_used(row))


def _aggregated(row: Row) -> bool:
    """Return whether aggregators save a worker a part of the bytes that busbw assumes it sends."""
    if (
        not row.aggregators
        or row.worker_sent_predicted is None
        or not row.algbw_Bps
        or not row.busbw_Bps
    ):
        return False
    sent_share = row.worker_sent_predicted / row.bytes
    return sent_share < 0.999 * row.busbw_Bps / row.algbw_Bps


def add_headers(payload_bytes: float, mtu: int) -> float:
    """Return the bytes that the ports of all hosts send for ``payload_bytes`` of messages, in full TCP frames.

    The result holds for messages of many frames: a small message has a frame, and the MPI library's
    header, to itself.

    Args:
        payload_bytes: the bytes of all messages.
        mtu: the bytes of a frame without its Ethernet header: 1500, or 9000 for jumbo frames.
    """
    frames = payload_bytes / (mtu - IP_HEADER_BYTES)
    acknowledgements = frames / FRAMES_PER_ACKNOWLEDGEMENT
    return payload_bytes + frames * FRAME_HEADER_BYTES + acknowledgements * FRAME_HEADER_BYTES


def measured_to_counted(row: Row, wire: Wire) -> float | None:
    """Return the bytes that the ports sent over those counted from the schedule with headers; None without both."""
    if (
        row.nodes < 2
        or not row.wire_bytes_predicted
        or wire.mtu is None
        or row.wire_bytes_measured is None
    ):
        return None
    return row.wire_bytes_measured / add_headers(row.wire_bytes_predicted, wire.mtu)


def in_units_of_size(row: Row, nbytes: float | None) -> float | None:
    """Return bytes on the wire in units of S; None on one node."""
    if nbytes is None or row.nodes < 2 or not row.bytes:
        return None
    return nbytes / row.bytes


def uncounted_reason(row: Row) -> str:
    """Return why ``row`` has no counted bytes; empty if only its file is too old for them."""
    return "its schedule is not known" if row.algorithm == NATIVE else ""


def aggregator_bytes(row: Row, everyone: float | None, worker: float | None) -> float | None:
    """Return the bytes of the aggregators: those of all nodes without ``worker`` for each node of workers."""
    if everyone is None or worker is None or not row.aggregators:
        return None
    return everyone - row.nodes * worker


HEADER_MODEL = (
    f"Counted with headers: the bytes that our schedule sends between nodes, in full frames of the MTU, each with "
    f"{FRAME_HEADER_BYTES} bytes of Ethernet, IPv4 and TCP headers, and an acknowledgement for every second frame. "
    "A small message exceeds that: it has its own frame and a header of the MPI library."
)
