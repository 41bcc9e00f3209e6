"""Traffic patterns: the block sizes of an all-to-all with unequal blocks."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpccoll.common.errors import BadInputError
from hpccoll.common.files import read_text, with_digest, without_digest
from hpccoll.common.limits import MAX_TRAFFIC_RANKS, TRAFFIC_BYTES

PATTERNS: dict[str, Callable[[int], NDArray[np.float64]]] = {
    "uniform": lambda p: np.ones((p, p)),
    "zipf": lambda p: np.tile(1 / np.arange(1, p + 1), (p, 1)),
    "random": lambda p: np.random.default_rng(1).exponential(size=(p, p)),
}
"""Weights [from, to] by name: equal; rank j as popular as 1/(j + 1), as experts are (Zipf's law); each pair its own."""

SUFFIX = ".csv"
MAX_WEIGHT = 1e18
"""The maximum weight in a file: sums of them, and their products with sizes, are finite."""


def named(traffic: str) -> str:
    """Return the name of a pattern as it is, and that of a file with a digest of what it holds: file.csv#1a2b3c4d.

    Raises:
        BadInputError: if there is no such pattern, or the file cannot be read.
    """
    if traffic in PATTERNS:
        return traffic
    if not without_digest(traffic).endswith(SUFFIX):
        raise BadInputError(
            "traffic", traffic, [*PATTERNS, f"a file *{SUFFIX} of weights, a row for each sender"]
        )
    return with_digest(traffic, "traffic", TRAFFIC_BYTES)


@lru_cache(maxsize=2)  # p x p numbers at each of p ranks
def blocks(traffic: str, p: int, count: int) -> NDArray[np.int64]:
    """Return the elements [from, to] of every block, which are ``count`` on average, rounded down.

    Args:
        traffic: the name of a pattern, or a file of p lines of p weights with commas between them.
        p: the ranks.
        count: elements of the mean block.

    Raises:
        BadInputError: if ``named`` raises it, or the file does not have p x p weights >= 0.
    """
    # rounding must not take an element from a whole number
    shares = _weights(traffic, p) * count * (1 + 1e-12)
    elements: NDArray[np.int64] = np.floor(shares).astype(np.int64)
    return elements


@lru_cache
def longest(traffic: str, p: int, count: int) -> int:
    """Return the elements of the longest of ``blocks``."""
    return int(blocks(traffic, p, count).max())


@lru_cache(maxsize=1)  # a file is read once for all sizes
def _weights(traffic: str, p: int) -> NDArray[np.float64]:
    """Return the weights [from, to], which are 1 on average."""
    if p > MAX_TRAFFIC_RANKS:
        raise BadInputError("ranks", p, f"at most {MAX_TRAFFIC_RANKS} with blocks of unequal sizes")
    name = named(traffic)
    weights = PATTERNS[name](p) if name in PATTERNS else _read_weights(without_digest(name), p)
    relative: NDArray[np.float64] = weights / weights.mean()
    return relative


def _read_weights(path: str, p: int) -> NDArray[np.float64]:
    """Return the p x p weights of a file.

    Raises:
        BadInputError: if it does not hold them.
    """
    text = read_text(Path(path), "traffic", TRAFFIC_BYTES)
    lines = [line for line in text.splitlines() if line.partition("#")[0].strip()]
    weights: NDArray[np.float64] = np.empty(0)
    # other files are refused unread
    if len(lines) == p and all(line.count(",") <= p for line in lines):
        try:
            weights = np.loadtxt(lines, delimiter=",", ndmin=2)
        except ValueError as error:
            raise BadInputError(
                "traffic", path, f"numbers with commas between them ({error})"
            ) from None
    are_valid = (weights >= 0) & (weights <= MAX_WEIGHT)
    if weights.shape != (p, p) or not are_valid.all() or weights.sum() <= 0:
        expected = (
            f"{p} lines of {p} numbers from 0 to {MAX_WEIGHT:g}, a line for each sending rank"
        )
        raise BadInputError("traffic", path, f"{expected}, and not all 0")
    return weights
