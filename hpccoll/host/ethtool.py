"""Ethtool: what the driver of an Ethernet device counts by names of its own, and the pause frames among that."""

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

PAUSE = re.compile(r"^(?!.*(global|duration|transition|storm|xon)).*(pause|xoff|pfc_frames)")
"""Statistics that count pause frames: rx_pause_ctrl_phy, rx_prio3_pause, tx_pause_frames, port.link_xoff_rx, ...

mlx5 counts the frames of rx_pause_ctrl_phy in rx_global_pause again; a frame that ends a pause (xon) stops nobody.
"""


def driver_statistics(device: str) -> dict[str, int]:
    """Return what the driver of an Ethernet device counts by names of its own (``ethtool -S``); empty where nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:

        def ask(head: bytes, room: int) -> bytes:
            # Twice the room: the kernel does not look whether a driver has got more statistics in the meantime.
            answer = np.frombuffer(head.ljust(len(head) + 2 * room, b"\0"), np.uint8).copy()
            fcntl.ioctl(channel, SIOCETHTOOL, struct.pack("16sP16x", device.encode(), answer.ctypes.data))
            return answer.tobytes()[len(head) : len(head) + room]

        try:
            (count,) = struct.unpack("I", ask(struct.pack("IIQ", ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_STATS), 4))
            names = ask(struct.pack("III", ETHTOOL_GSTRINGS, ETH_SS_STATS, count), count * ETH_GSTRING_LEN)
            values = ask(struct.pack("II", ETHTOOL_GSTATS, count), count * 8)
        except OSError:  # it counts nothing, or is gone
            return {}
    words = (names[at : at + ETH_GSTRING_LEN].split(b"\0")[0].decode() for at in range(0, len(names), ETH_GSTRING_LEN))
    return dict(zip(words, struct.unpack(f"{count}Q", values), strict=True))


@cache
def _pause_counter(name: str) -> str | None:
    """Return which counter the statistic ``name`` is part of."""
    way = re.search(r"(?<![a-z])[rt]x(?![a-z])", name)
    return f"{way[0]}_pause_frames" if way and PAUSE.match(name) else None


def pause_frames(statistics: Mapping[str, int]) -> dict[str, int]:
    """Return the pause frames sent and received in all priorities, of those two what the driver counts."""
    frames: dict[str, int] = {}
    for name, value in statistics.items():
        if counter := _pause_counter(name):
            frames[counter] = frames.get(counter, 0) + value
    return frames
