"""Faults: what a host, a wire or a link does worse than it should, until the fault is cleared.

They are written down before anything is changed. So whatever a command that was killed has left,
the next one changes.
"""

import json
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import cpu_limit
from cluster_shape import Shape
from errors import RefusedError
from host import call
from network import UNLIMITED, WHOLE_SEGMENTS, WireDirection, address, directions, queues
from state_directory import Process, StateDirectory

PARTS = 1_000_000
"""nftables draws a number below this for every packet."""
TABLE = "netdev faults"
"""The table of nftables with the rules of losses."""
RANK = b"\0SLURM_STEP_ID="
"""What Slurm gives to ranks, and not to batch scripts."""


@dataclass(frozen=True)
class Fault:
    """A fault of one direction of a wire, or of a host.

    Args:
        effect: its kind.
        place: the host or the rack.
        text: the value as it was asked for.
        number: the value in bit/s, in seconds or as a share.
        direction: "send" or "receive"; empty where it is the host's.
        rail: the rail of the wire.
        to: where it is a link's: the host that this one sends to.
        until: when it ends, in seconds of `time.monotonic`.
        processes: the ranks that it has stopped, by number and birth.
    """

    effect: str
    place: str
    text: str
    number: float
    direction: str = ""
    rail: int = 0
    to: str = ""
    until: float | None = None
    processes: list[list[int]] = field(default_factory=list)

    @property
    def wire(self) -> tuple[str, str, int]:
        """The direction of the wire that has it."""
        return self.place, self.direction, self.rail

    @property
    def subject(self) -> tuple[object, ...]:
        """What can have only one fault: the next one takes its place."""
        return self.effect, self.wire, self.to

    def __str__(self) -> str:
        to, rail = f" to {self.to}" * bool(self.to), f" on rail {self.rail}" * (self.rail > 1)
        left = "" if self.until is None else f", {max(0, self.until - time.monotonic()):.0f} s left"
        subject = f"{self.place}{f' {self.direction}s' * bool(self.direction)}{to}{rail}"
        return f"{subject}: {f'{self.effect} {self.text}'.rstrip()}{left}"


def add(testbed: StateDirectory, shape: Shape, new: Sequence[Fault]) -> None:
    """Add faults to those that there are."""
    hosts = testbed.hosts()
    for host in {"fabric", *(fault.place for fault in new)} & hosts.keys():
        if not hosts[host].alive:
            raise RefusedError(f"host {host} is gone: take the testbed down, and bring it up")
    if new[0].until is not None:  # before they are there: they end whatever becomes of this process
        _end_at(testbed, shape, new[0].until)
    with testbed.locked(create=False):
        before = load(testbed)
        new = [
            _with_ranks(testbed, fault, before) if fault.effect == "stop" else fault
            for fault in new
        ]
        _change(testbed, shape, before, _latest([*before, *new]))


def clear(
    testbed: StateDirectory, shape: Shape, place: str | None = None, due: float | None = None
) -> list[Fault]:
    """End all faults, or those of a host or rack, or those that are due; return them."""
    with testbed.locked(create=False):
        before = load(testbed)
        ended = [fault for fault in before if place in (None, fault.place, fault.to)]
        if due is not None:
            ended = [fault for fault in ended if fault.until is not None and fault.until <= due]
        _change(testbed, shape, before, [fault for fault in before if fault not in ended])
    return ended


def load(testbed: StateDirectory) -> list[Fault]:
    """Return the faults that there are."""
    with suppress(FileNotFoundError):
        return _latest(Fault(**facts) for facts in json.loads(testbed.faults_file.read_text()))
    return []


def _latest(faults: Iterable[Fault]) -> list[Fault]:
    """Return the last fault of each subject."""
    return list({fault.subject: fault for fault in faults}.values())


def _save(testbed: StateDirectory, faults: Sequence[Fault]) -> None:
    new = testbed.faults_file.with_suffix(".new")
    new.write_text(json.dumps([asdict(fault) for fault in faults], indent=1) + "\n")
    new.replace(testbed.faults_file)


def _with_ranks(testbed: StateDirectory, fault: Fault, before: Sequence[Fault]) -> Fault:
    """Return a fault that stops the ranks which run now, next to those that are stopped already."""
    earlier = [
        process for other in before if other.subject == fault.subject for process in other.processes
    ]
    ranks = [[pid, born] for pid, born in testbed.processes(fault.place, RANK).items()]
    if not earlier + ranks:
        raise RefusedError(f"--stop: no rank runs on {fault.place}")
    return replace(fault, processes=[*earlier, *(rank for rank in ranks if rank not in earlier)])


