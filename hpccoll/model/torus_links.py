"""The links of a torus: how far messages go, and what passes the fullest link of each.

Nodes are numbered along the last dimension first. A message goes along the dimensions in turn, the
shorter way round, forwards if both ways are as long (dimension-ordered routing: W. Dally, C. Seitz:
Deadlock-free message routing in multiprocessor interconnection networks, IEEE TC 36 (1987)
547-553).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import BadInputError

Ints = NDArray[np.int64]

MOST_DIMENSIONS = 8
"""The most dimensions of a torus."""

_LENGTH = re.compile("0*[1-9][0-9]{0,8}")

DIRECTIONS = 2
"""The directions of a dimension."""


@dataclass(frozen=True)  # without slots, for the cached property
class Torus:
    """A torus of nodes: each dimension is a ring."""

    shape: tuple[int, ...]  # the nodes along each dimension

    @classmethod
    def parse(cls, text: str, key: str = "torus") -> "Torus":
        """Return the torus of a shape such as 4x4x4.

        Raises:
            BadInputError: if it is something else; it names ``key``.
        """
        lengths = text.split("x")
        are_lengths = all(_LENGTH.fullmatch(length) for length in lengths)
        if len(lengths) > MOST_DIMENSIONS or not are_lengths:
            expected = f"the nodes along each of 1 to {MOST_DIMENSIONS} dimensions, such as 4x4x4"
            raise BadInputError(key, text, expected)
        return cls(tuple(map(int, lengths)))

    @classmethod
    def most_even(cls, nodes: int, dimensions: int) -> "Torus":
        """Return the torus of a number of nodes whose dimensions are as equal as possible, the shortest one first."""
        shapes = list(_shapes(nodes, dimensions, 1))
        return cls(min(shapes, key=lambda shape: shape[-1] / shape[0]))

    @property
    def nodes(self) -> int:
        return prod(self.shape)

    @property
    def links_of_node(self) -> int:
        """The links that a node sends on: in a dimension of two nodes, both ways round are the same link."""
        return sum(min(length - 1, DIRECTIONS) for length in self.shape)

    @property
    def dimensions(self) -> int:
        return len(self.shape)

    @property
    def text(self) -> str:
        """The shape as a user writes it: 4x4x4."""
        return "x".join(map(str, self.shape))

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
        fullest = np.zeros(len(source), np.int64)
        node = source.copy()
        for length, stride in zip(self.shape, self.strides, strict=True):
            way = _way(node, target, length, stride)
            place = node // stride % length
            ring = node // (stride * length) * stride + node % stride
            rings = self.nodes // length
            backwards = length - 1 - place  # the place if it is counted the other way round
            for direction, begin in ((1, place), (-1, backwards)):
                moving = np.flatnonzero(direction * way > 0)
                if len(moving):
                    passages = _Passages(ring[moving], begin[moving], np.abs(way[moving]))
                    on_ring = passages.fullest(nbytes[moving], rings, length)
                    fullest[moving] = np.maximum(fullest[moving], on_ring)
            node += (target // stride % length - place) * stride
        return fullest

    def mean_link_bytes(self, source: Ints, target: Ints, nbytes: Ints, repeats: int) -> Ints:
        """Return for each message the bytes that pass the fullest of its links, if all links are alike.

        All links of a dimension and direction carry the same where each node sends to all others.

        Args:
            source: the sender of each message, of those that stand for all.
            target: its receiver.
            nbytes: its bytes.
            repeats: how many messages each one stands for.
        """
        fullest = np.zeros(len(source), np.int64)
        for length, stride in zip(self.shape, self.strides, strict=True):
            way = _way(source, target, length, stride)
            for direction in (1, -1):
                links = np.maximum(0, direction * way)
                mean = int((nbytes * links).sum()) * repeats // self.nodes
                fullest[links > 0] = np.maximum(fullest[links > 0], mean)
        return fullest


class _Passages(NamedTuple):
    """Messages that go the same way round the rings of a dimension."""

    ring: Ints  # the number of the ring of each message
    begin: Ints  # its place on the ring at the begin
    links: Ints  # how many links it passes

    def fullest(self, nbytes: Ints, rings: int, length: int) -> Ints:
        """Return for each message the bytes that pass the fullest of its links.

        The places of a ring are counted twice round, so that no message passes the end.
        """
        around = 2 * length
        first = self.ring * around + self.begin
        beginning = np.bincount(first, nbytes, rings * around)
        ending = np.bincount(first + self.links, nbytes, rings * around)
        twice_round = np.cumsum((beginning - ending).reshape(rings, around), axis=1)
        link_totals = twice_round[:, :length] + twice_round[:, length:]
        # the fullest of 1, 2, 4, ... consecutive links
        fullest_of = [np.concatenate([link_totals, link_totals], axis=1)]
        for power in range(int(self.links.max()).bit_length() - 1):
            wider = fullest_of[-1].copy()
            width = 1 << power
            np.maximum(wider[:, :-width], fullest_of[-1][:, width:], out=wider[:, :-width])
            fullest_of.append(wider)
        by_width = np.stack(fullest_of)
        power_link_totals = np.frexp(self.links)[1] - 1
        last = self.begin + self.links - (1 << power_link_totals.astype(np.int64))
        at_begin = by_width[power_link_totals, self.ring, self.begin]
        at_end = by_width[power_link_totals, self.ring, last]
        fullest: Ints = np.maximum(at_begin, at_end).astype(np.int64)
        return fullest


def _way(source: Ints, target: Ints, length: int, stride: int) -> Ints:
    """Return the steps along a dimension, negative if backwards."""
    forwards = (target // stride - source // stride) % length
    way: Ints = np.where(2 * forwards <= length, forwards, forwards - length)
    return way


def _shapes(nodes: int, dimensions: int, shortest: int) -> Iterator[tuple[int, ...]]:
    """Yield the ascending shapes of a number of nodes, without dimensions shorter than ``shortest``.

    Nodes of a prime number lie along the last dimension.
    """
    if dimensions == 1:
        yield (nodes,)
        return
    for length in range(shortest, round(nodes ** (1 / dimensions)) + 1):
        if nodes % length == 0:
            for rest in _shapes(nodes // length, dimensions - 1, length):
                yield (length, *rest)
