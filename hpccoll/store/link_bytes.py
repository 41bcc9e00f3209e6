"""The wire: what the bytes of messages become on a link, where TCP carries them over Ethernet."""

IPV4, TCP, ETHERNET = 20, 32, 14
"""Bytes of the headers of a frame: RFC 791; RFC 9293 with the timestamps of RFC 7323; IEEE 802.3, where counters of
devices leave out preamble, checksum and gap (Documentation/networking/statistics.rst of Linux)."""

FRAMES_PER_ACKNOWLEDGEMENT = 2
"""A receiver acknowledges at least every second full frame: RFC 9293, 3.8.6.3."""


def with_headers(payload_bytes: float, mtu: int) -> float:
    """Return the bytes that the ports of all hosts send for messages of ``payload_bytes`` in all, in full frames.

    It is for messages of many frames; a small one has a frame, and the header of the MPI library, to itself.

    Args:
        payload_bytes: bytes of the messages.
        mtu: bytes of a frame without its Ethernet header: 1500, or 9000 for jumbo frames.
    """
    headers = IPV4 + TCP
    frames = payload_bytes / (mtu - headers)
    return payload_bytes + frames * (headers + ETHERNET) + frames / FRAMES_PER_ACKNOWLEDGEMENT * (headers + ETHERNET)
