"""The wires: bridges in the fabric, from every host a cable to one of them, and from every rack's one to the spine.

On each rail, a network of its own, there is a spine. Workers are below the bridge of their rack, or
on the spine where there are no racks. The head and the aggregators are always on the spine: no
uplink is theirs alone. Cables that have a meter have it at both ends, each for what leaves there;
those of aggregators have none, as the ports inside a switch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cluster_shape import Shape
from host import Host

MTU = 9000
"""As fabrics for computing have it: TCP then carries 99.3 % of the rate, where 1500 would let it carry 95.6 %."""
CARRIED = (MTU - 52) / (MTU + 14)
"""The part of a wire's rate that is left for the payload of TCP: 52 bytes of headers inside the MTU, 14 around it."""
PACKET = 9100
"""A whole packet, with room to spare."""
SENDING, ARRIVING = 2, 8
"""Packets that a meter lets through at once, for each Gbit/s: where a host sends, and in the fabric.

What one host sends has been held to the rate when it comes to the second meter. There every packet
would need a timer of its own again, and timers that are late on a busy machine slow the wire: with
8 ranks on two CPUs at 1 Gbit/s, 16 MiB took 220 to 290 ms with 2 packets there, and 217 to 220 with
8. The price is paid where several hosts send to one after a pause: 73 KB for each Gbit/s arrive at
once, and what they send is held to the rate of that wire from some ten times as much on. Up to 100
Mbit/s it is one packet at either end.
"""
QUEUE = 64 << 20
"""Bytes that may wait for a wire: more than any senders have on the way, for fabrics of clusters lose no packets.

They have credits or pause frames. With a queue of 100 ms, 200 to 400 packets were lost at every
port of 8 nodes at 100 Mbit/s in which two ranks sent to one for a moment (recursive doubling of 16
MiB).
"""
CONGESTION = "cubic"
"""The congestion control of TCP, Linux's default, whatever this machine has for itself.

Where two senders meet, each of them with BBR takes what is left of the wire for its rate, and needs
seconds to find the whole one: on 8 nodes at 100 Mbit/s, recursive doubling of 4 MiB took 1.40 s
with BBR and 1.03 s with CUBIC.
"""
LAST_BYTE = {"n": 0, "a": 100}
"""Where the addresses of hosts begin, by the letter of their names: n1 is 10.77.0.1, a1 is 10.77.0.101."""
SPINE = "spine"
UNLIMITED = 100_000_000_000
"""In bit/s: more than this machine carries from one namespace to another."""
WHOLE_SEGMENTS = 65535
"""How many packets TCP may hand to a device as one, for the device to cut: Linux's default."""


@dataclass(frozen=True)
class Cable:
    """A cable from a host to a bridge; its end in the fabric is called as the host is on that rail."""

    host: str
    rail: int
    bridge: str
    bps: int | None

    @property
    def port(self) -> str:
        """The end in the fabric."""
        return on_rail(self.host, self.rail)

    @property
    def device(self) -> str:
        """The end in the host."""
        return "eth0" if self.rail == 1 else f"rail{self.rail}"


@dataclass(frozen=True)
class WireDirection:
    """One direction of a cable or of an uplink: packets leave at a device of one host and arrive at one of another.

    Args:
        place: the host or the rack that the wire belongs to.
        direction: "send" from that place, or "receive".
        rail: the number of the rail.
        sender: the host and the device where packets wait for the wire.
        receiver: the host and the device where they arrive.
        bps: the rate, or None where there is no meter.
        packets: SENDING or ARRIVING.
    """

    place: str
    direction: str
    rail: int
    sender: tuple[str, str]
    receiver: tuple[str, str]
    bps: int | None
    packets: int


def on_rail(name: str, rail: int) -> str:
    """Return the name of something on a rail: n1 is a host's, and its device's, on the first rail; n1-r2 follows."""
    return name if rail == 1 else f"{name}-r{rail}"


def address(host: str, rail: int = 1) -> str:
    """Return the address of a host on a rail."""
    last = 254 if host == "head" else LAST_BYTE[host[0]] + int(host[1:])
    return f"10.{76 + rail}.0.{last}"


def cables(shape: Shape) -> list[Cable]:
    """Return the cable of every host; the head, which Slurm's daemon is on, needs only the first rail."""
    rack_of = {worker: rack for rack, workers in shape.rack.items() for worker in workers}
    bps = dict.fromkeys(shape.workers, shape.rate.bps)
    return [
        Cable("head", 1, SPINE, shape.rate.bps),
        *(
            Cable(host, rail, on_rail(rack_of.get(host, SPINE), rail), bps.get(host))
            for rail in range(1, shape.rails + 1)
            for host in (*shape.workers, *shape.helpers)
        ),
    ]


def directions(shape: Shape) -> Iterator[WireDirection]:
    """Yield both directions of every cable and of every uplink."""
    for cable in cables(shape):
        host, port = (cable.host, cable.device), ("fabric", cable.port)
        yield WireDirection(cable.host, "send", cable.rail, host, port, cable.bps, SENDING)
        yield WireDirection(cable.host, "receive", cable.rail, port, host, cable.bps, ARRIVING)
    bps = shape.uplink.bps if shape.uplink else None
    for rack in shape.rack:
        for rail in range(1, shape.rails + 1):
            up, down = (("fabric", on_rail(f"{rack}-{way}", rail)) for way in ("up", "down"))
            yield WireDirection(rack, "send", rail, up, down, bps, ARRIVING)
            yield WireDirection(rack, "receive", rail, down, up, bps, ARRIVING)


