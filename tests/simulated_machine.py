"""A machine whose transfers are simulated, with faults of every kind: what ``hpccoll diagnose`` is tested with."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hpccoll.diagnosis.slot_records import OF_A_RACK, Component, Diagnosis, Floats, Integers, Slots

SECONDS = 0.02
"""The usual time of a transfer."""


@dataclass(frozen=True)
class Environment:
    """How the times of a healthy machine vary: logarithms of factors, standard deviations unless they say otherwise."""

    # of one transfer; half of its variance is common to both directions of a pair
    noise: float = 0.03
    spikes: float = 0.05  # share of the pairs that take longer: exponential, with a mean of 0.5
    spread: float = 0.0  # of nodes, for good
    far: float = 0.0  # cost of a transfer across racks
    drift: float = 0.0  # of a step of the random walk of the whole machine, from slot to slot
    rack: int = 0  # nodes of a rack; 0: all are in one
    # of a rack, on which its transfers are distributed at random; 0: as many as nodes
    uplinks: int = 0
    racks_known: bool = True  # whether the diagnosis is given the racks


def slower(percent: float) -> float:
    """Return the logarithm of the factor of a time at a rate that is lower by some per cent."""
    return -math.log1p(-percent / 100)


class SimulatedMachine:
    """Nodes that transfer as fast as the slowest component between them.

    Args:
        nodes: how many there are.
        environment: how times vary.
        faults: slow components, and by how many per cent their rates are lower; of a rail: on a
            machine with rails.
        hung: nodes that do not answer.
        seed: of the random numbers.
    """

    def __init__(
        self,
        nodes: int,
        environment: Environment,
        faults: Iterable[tuple[Component, float]],
        rng: np.random.Generator,
        hung: Iterable[int] = (),
    ) -> None:
        self.nodes, self.environment, self.rng = nodes, environment, rng
        self.racks = (
            np.arange(nodes) // environment.rack if environment.rack else np.zeros(nodes, np.int64)
        )
        self.faults = {component: slower(percent) for component, percent in faults}
        self.hung, self.level = [*hung], 0.0
        self.send, self.receive = np.tile(rng.normal(0, environment.spread, nodes), (2, 1))
        self.uplinks = np.zeros(nodes)
        for component, slow in self.faults.items():
            number = self.racks if component.kind in OF_A_RACK else np.arange(nodes)
            nodes_of = np.isin(number, component.where)
            if component.kind in ("node", "rack", "send", "rail"):
                self.send = np.where(nodes_of, self.send + slow, self.send)
            if component.kind in ("node", "rack", "receive", "rail"):
                self.receive = np.where(nodes_of, self.receive + slow, self.receive)
            if component.kind == "uplink":
                self.uplinks = np.where(nodes_of, slow, self.uplinks)

    @property
    def known_racks(self) -> list[int] | None:
        """The racks that a diagnosis is given."""
        return (
            self.racks.tolist() if self.environment.rack and self.environment.racks_known else None
        )

    def measure(self, slots: Slots) -> Floats:
        """Return the times of slots, as ranks would measure them."""
        partners, around = slots.partners, self.environment
        shape, rng = partners.shape, self.rng
        far = self.racks[partners] != self.racks
        times = np.maximum(self.send, self.receive[partners])
        times = np.where(
            far, np.maximum(times, np.maximum(self.uplinks, self.uplinks[partners])), times
        )
        for component, slow in self.faults.items():
            if component.kind == "link":
                one, other = component.where
                together = partners[:, one] == other
                for end in component.where:
                    times[together, end] = np.maximum(times[together, end], slow)
        of_pair = rng.normal(0, around.noise * math.sqrt(0.5), shape)
        of_pair += (rng.random(shape) < around.spikes) * rng.exponential(0.5, shape)
        times += around.far * far + np.take_along_axis(
            of_pair, np.minimum(np.arange(self.nodes), partners), 1
        )
        times += rng.normal(0, around.noise * math.sqrt(0.5), shape)
        if around.drift:
            walk = self.level + np.cumsum(rng.normal(0, around.drift, len(partners)))
            times, self.level = times + walk[:, None], walk[-1]
        if around.uplinks:
            times += np.log(self._flows(partners, far))
        times[partners == np.arange(self.nodes)] = np.nan
        seconds = SECONDS * np.exp(times)
        return self._until_silence(partners, seconds) if self.hung else seconds

    def _flows(self, partners: Integers, far: Integers) -> Floats:
        """Return the transfers that share the fuller one of the two uplinks of each transfer across racks."""
        racks, uplinks = self.racks.max() + 1, self.environment.uplinks
        most = np.ones(partners.shape)
        for rack in (self.racks, self.racks[partners]):
            slot = np.arange(len(partners))[:, None]
            uplink = (slot * racks + rack) * uplinks + self.rng.integers(
                uplinks, size=partners.shape
            )
            flows = np.bincount(uplink[far], minlength=len(partners) * racks * uplinks)
            most = np.where(far, np.maximum(most, flows[uplink]), most)
        return most

    def _until_silence(self, partners: Integers, seconds: Floats) -> Floats:
        silent = np.isin(np.arange(self.nodes), self.hung)
        missed = (silent | silent[partners]) & (partners != np.arange(self.nodes))
        seconds[missed] = np.inf
        slots = np.flatnonzero(missed.any(1))
        return seconds[: slots[0] + 1] if slots.size else seconds


class MachineWithRails:
    """Several rails, each a simulated machine of its own with the same nodes."""

    def __init__(self, rails: Iterable[SimulatedMachine]) -> None:
        self.rails = [*rails]

    def measure(self, slots: Slots) -> Floats:
        """Return the times of slots."""
        parts = np.split(slots.partners, len(self.rails), axis=1)
        times = [
            rail.measure(Slots(part - k * rail.nodes, slots.purpose))
            for k, (rail, part) in enumerate(zip(self.rails, parts, strict=True))
        ]
        fewest = min(map(len, times))
        return np.concatenate([each[:fewest] for each in times], axis=1)


def components(diagnosis: Diagnosis) -> set[Component]:
    """Return what a diagnosis says is faulty."""
    return {fault.component for fault in diagnosis.faults}
