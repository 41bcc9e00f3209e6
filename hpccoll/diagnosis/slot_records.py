"""What a diagnosis measures, and what it says."""

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Booleans: TypeAlias = NDArray[np.bool_]
Result = TypeVar("Result")

Kind: TypeAlias = Literal[
    "node", "send", "receive", "link", "shared_link", "rail", "uplink", "rack", "hung", "failed"
]
"""What can be faulty: a node in both directions, its sending, its receiving; the path between two
nodes; a path that several nodes share to all others; one rail of a node; the path out of a rack;
all nodes of a rack; a node that does not answer, or, as a verdict has it, answers with an error."""

LEAST_RACK = 4
"""The nodes of a rack, and racks, from which on racks are judged."""

OF_A_RACK: tuple[Kind, ...] = "uplink", "rack"
"""The kinds of faults of a rack, whose ``where`` is the rack."""

Purpose: TypeAlias = Literal[
    "contention", "screen", "racks", "retest", "accused", "links", "alone", "hung"
]
"""Why slots are measured, in the order of the procedure; slots of ``hung`` follow any that got no answer."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Transfers to measure, slot after slot.

    An endpoint is a node on a rail, and has the number ``rail * nodes + node``. In a slot, disjoint
    pairs of endpoints transfer in both directions at once, and all pairs at the same time.
    """

    # of shape [slots, endpoints]: the partner of each endpoint; an endpoint rests beside itself
    partners: Integers
    purpose: Purpose


Procedure: TypeAlias = Generator[Slots, Floats, Result]
"""A generator that yields slots, is sent their times, and returns a result.

The times are [slots, endpoints], in seconds: that of the transfer from an endpoint to its partner,
by the clock of the receiver; NaN if the endpoint rests or has no valid time, infinity if the pair
did not answer before its deadline. If a slot has an infinite time, the driver skips the slots after
it, and sends the rows that it has.
"""


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the machine that may be faulty."""

    kind: Kind
    # node; two nodes of a link; members of a shared link; number of the rack
    where: tuple[int, ...]
    rail: int | None = None  # None if the fault is not one of a single rail


Explanation: TypeAlias = tuple[Component, ...]
"""Components that together explain all measurements, if they are faulty."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A faulty component."""

    component: Component
    effect: float  # how many times as long its transfers take; infinite if they do not end
    low: float  # the 95 % interval of the effect
    high: float
    chance: float  # of an effect as large as this, somewhere on a healthy machine
    # whether it is as fast as others while the rest of the machine is silent
    under_load_only: bool = False
    # explanations that cannot be distinguished; empty if there is only one
    candidates: tuple[Explanation, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgedEffect:
    """The effect of a component, faulty or not, and the threshold that it was compared with: factors of times."""

    component: Component
    # of the slots that it follows from; those of the screen only decide what is measured again
    purpose: Purpose
    effect: float  # NaN if there was no valid time
    low: float  # the 95 % interval of the effect
    high: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is slow on a machine."""

    faults: tuple[Fault, ...]
    slots: int  # how many were measured
    # standard deviation of the logarithm of the time of a pair; NaN if none was left to measure
    noise: float
    # of a node, which would have been found in 90 % of diagnoses: its times over the usual ones
    smallest_effect: float
    # whether more than a quarter of the nodes seems slow, or as many do not answer
    too_many: bool = False
    links: bool = True  # whether single links were judged, too
    # of all that was judged
    effects: tuple[JudgedEffect, ...] = field(default=(), compare=False, repr=False)
    # likewise of a single link; infinite if none would be found, or unknown
    smallest_link_effect: float = math.inf

    @property
    def exclude(self) -> tuple[int, ...]:
        """The nodes to exclude from jobs: faulty, also alone, for certain, and not too many of them."""
        if self.too_many:
            return ()
        nodes = set()
        for fault in self.faults:
            is_certain = not fault.candidates and not fault.under_load_only
            if is_certain and fault.component.kind in EXCLUDED:
                nodes.add(fault.component.where[0])
        return tuple(sorted(nodes))


EXCLUDED: tuple[Kind, ...] = "node", "send", "receive", "hung"
"""The kinds of faults that exclude a node. A node stays if only one of its rails is slow, or if its
link, uplink or rack is: the operator decides which nodes to do without."""
