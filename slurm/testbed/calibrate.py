"""Calibration: what one TCP connection from n1 to n2 carries, by size, after a pause as a benchmark makes them."""

import socket
import statistics
import threading
import time
from contextlib import suppress
from typing import Any

import kernel
from errors import BrokenError
from host import Host
from wires import CARRIED, address

SIZES = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
"""In bytes; those that would take a wire longer than LONGEST_S are left out."""
LONGEST_S = 1.0
PAUSE_S = 0.05
"""In this time, a bucket that fills while the wire is idle would be full."""
PATIENCE_S = 10
"""After so many seconds without a byte, a wire is broken."""
TOLERANCE = 0.02
"""How far a calibrated wire may be from what TCP can carry of its rate."""
PORT = 7


def calibrate(source: Host, target: Host, bps: int | None) -> list[dict[str, Any]]:
    """Return the median rate of each size, in payload bytes per second."""
    with kernel.network(target.pidfd):
        listening = socket.create_server((address(target.name), PORT))
    with kernel.network(source.pidfd):
        sender = socket.create_connection((address(target.name), PORT), PATIENCE_S)
    receiver, _ = listening.accept()
    with listening, sender, receiver:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiver.settimeout(PATIENCE_S)
        _flow(sender, receiver, SIZES[0])  # finds the neighbour
        sizes = [size for size in SIZES if bps is None or size * 8 / bps <= LONGEST_S]
        table = []
        for size in sizes:
            repeats = 5 if bps is None or size * 8 / bps < LONGEST_S / 5 else 3
            rates = [size / _flow(sender, receiver, size) for _ in range(repeats)]
            table.append({"bytes": size, "Bps": round(statistics.median(rates))})
    return table


def _flow(sender: socket.socket, receiver: socket.socket, size: int) -> float:
    """Return the seconds from the first byte's departure to the last one's arrival."""
    begun: list[float] = []

    def send() -> None:
        time.sleep(PAUSE_S)
        begun.append(time.perf_counter())
        with suppress(OSError):  # the receiver misses the bytes, and says so
            sender.sendall(bytes(size))

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    arrived, missing = bytearray(1 << 20), size
    while missing:
        received = _receive(receiver, arrived)
        if not received:
            raise BrokenError(f"calibration: {missing} of {size} bytes from n1 did not arrive at n2")
        missing -= received
    ended = time.perf_counter()
    thread.join()
    return ended - begun[0]


def _receive(receiver: socket.socket, arrived: bytearray) -> int:
    with suppress(TimeoutError):
        return receiver.recv_into(arrived)
    return 0


def warning(marker: dict[str, Any]) -> str | None:
    """Say so where the wire is not what its rate promises."""
    bps, measured = marker["rate_bps"], marker["wire_Bps"]
    if bps is None or measured is None:
        return None
    ratio = measured / (bps / 8 * CARRIED)
    if abs(ratio - 1) <= TOLERANCE:
        return None
    return f"warning: the wire carries {ratio:.1%} of what TCP should get of {marker['rate']}"
