"""Codecs of compressed gradients in host memory: what each rank does between the collectives of a compressed bucket.

The chains of operations are those of ``training.compressed_bucket``; a ``Codec`` has a method for
each codec of its chain. fp8 is encoded and decoded by tables, which ml_dtypes makes: its casts take
10 to 20 ns for a value, a table 1.5 to 5 ns. The table of encoding is indexed by the upper half of
a float32, whose last bit says, too, whether any bit of the lower half is set: that is enough to
round to 2 or 3 bits of mantissa. Tables work on blocks that stay in a cache.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.extensions.steps.training.compressed_bucket import WORD, part_bytes
from hpccoll.extensions.steps.training.compression import TOP_K, Compression

Floats = NDArray[np.float32]
Codes = NDArray[np.uint8]
Array = NDArray[np.generic]

BLOCK = 1 << 14
"""The values of a block: with what a table needs beside them they fit into a cache of 256 KiB."""

MAX_FACTOR = 3e38
"""The largest number by which values are multiplied before they become fp8."""

EXPONENTS: Mapping[str, int] = {
    "float32": 0x7F80_0000,
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "fp8_e4m3": 0x7F,
    "fp8_e5m2": 0x7C,
}
"""The bits that are all set in what is not finite; e4m3fn has no infinity, and one NaN of each sign."""

ROUNDOFF: Mapping[str, float] = {"fp16": 2.0**-11, "bf16": 2.0**-8}
"""The unit roundoff of the types in which an all-reduce adds."""


class CodecMessage(NamedTuple):
    """The buffers of a collective of a chain at this rank; in place the first is a part of the second."""

    own: Array  # what the rank contributes
    arrived: Array  # what it has afterwards


def not_finite(values: Array, kind: str) -> int:
    """Return how many values of a kind of EXPONENTS are infinite or NaN."""
    bits = values.view(f"u{values.itemsize}")
    exponent = bits.dtype.type(EXPONENTS[kind])
    return int(np.count_nonzero((bits & exponent) == exponent))


def largest_magnitude(values: Floats) -> float:
    """Return the largest magnitude of the finite values; 0 of none."""
    # NaN if one value is
    largest = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if np.isfinite(largest):
        return largest
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def largest_positions(values: Floats, kept: int) -> NDArray[np.int32]:
    """Return the ascending positions of the ``kept`` values of largest magnitude; of equal ones the first.

    NaN is larger than infinity, as its bits are, so that it is sent, and seen.
    """
    magnitudes = values.view(np.uint32) & np.uint32(0x7FFF_FFFF)
    limit = np.partition(magnitudes, len(values) - kept)[len(values) - kept]
    above = np.flatnonzero(magnitudes > limit)
    equal = np.flatnonzero(magnitudes == limit)[: kept - len(above)]
    return np.sort(np.concatenate([above, equal])).astype(np.int32)


class Fp8:
    """An 8-bit type of floats: P. Micikevicius et al., arXiv:2209.05433 (2022)."""

    def __init__(self, name: str) -> None:
        """Make the tables of ``fp8_e4m3`` or ``fp8_e5m2``; ImportError without ml_dtypes."""
        import ml_dtypes

        dtype = np.dtype(
            {"fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2}[name]
        )
        upper = (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            self._codes: Codes = upper.astype(dtype).view(np.uint8)
        self._values: Floats = np.arange(1 << 8, dtype=np.uint8).view(dtype).astype(np.float32)
        self.largest = float(np.nanmax(self._values, where=np.isfinite(self._values), initial=0))

    def factor(self, largest: float) -> np.float32:
        """Return the number that makes the largest magnitude of values the largest one of the type."""
        return np.float32(min(self.largest / largest, MAX_FACTOR) if largest else 1.0)

    def encode(self, values: Floats, factor: np.float32, codes: Codes) -> None:
        """Write the codes nearest to values times a factor; halves become even ones."""
        scaled = np.empty(BLOCK, np.float32)
        words = np.empty(BLOCK, np.uint32)
        uppers = np.empty(BLOCK, np.uint16)
        for block, out in _blocks(values, codes):
            length = len(block)
            np.multiply(block, factor, out=scaled[:length])
            bits = scaled.view(np.uint32)[:length]
            word = words[:length]
            upper = uppers[:length]
            np.bitwise_and(bits, np.uint32(0xFFFF), out=word)
            word += np.uint32(0xFFFF)  # carries into the upper half if any bit is set
            word |= bits
            word >>= np.uint32(16)
            upper[:] = word
            # all are valid; without a mode NumPy copies ``out``
            np.take(self._codes, upper, out=out, mode="clip")

    def decode(self, codes: Codes, scale: np.float32, values: Floats) -> None:
        """Write the values of codes times a scale."""
        table = self._values * scale
        for block, out in _blocks(codes, values):
            np.take(table, block, out=out, mode="clip")

    def add(self, codes: Codes, sums: Floats) -> None:
        """Add the values of codes to sums."""
        values = np.empty(BLOCK, np.float32)
        for block, sums_of_block in _blocks(codes, sums):
            np.take(self._values, block, out=values[: len(block)], mode="clip")
            np.add(sums_of_block, values[: len(block)], out=sums_of_block)

    def encode_sums(self, sums: Floats, factor: np.float32, codes: Codes) -> np.float32:
        """Write the codes of sums of values times ``factor``, and return the scale that makes sums of them."""
        own = self.factor(largest_magnitude(sums))
        self.encode(sums, own, codes)
        return np.float32(1 / (float(factor) * float(own)))


fp8_type = lru_cache(Fp8)


def _blocks(*arrays: Array) -> Iterator[tuple[Any, ...]]:
    for begin in range(0, len(arrays[0]), BLOCK):
        yield tuple(array[begin : begin + BLOCK] for array in arrays)


Gradient = Callable[[int], Floats]
"""Returns the gradients of a seed, divided by the number of ranks."""


class Codec(ABC):
    """The codecs of a bucket at a rank, with what they keep from step to step.

    ``gradient`` are its gradients, which become their mean over ``ranks`` ranks; ``messages`` are
    the buffers of the collectives of its chain. Over all steps ``overflowed`` counts the finite
    gradients that the type of the message cannot hold, and ``not_finite`` the means that are
    infinite or NaN; NumPy warns of both unless it is told not to.
    """

    def __init__(
        self,
        compression: Compression,
        gradient: Floats,
        messages: Sequence[CodecMessage],
        ranks: int,
        rank: int,
    ) -> None:
        self.compression = compression
        self.gradient = gradient
        self.messages = messages
        self.ranks = ranks
        self.rank = rank
        self.residual = np.zeros_like(gradient) if compression.feedback else None
        self.overflowed = self.not_finite = 0

    def average(self) -> None:
        """Divide the gradients by the number of ranks, and add what earlier messages left out."""
        self.gradient /= np.float32(self.ranks)
        if self.residual is not None:
            self.gradient += self.residual

    def count_overflows(self, message: Array, kind: str) -> None:
        """Count the values that have overflowed in a message; nothing of them is left for the next one."""
        if bad := not_finite(message, kind):
            self.overflowed += bad - not_finite(self.gradient, "float32")
            if self.residual is not None:
                self.residual[~np.isfinite(self.residual)] = 0

    @staticmethod
    @abstractmethod
    def mean(compression: Compression, gradient: Gradient, seeds: Sequence[int]) -> Floats:
        """Return the mean of the gradients of ranks with these seeds, as the chain computes it."""


class CastCodec(Codec):
    """The codecs of fp16 and bf16: the all-reduce is in the type."""

    def encode(self) -> None:
        self.average()
        own = self.messages[0].own[: len(self.gradient)]
        own[:] = self.gradient
        if self.residual is not None:
            np.subtract(self.gradient, own, out=self.residual)
        self.count_overflows(own, own.dtype.name)

    def decode(self) -> None:
        sums = self.messages[0].arrived[: len(self.gradient)]
        self.gradient[:] = sums
        self.not_finite += not_finite(sums, sums.dtype.name)

    @staticmethod
    def mean(_compression: Compression, gradient: Gradient, seeds: Sequence[int]) -> Floats:
        """Return the mean without rounding: that of the chain depends on the order of the algorithm."""
        mean = np.zeros_like(gradient(seeds[0]))
        for seed in {*seeds}:
            mean += gradient(seed) * np.float32(seeds.count(seed))
        return mean


class Fp8Codec(Codec):
    """The codecs of fp8: parts of all ranks are summed in float32, and their sums encoded anew."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.type, self.part = (
            fp8_type(self.compression.name),
            part_bytes(len(self.gradient), self.ranks),
        )
        self.sums = np.empty(self.part, np.float32)

    @property
    def factor(self) -> np.float32:
        """The factor of the values of all ranks."""
        return self.type.factor(float(self.messages[0].arrived[0]))

    def scale(self) -> None:
        self.average()
        self.messages[0].own[0] = largest_magnitude(self.gradient)

    def encode(self) -> None:
        codes = self.messages[1].own.view(np.uint8)
        length = len(self.gradient)
        factor = self.factor
        self.type.encode(self.gradient, factor, codes[:length])
        codes[length:] = 0
        if self.residual is not None:
            self.type.decode(codes[:length], 1 / factor, self.residual)
            np.subtract(self.gradient, self.residual, out=self.residual)
        self.count_overflows(codes, self.compression.name)

    def sum(self) -> None:
        factor = self.factor
        own = self.messages[2].own
        self.sums[:] = 0
        for codes in self.messages[1].arrived.view(np.uint8).reshape(self.ranks, self.part):
            self.type.add(codes, self.sums)
        codes = own.view(np.uint8)[WORD:]
        own.view(np.float32)[0] = scale = self.type.encode_sums(self.sums, factor, codes)
        if self.residual is not None:  # what the sums leave out, this rank adds for all
            mine = self.residual[self.rank * self.part :][: self.part]
            left = self.sums[: len(mine)]
            left /= factor
            mine += left
            self.type.decode(codes[: len(mine)], scale, left)
            mine -= left
            mine[~np.isfinite(mine)] = 0

    def decode(self) -> None:
        words_of_ranks = self.messages[2].arrived.reshape(self.ranks, -1)
        for rank, words in enumerate(words_of_ranks):  # a word with the scale, and then the codes
            begin = rank * self.part
            end = begin + self.part
            values = self.gradient[begin:end]
            scale = words.view(np.float32)[0]
            codes_and_padding = words.view(np.uint8)[WORD:]
            codes = codes_and_padding[: len(values)]
            self.type.decode(codes, scale, values)
            self.not_finite += not_finite(codes, self.compression.name)

    @staticmethod
    def mean(compression: Compression, gradient: Gradient, seeds: Sequence[int]) -> Floats:
        kind = fp8_type(compression.name)
        codes_of_seeds = {}
        factor = kind.factor(
            max(float(np.float32(largest_magnitude(gradient(seed)))) for seed in {*seeds})
        )
        for seed in {*seeds}:
            values = gradient(seed)
            codes_of_seeds[seed] = np.empty(len(values), np.uint8)
            kind.encode(values, factor, codes_of_seeds[seed])
        mean = np.zeros(len(values), np.float32)
        part = part_bytes(len(values), len(seeds))
        for seed in seeds:
            kind.add(codes_of_seeds[seed], mean)
        for begin in range(0, len(mean), part):
            sums = mean[begin : begin + part]
            codes = codes_of_seeds[seeds[0]][begin : begin + part]
            sums_factor = kind.encode_sums(sums, factor, codes)
            kind.decode(codes, sums_factor, sums)
        return mean


