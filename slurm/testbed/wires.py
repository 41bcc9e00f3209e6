"""The wires: a bridge in the fabric, and from every host one metered cable to it."""

import re
from collections.abc import Sequence

from errors import RefusedError
from host import Host

MTU = 9000
"""As fabrics for computing have it: TCP then carries 99.3 % of the rate, where 1500 would let it carry 95.6 %."""
CARRIED = (MTU - 52) / (MTU + 14)
"""The part of a wire's rate that is left for the payload of TCP: 52 bytes of headers inside the MTU, 14 around it."""
PACKET = 9100
"""A whole packet, with room to spare."""
SLOWEST, FASTEST = 10_000_000, 10_000_000_000
"""The rates, in bit/s, at which the meters were seen to hold."""
RATES = "choose none, or a rate from 10mbit to 10gbit, such as 100mbit or 2.5gbit"
UNITS = {"mbit": 1_000_000, "gbit": 1_000_000_000}


def bits_per_second(rate: str) -> int | None:
    """Read a rate; `none` is a wire without a meter."""
    if rate == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(mbit|gbit)", rate)
    bps = round(float(match[1]) * UNITS[match[2]]) if match else 0
    if not SLOWEST <= bps <= FASTEST:
        raise RefusedError(f"--rate: {rate!r} is not valid: {RATES}")
    return bps


def address(host: str) -> str:
    """Return the address of a host."""
    return "10.77.0.254" if host == "head" else f"10.77.0.{host.removeprefix('n')}"


def meter(bps: int) -> str:
    """Return the token bucket that holds a wire to its rate, after a pause too.

    A plain bucket fills up while the wire is idle, and what is sent next beats the wire. Therefore the second bucket,
    ``mtu``, which fills at ``peakrate``: it is as small as can be. Up to 100 Mbit/s that is one packet; above, the
    bucket must last until the kernel's timer comes round, which is two packets, and more beyond 1 Gbit/s. The first
    bucket, ``burst``, makes up for timers that were late: 64 KiB, less below 100 Mbit/s and more beyond 1 Gbit/s.
    """
    peak = max(PACKET if bps <= 100_000_000 else 2 * PACKET, bps * 2 * PACKET // 1_000_000_000)
    burst = max(min(65536, 65536 * bps // 100_000_000), 65536 * bps // 1_000_000_000, 2 * peak)
    return f"tbf rate {bps}bit burst {burst} peakrate {bps * 102 // 100}bit mtu {peak} latency 100ms"


def wire(fabric: Host, hosts: Sequence[Host], bps: int | None) -> None:
    """Lay the cables, from namespace to namespace; outside them nothing is seen."""
    cables = [
        line
        for host in hosts
        for line in (
            f"link add name {host.name} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {host.process.pid}",
            f"link set dev {host.name} master br0 up",
        )
    ]
    bridge = ["link add name br0 type bridge mcast_snooping 0", f"link set dev br0 mtu {MTU} up"]
    fabric.call("ip", "-batch", "-", batch=["link set dev lo up", *bridge, *cables])
    for host in hosts:
        own = f"address add {address(host.name)}/24 dev eth0"
        host.call("ip", "-batch", "-", batch=["link set dev lo up", own, "link set dev eth0 up"])
    if bps is not None:
        fabric.call("tc", "-batch", "-", batch=[f"qdisc add dev {host.name} root {meter(bps)}" for host in hosts])
        for host in hosts:
            host.call("tc", "-batch", "-", batch=[f"qdisc add dev eth0 root {meter(bps)}"])
