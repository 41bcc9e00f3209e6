"""Driver statistics of Ethernet devices (``ethtool -S``), and the pause frames among them."""

import fcntl
import re
import socket
import struct
from collections.abc import Mapping
from functools import cache

import numpy as np

# linux/ethtool.h and linux/sockios.h
SIOCETHTOOL = 0x8946
ETHTOOL_GSTRINGS, ETHTOOL_GSTATS, ETHTOOL_GSSET_INFO = 0x1B, 0x1D, 0x37
ETH_SS_STATS, ETH_GSTRING_LEN = 1, 32

PAUSE_STATISTIC = re.compile(r"^(?!.*(global|duration|transition|storm|xon)).*(pause|xoff|pfc_frames)")
"""Names of statistics that count pause frames: rx_pause_ctrl_phy, rx_prio3_pause, tx_pause_frames, ...

mlx5 counts the frames of rx_pause_ctrl_phy again in rx_global_pause. Frames that end a pause (xon) do not count.
"""


def driver_statistics(device: str) -> dict[str, int]:
    """Return the statistics of an Ethernet device by the driver's names, empty if the driver has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:

        def query(header: bytes, nbytes: int) -> bytes:
            # Twice the size: the kernel does not check whether a driver has gained statistics in the meantime.
            answer = np.frombuffer(header.ljust(len(header) + 2 * nbytes, b"\0"), np.uint8).copy()
            fcntl.ioctl(channel, SIOCETHTOOL, struct.pack("16sP16x", device.encode(), answer.ctypes.data))
            return answer.tobytes()[len(header) : len(header) + nbytes]

        try:
            (count,) = struct.unpack("I", query(struct.pack("IIQ", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS), 4))
            names = query(struct.pack("III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count), count * ETH_GSTRING_LEN)
            values = query(struct.pack("II", ETHTOOL_GSTATS, count), count * 8)
        except OSError:  # the device has no statistics, or no longer exists
            return {}
    starts = range(0, len(names), ETH_GSTRING_LEN)
    counters = (names[start : start + ETH_GSTRING_LEN].split(b"\0")[0].decode() for start in starts)
    return dict(zip(counters, struct.unpack(f"{count}Q", values), strict=True))


@cache
def _pause_counter(name: str) -> str | None:
    """Return the counter that the statistic ``name`` adds to, None if it does not count pause frames."""
    direction = re.search(r"(?<![a-z])[rt]x(?![a-z])", name)
    return f"{direction[0]}_pause_frames" if direction and PAUSE_STATISTIC.match(name) else None


def pause_frames(statistics: Mapping[str, int]) -> dict[str, int]:
    """Return the pause frames sent and received, summed over all priorities, as far as the driver counts them."""
    frames: dict[str, int] = {}
    for name, value in statistics.items():
        if counter := _pause_counter(name):
            frames[counter] = frames.get(counter, 0) + value
    return frames