class TopKCodec(Codec):
    """The codecs of top-k: each rank sends the positions and values of its largest gradients."""

    def select(self) -> None:
        self.average()
        positions, values = self.messages[0].own.reshape(2, -1)
        positions[:] = largest_positions(self.gradient, len(positions))
        values.view(np.float32)[:] = self.gradient[positions]
        if self.residual is not None:
            self.residual[:] = self.gradient
            self.residual[positions] = 0
            if not_finite(values, "float32"):  # more of them may be left than are sent
                self.residual[~np.isfinite(self.residual)] = 0
        self.gradient[:] = 0

    def add(self) -> None:
        arrived = self.messages[0].arrived.reshape(self.ranks, 2, -1)
        for positions, values in arrived:
            self.gradient[positions] += values.view(np.float32)
        sums = self.gradient[arrived[:, 0]]
        if not_finite(sums, "float32"):
            # ranks send the same positions
            self.not_finite += len(np.unique(arrived[:, 0][~np.isfinite(sums)]))

    @staticmethod
    def mean(compression: Compression, gradient: Gradient, seeds: Sequence[int]) -> Floats:
        kept = {}
        for seed in {*seeds}:
            values = gradient(seed)
            positions = largest_positions(values, compression.kept_of(len(values)))
            kept[seed] = positions, values[positions]
        mean = np.zeros(len(values), np.float32)
        for seed in seeds:
            positions, kept_values = kept[seed]
            mean[positions] += kept_values
        return mean


CODECS: Mapping[str, type[Codec]] = {
    "fp16": CastCodec,
    "bf16": CastCodec,
    "fp8_e4m3": Fp8Codec,
    "fp8_e5m2": Fp8Codec,
    TOP_K: TopKCodec,
}
"""The codecs of each compression."""