def _end_at(testbed: StateDirectory, shape: Shape, until: float) -> None:
    """Start a process that clears what is due then, unless the testbed has been taken down before."""
    with testbed.hosts()["fabric"].held() as fabric:
        if os.fork():
            return
        try:
            os.setsid()
            for stream in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
            if not select.select([fabric], [], [], max(0, until - time.monotonic()))[0]:
                clear(testbed, shape, due=until)
        finally:
            os._exit(0)


def _change(
    testbed: StateDirectory, shape: Shape, before: Sequence[Fault], after: Sequence[Fault]
) -> None:
    _save(testbed, [*before, *after])
    with ExitStack() as stack:
        hosts = {}
        for name, process in testbed.hosts().items():
            with suppress(ProcessLookupError):
                hosts[name] = stack.enter_context(process.held())
        _set_wires(shape, hosts, before, after)
        _set_cpus(testbed, hosts, before, after)
        _set_ranks(before, after)
    _save(testbed, after)


def _set_wires(
    shape: Shape, hosts: Mapping[str, int], before: Sequence[Fault], after: Sequence[Fault]
) -> None:
    changed = {fault.wire for fault in (*before, *after)}
    chains: dict[str, list[str]] = {}
    for wire in directions(shape):
        (source, device), (target, port) = wire.sender, wire.receiver
        key = wire.place, wire.direction, wire.rail
        if key in changed and {source, target} <= hosts.keys():
            faults = [fault for fault in after if fault.wire == key]
            losses = [_loss(fault) for fault in faults if fault.effect == "loss"]
            # What TCP hands over as one packet, for the device to cut, would be lost as one.
            segments = 1 if losses else WHOLE_SEGMENTS
            call(source, hosts[source], "tc", "-batch", "-", batch=list(_queues(wire, faults)))
            call(
                source,
                hosts[source],
                "ip",
                "link",
                "set",
                "dev",
                device,
                "gso_max_segs",
                str(segments),
            )
            hook = f"chain {port} {{ type filter hook ingress device {port} priority 0;"
            chains.setdefault(target, []).extend([hook, *losses, "}"] if losses else [])
    for target, rules in chains.items():
        table = [f"table {TABLE} {{", *rules, "}"] if rules else []
        call(
            target,
            hosts[target],
            "nft",
            "-f",
            "-",
            batch=[f"table {TABLE}", f"delete table {TABLE}", *table],
        )


def _queues(wire: WireDirection, faults: Sequence[Fault]) -> Iterator[str]:
    """Yield the commands for a direction: the meter has its rate; what is slowed apart from that has a class."""

    def total(effect: str, *targets: str) -> float:
        return sum(
            fault.number for fault in faults if fault.effect == effect and fault.to in targets
        )

    links = sorted({fault.to for fault in faults if fault.to and fault.effect != "loss"})
    slowed = {
        address(to, wire.rail): (round(total("rate", to)) or UNLIMITED, total("delay", "", to))
        for to in links
    }
    others = {"": (UNLIMITED, total("delay", ""))} if links or total("delay", "") else {}
    return queues(replace(wire, bps=round(total("rate", "")) or wire.bps), others | slowed)


def _loss(fault: Fault) -> str:
    link = f"ip daddr {address(fault.to, fault.rail)} " if fault.to else ""
    return f"{link}numgen random mod {PARTS} < {round(fault.number * PARTS)} counter drop"


def _set_cpus(
    testbed: StateDirectory,
    hosts: Mapping[str, int],
    before: Sequence[Fault],
    after: Sequence[Fault],
) -> None:
    shares = {
        fault.place: fault.number
        for fault in after
        if fault.effect == "cpu" and fault.place in hosts
    }
    home = testbed.hosts()["fabric"].pid if "fabric" in hosts else os.getpid()
    for host in {fault.place for fault in before if fault.effect == "cpu"} - shares.keys():
        cpu_limit.release(testbed.name, host, home)
    for host, share in shares.items():
        cpu_limit.limit(testbed.name, host, share, partial(testbed.processes, host))


def _set_ranks(before: Sequence[Fault], after: Sequence[Fault]) -> None:
    for faults, number in ((before, signal.SIGCONT), (after, signal.SIGSTOP)):
        for pid, born in (process for fault in faults for process in fault.processes):
            with suppress(ProcessLookupError), Process(pid, born).held() as pidfd:
                signal.pidfd_send_signal(pidfd, number)