def _buckets(bps: int, packets: int) -> tuple[int, int]:
    """Return the bytes of the two token buckets that hold a wire to its rate, after a pause too.

    A plain bucket fills up while the wire is idle, and what is sent next beats the wire. Therefore
    the second bucket, which fills at the peak rate, 2 % above. Up to 100 Mbit/s that is one packet;
    above, the bucket must last until the kernel's timer comes round, which is two packets, and more
    where ``packets`` a Gbit/s are more than that. The first bucket makes up for timers that were
    late: 64 KiB, less below 100 Mbit/s and more beyond 1 Gbit/s.
    """
    peak = max(
        PACKET if bps <= 100_000_000 else 2 * PACKET, bps * packets * PACKET // 1_000_000_000
    )
    return max(min(65536, 65536 * bps // 100_000_000), 65536 * bps // 1_000_000_000, 2 * peak), peak


def queues(wire: WireDirection, slowed: Mapping[str, tuple[int, float]]) -> Iterator[str]:
    """Yield the commands of tc that give a direction its meter, whatever its device had before.

    Args:
        wire: the direction.
        slowed: the rate in bit/s and the delay in seconds of what goes to "", which is all that has
            no entry of its own and comes first, and to each address. Each has a class of HTB below
            the meter, with the same buckets.
    """
    device, parent = f"dev {wire.sender[1]}", "root"
    if wire.bps is None:
        yield f"qdisc replace {device} root noqueue"  # which can be deleted, whatever there was
        yield f"qdisc del {device} root"
    else:
        (burst, peak), parent = _buckets(wire.bps, wire.packets), "parent 1:1"
        bucket = f"rate {wire.bps}bit burst {burst} peakrate {wire.bps * 102 // 100}bit mtu {peak}"
        yield f"qdisc replace {device} root handle 1: tbf {bucket} limit {QUEUE}"
        yield f"qdisc replace {device} {parent} handle 2: bfifo limit {QUEUE}"
    if slowed:
        yield f"qdisc replace {device} {parent} handle 3: htb default 1"
    for number, (target, (bps, delay_s)) in enumerate(slowed.items(), 1):
        burst, peak = _buckets(bps, wire.packets)
        bucket = (
            f"rate {bps}bit burst {burst} ceil {bps * 102 // 100}bit cburst {peak} quantum {PACKET}"
        )
        delay = f"netem delay {delay_s * 1e6:.0f}us limit {QUEUE // PACKET}"
        yield f"class add {device} parent 3: classid 3:{number} htb {bucket}"
        yield f"qdisc add {device} parent 3:{number} {delay if delay_s else f'bfifo limit {QUEUE}'}"
        if target:
            yield f"filter add {device} parent 3: protocol ip prio 1 u32 match ip dst {target}/32 flowid 3:{number}"


def wire(fabric: Host, hosts: Mapping[str, Host], shape: Shape) -> None:
    """Lay the cables, from namespace to namespace; outside them nothing is seen."""
    laid = cables(shape)
    _ip(
        fabric,
        [
            *_bridges(shape),
            *_uplinks(shape),
            *(line for cable in laid for line in _lay(cable, hosts[cable.host])),
        ],
    )
    for host in hosts.values():
        _ip(
            host,
            [
                "link set dev lo up",
                *(line for cable in laid if cable.host == host.name for line in _join(cable)),
            ],
        )
    for host in (fabric, *hosts.values()):
        metered = [
            wire
            for wire in directions(shape)
            if wire.sender[0] == host.name and wire.bps is not None
        ]
        host.call(
            "tc", "-batch", "-", batch=[line for wire in metered for line in queues(wire, {})]
        )


def _bridges(shape: Shape) -> Iterable[str]:
    yield "link set dev lo up"
    for rail in range(1, shape.rails + 1):
        for name in (SPINE, *shape.rack):
            yield f"link add name {on_rail(name, rail)} type bridge mcast_snooping 0"
            yield f"link set dev {on_rail(name, rail)} mtu {MTU} up"


def _uplinks(shape: Shape) -> Iterable[str]:
    for rail in range(1, shape.rails + 1):
        for rack in shape.rack:
            up, down = (on_rail(f"{rack}-{way}", rail) for way in ("up", "down"))
            yield f"link add name {up} mtu {MTU} type veth peer name {down} mtu {MTU}"
            yield f"link set dev {up} master {on_rail(rack, rail)} up"
            yield f"link set dev {down} master {on_rail(SPINE, rail)} up"


def _lay(cable: Cable, host: Host) -> Iterable[str]:
    inside = f"{cable.device} mtu {MTU} netns {host.process.pid}"
    yield f"link add name {cable.port} mtu {MTU} type veth peer name {inside}"
    yield f"link set dev {cable.port} master {cable.bridge} up"


def _join(cable: Cable) -> Iterable[str]:
    own = address(cable.host, cable.rail)
    yield f"address add {own}/24 dev {cable.device}"
    yield f"link set dev {cable.device} up"
    yield f"route replace {own.rpartition('.')[0]}.0/24 dev {cable.device} proto kernel src {own} congctl {CONGESTION}"


def _ip(host: Host, lines: Iterable[str]) -> None:
    host.call("ip", "-batch", "-", batch=list(lines))
