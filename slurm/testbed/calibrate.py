"""Calibration: what TCP carries over a wire and over an uplink, by size, after a pause as a benchmark makes them."""

import selectors
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import namespaces
from cluster_shape import Shape
from errors import BrokenError
from host import Host
from network import CARRIED, address

SIZES = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
"""In bytes; those that would take a wire longer than LONGEST_S are left out."""
LONGEST_S = 1.0
PAUSE_S = 0.05
"""In this time, a bucket that fills while the wire is idle would be full."""
TIMEOUT_S = 60
"""After so many seconds without a byte, a wire is broken."""
TOLERANCE = 0.02
"""How far a calibrated wire may be from what TCP can carry of its rate."""
PORT = 7
WIRES = {
    ("rate", "rate_bps", "wire_Bps"): "the wire",
    ("uplink", "uplink_bps", "uplink_Bps"): "the uplink",
}
"""What the marker says of each: its rate, in words and in bit/s, and what it was seen to carry."""


def calibrate(pairs: Sequence[tuple[Host, Host]], bps: int | None) -> list[dict[str, Any]]:
    """Return the median rate of each size, in payload bytes per second over all pairs, which send at once."""
    with ExitStack() as stack:
        flows = [stack.enter_context(_connected(source, target)) for source, target in pairs]
        together = len(flows) * 8
        _transfer(flows, SIZES[0])  # finds the neighbour
        sizes = [size for size in SIZES if bps is None or size * together / bps <= LONGEST_S]
        table = []
        for size in sizes:
            repeats = 5 if bps is None or size * together / bps < LONGEST_S / 5 else 3
            rates = [_transfer(flows, size) for _ in range(repeats)]
            table.append({"bytes": size, "Bps": round(statistics.median(rates))})
    return table


@dataclass(frozen=True)
class _Flow:
    """One TCP connection, both ends of it."""

    sender: socket.socket
    receiver: socket.socket
    names: str


@contextmanager
def _connected(source: Host, target: Host) -> Iterator[_Flow]:
    with namespaces.network(target.pidfd):
        listening = socket.create_server((address(target.name), PORT))
    with namespaces.network(source.pidfd):
        sender = socket.create_connection((address(target.name), PORT), TIMEOUT_S)
    receiver, _ = listening.accept()
    with listening, sender, receiver:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield _Flow(sender, receiver, f"{source.name} did not arrive at {target.name}")


def _transfer(flows: Sequence[_Flow], size: int) -> float:
    """Send so many bytes on every flow, and return the bytes per second while all of them are under way.

    When the first flow has ended, the others share a wire that they may not be able to fill.
    """
    begun: list[float] = []
    start = threading.Barrier(len(flows))

    def send(flow: _Flow) -> None:
        time.sleep(PAUSE_S)
        start.wait()
        begun.append(time.perf_counter())
        with suppress(OSError):  # the receiver misses the bytes, and says so
            flow.sender.sendall(bytes(size))

    threads = [threading.Thread(target=send, args=[flow], daemon=True) for flow in flows]
    for thread in threads:
        thread.start()
    rate = _collect(flows, size, begun)
    for thread in threads:
        thread.join()
    return rate


def _collect(flows: Sequence[_Flow], size: int, begun: list[float]) -> float:
    """Receive everything; return the rate until the first flow had all of it, from when the first one began."""
    rate, room = 0.0, memoryview(bytearray(1 << 20))
    with selectors.DefaultSelector() as selector:
        missing = dict.fromkeys(range(len(flows)), size)
        for number, flow in enumerate(flows):
            selector.register(flow.receiver, selectors.EVENT_READ, number)
        while selector.get_map():
            ready = [key.data for key, _ in selector.select(TIMEOUT_S)]
            if not ready:
                number = next(number for number, left in missing.items() if left)
                raise BrokenError(
                    f"calibration: {missing[number]} of {size} bytes from {flows[number].names}"
                )
            for number in ready:
                missing[number] -= flows[number].receiver.recv_into(room[: missing[number]])
                if not missing[number]:
                    selector.unregister(flows[number].receiver)
                    arrived = len(flows) * size - sum(missing.values())
                    rate = rate or arrived / (time.perf_counter() - min(begun))
    return rate


def node_pairs(shape: Shape, hosts: Mapping[str, Host]) -> list[tuple[Host, Host]]:
    """Return the pair for one wire, n1 and n2; empty where they are not beside each other."""
    first = next(iter(shape.rack.values()), shape.workers)
    return [(hosts["n1"], hosts["n2"])] if len(first) > 1 else []


def uplink_pairs(shape: Shape, hosts: Mapping[str, Host]) -> list[tuple[Host, Host]]:
    """Return the pairs that fill an uplink: as few as can, from the first workers of rack 1 to those of rack 2.

    Empty where no number of workers can, or there is nothing to fill.
    """
    if not shape.uplink or shape.uplink.bps is None:
        return []
    first, second, *_ = shape.rack.values()
    pairs = [(hosts[source], hosts[target]) for source, target in zip(first, second, strict=False)]
    enough = 1 if shape.rate.bps is None else -(-shape.uplink.bps // shape.rate.bps)
    return pairs[:enough] if enough <= len(pairs) else []


def warnings(marker: Mapping[str, Any]) -> list[str]:
    """Say so where a wire is not what its rate promises, and what to do about it."""
    texts = [
        _warning(name, facts[0], *(marker[fact] for fact in facts)) for facts, name in WIRES.items()
    ]
    if marker["uplink_bps"] and not marker["uplink_pairs"]:
        texts.append("warning: the uplink is not calibrated: the workers of a rack cannot fill it")
    return [text for text in texts if text]


def _warning(
    name: str, option: str, rate: str, bps: int | None, measured: int | None
) -> str | None:
    if bps is None or measured is None:
        return None
    ratio = measured / (bps / 8 * CARRIED)
    if abs(ratio - 1) <= TOLERANCE:
        return None
    remedy = f"take the testbed down, and bring it up while the machine is idle, or with a lower --{option}"
    seen = f"{name} carries {ratio:.1%} of what TCP should get of {rate}"
    return f"warning: {seen}: reports will print no share of that rate; {remedy}"
