"""The links of a torus: how far messages go, and what passes the fullest link of each.

Nodes are numbered along the last dimension first. A message goes along the dimensions in turn, the
shorter way round, forwards if both ways are as long (dimension-ordered routing: W. Dally, C. Seitz:
Deadlock-free message routing in multiprocessor interconnection networks, IEEE TC 36 (1987)
547-553).
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import BadInputError

Ints = NDArray[np.int64]

DIRECTIONS = 2


@dataclass(frozen=True)  # without slots, for the cached property
class Torus:
    """A torus of nodes: each dimension is a ring."""

    shape: tuple[int, ...]  # the nodes along each dimension

    @classmethod
    def parse(cls, text: str) -> "Torus":
        """Return the torus of a shape such as 4x4x4.

        Raises:
            BadInputError: if it is something else.
        """
        lengths = text.split("x")
        if not all(length.isdecimal() and int(length) for length in lengths):
            raise BadInputError("torus", text, "the nodes along each dimension, such as 4x4x4")
        return cls(tuple(map(int, lengths)))

    @property
    def nodes(self) -> int:
        return prod(self.shape)

    @property
    def links_of_node(self) -> int:
        """The links that a node sends on: in a dimension of two nodes, both ways round are the same link."""
        return sum(min(length - 1, DIRECTIONS) for length in self.shape)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """How many node numbers lie between neighbours along each dimension."""
        return tuple(prod(self.shape[place + 1 :]) for place in range(len(self.shape)))

    def hops(self, source: Ints, target: Ints) -> Ints:
        """Return how many links each message passes, between the nodes ``source[i]`` and ``target[i]``."""
        hops = np.zeros(len(source), np.int64)
        for length, stride in zip(self.shape, self.strides, strict=True):
            hops += np.abs(_way(source, target, length, stride))
        return hops

    def link_bytes(self, source: Ints, target: Ints, nbytes: Ints) -> Ints:
        """Return for each message the bytes that pass the fullest of its links, if all are on their way at once."""
        messages, links = self._passages(source, target)
        link_totals = np.bincount(links, nbytes[messages]).astype(np.int64)
        fullest = np.zeros(len(source), np.int64)
        np.maximum.at(fullest, messages, link_totals[links])
        return fullest

    def _passages(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return each passage of a link: the index of the message, and the number of the link."""
        node = source.copy()
        messages: list[Ints] = []
        links: list[Ints] = []
        for dimension, (length, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            way = _way(node, target, length, stride)
            while way.any():
                moving = np.flatnonzero(way)
                direction = np.sign(way[moving])
                port = dimension * DIRECTIONS + (direction > 0)
                messages.append(moving)
                links.append(node[moving] * len(self.shape) * DIRECTIONS + port)
                place = node[moving] // stride % length
                node[moving] += ((place + direction) % length - place) * stride
                way[moving] -= direction
        if not messages:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(messages), np.concatenate(links)


def _way(source: Ints, target: Ints, length: int, stride: int) -> Ints:
    """Return the steps along a dimension, negative if backwards."""
    forwards = (target // stride - source // stride) % length
    way: Ints = np.where(2 * forwards <= length, forwards, forwards - length)
    return way
