"""Buckets of gradients at a rank: the array that computations write, and what makes the mean of all ranks of it.

A dense bucket is the buffer of its all-reduce, in place. A compressed one has an array of its own,
and the codecs that run between its collectives. Where nothing computes gradients, those of a
compressed bucket are seeded random numbers, and their mean is checked after every step against what
the codecs make of the gradients of all ranks.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from hpccoll.extensions.steps.measure.codecs import (
    CODECS,
    ROUNDOFF,
    Array,
    Codec,
    CodecMessage,
    Floats,
)
from hpccoll.extensions.steps.training.compression import Compression
from hpccoll.extensions.steps.training.step_program import GradientBucket

if TYPE_CHECKING:
    from hpccoll.measure.run.prepared_case import PreparedCase

SEEDS = 7
"""The number of seeds of gradients: a prime, so that ranks at a distance of a power of two have others."""

EXACT = {kind: round(1 / roundoff) for kind, roundoff in ROUNDOFF.items()}
"""The whole numbers up to which a type has all: with too many ranks for them, sums are checked within a bound."""

RESIDUAL = 0.25
"""With feedback, what earlier steps have left out of seeded gradients: a quarter of them, in reverse order."""


class GradientBucketBuffer:
    """The gradients of a bucket at a rank.

    ``gradient`` is an array of the type of gradients, [elements]. Computations write it before the
    first operation of the bucket starts; when the last one has ended it has the mean of all ranks,
    or, of a dense bucket, their reduction by the op of the step. ``cases`` are the collectives of
    the bucket in their order; a single rank has none.
    """

    def __init__(
        self,
        bucket: GradientBucket,
        number: int,
        cases: "Sequence[PreparedCase]",
        compression: Compression | None,
    ) -> None:
        self.bucket = bucket
        self.cases = cases
        self._number = number
        self.codec: Codec | None = None
        self._initial: Floats | None = None  # of seeded gradients
        self._levels = self._unit = 0  # of whole numbers
        self._mean, self._bound = np.empty(0, np.float32), 0.0
        dense = cases and compression is None
        self.gradient: Array = (
            cases[0].result[: bucket.elements] if dense else np.zeros(bucket.elements, np.float32)
        )
        if cases and compression:
            workers_and_rank = cases[0].layout.workers, cases[0].rank
            messages = [
                CodecMessage(collective.contribution, collective.result) for collective in cases
            ]
            self.codec = CODECS[compression.name](
                compression, cast("Floats", self.gradient), messages, *workers_and_rank
            )
            self.fill_by_caller()

    def fill_by_caller(self) -> None:
        """Leave the buffers of the collectives to the caller, and do not check what is in them."""
        for collective in self.cases:
            collective.fill_by_caller()

    def function(self, codec: str) -> Callable[[], None] | None:
        """Return what a codec of the chain does; None if the collectives do nothing."""
        function: Callable[[], None] | None = getattr(self.codec, codec, None)
        return function

    def seed(self) -> None:
        """Give a compressed bucket seeded gradients in every step, and check their mean; others have the payload."""
        if codec := self.codec:
            feedback = codec.residual is not None
            self._unit = round(1 / RESIDUAL) if feedback else 1
            largest = EXACT.get(codec.compression.name, 0)
            self._levels = largest // (codec.ranks * (self._unit + 1 if feedback else 1))
            self._initial = self._seeded(codec.rank % SEEDS)
            self._mean = codec.mean(
                codec.compression, self._averaged, [rank % SEEDS for rank in range(codec.ranks)]
            )
            if not self._levels:
                # A value is rounded when it is encoded, and its sums at most p - 1 times, whatever
                # their order.
                self._bound = (
                    1.01 * (1 + RESIDUAL) * codec.ranks * ROUNDOFF.get(codec.compression.name, 0.0)
                )

    def _seeded(self, seed: int) -> Floats:
        """Return the gradients of a seed: uniform from -1 to 1, or whole numbers so small that all sums are exact."""
        values = np.random.default_rng([self._number, seed]).random(
            self.bucket.elements, np.float32
        )
        values *= np.float32(2)
        values -= np.float32(1)
        if self._levels and self.codec:
            np.rint(values * np.float32(self._levels), out=values)
            values *= np.float32(self._unit * self.codec.ranks)
        return values

    def _averaged(self, seed: int) -> Floats:
        """Return the gradients of a seed as ranks encode them, with what has been left out before."""
        values = self._seeded(seed)
        assert self.codec  # noqa: S101  they are compressed
        values /= np.float32(self.codec.ranks)
        if self.codec.residual is None:
            return values
        return values + values[::-1] * np.float32(RESIDUAL)

    def reset(self) -> None:
        """Restore seeded gradients, and what has been left out."""
        if self.codec and self._initial is not None:
            np.copyto(self.gradient, self._initial)
            if self.codec.residual is not None:
                np.divide(
                    self._initial[::-1], np.float32(self.codec.ranks), out=self.codec.residual
                )
                self.codec.residual *= np.float32(RESIDUAL)

    def wrong(self) -> int:
        """Return the number of wrong means of seeded gradients."""
        return int(np.count_nonzero(self._differs()))

    def diagnose(self) -> str | None:
        """Return where means of seeded gradients are wrong, or None."""
        if not len(at := np.flatnonzero(self._differs())):
            return None
        right = self._mean[at[0]]
        wrong = self.gradient[at[0]]
        where = f"{len(at)} of {len(self.gradient)} means are wrong, the first at {at[0]}"
        return f"{self.bucket.label}: {where}: {wrong}, not {right} within {self._bound:.2g}"

    def _differs(self) -> NDArray[np.bool]:
        if self._initial is None:
            return np.zeros(0, bool)
        differences = np.abs(cast("Floats", self.gradient) - self._mean)
        differs: NDArray[np.bool] = np.logical_not(differences <= self._bound)  # NaN differs, too
        return differs
