"""The fold kernel against NumPy, bit for bit: every type and reduction, alignment, number of inputs and tail."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from here import Here
from numpy.typing import NDArray
from verdicts import Verdict, right

from hpccoll.transports.nccl.fold import (
    KERNEL_OPS,
    KERNEL_TYPES,
    THREADS,
    UNROLL,
    VECTOR_BYTES,
    Fold,
    fold_launches,
)
from hpccoll.transports.shared_lowering import Span

INPUTS = 5
TAILS = 34
DIVISORS = 2, 3, 5, 7
ALIGNMENTS: Mapping[str, Callable[[int, int], int]] = {
    "aligned": lambda _turn, _buffer: 0,
    "equal": lambda turn, _buffer: turn,
    "unequal": lambda turn, buffer: turn + buffer,
    "in place": lambda turn, _buffer: turn,
}
"""By how many elements each range of a buffer is off a vector; the first buffer is ``out``."""

SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    5e-324,
    1e-45,
    -1e-45,
    6e-8,
    -6e-8,
    1.1e-38,
    65504.0,
    3.4e38,
    -3.4e38,
    1.7e308,
    1 / 3,
)
"""Numbers that a kernel may get wrong: zeros, infinities, subnormals and the largest numbers of the types."""


def rounded_to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16, of two the even one; NumPy has no such type."""
    bits = values.view(np.uint32)
    nearest = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, nearest).astype(np.uint16)


def widened(stored: NDArray[Any], element: str) -> NDArray[Any]:
    """Return the values in the type in which they are computed."""
    if element == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32) if element == "float16" else stored


def narrowed(values: NDArray[Any], element: str) -> NDArray[Any]:
    """Return the values as they are stored."""
    return (
        rounded_to_bfloat16(values) if element == "bfloat16" else values.astype(element, copy=False)
    )


def smaller(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return the minimum, of which NaN is one; NumPy leaves open which zero is smaller."""
    return np.where((a < b) | (a != a), a, b)  # noqa: PLR0124


def larger(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.where((a > b) | (a != a), a, b)  # noqa: PLR0124


NUMPY = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": smaller, "max": larger}


def expected(inputs: Sequence[NDArray[Any]], element: str, op: str, divisor: int) -> NDArray[Any]:
    """Return the fold of arrays, rounded to the type after each."""
    value = inputs[0]
    with np.errstate(all="ignore"):
        for other in inputs[1:]:
            value = narrowed(NUMPY[op](widened(value, element), widened(other, element)), element)
        if divisor and value.dtype.kind in "iu" and element != "bfloat16":
            value = value // value.dtype.type(divisor)
        elif divisor:
            wide = widened(value, element)
            value = narrowed(wide / wide.dtype.type(divisor), element)
    return value


def differing(found: NDArray[Any], wanted: NDArray[Any], element: str) -> NDArray[np.intp]:
    """Return where two arrays differ in any bit; the bits of a NaN are free."""
    nan = np.zeros(len(found), bool)
    if element == "bfloat16" or found.dtype.kind == "f":
        nan = np.isnan(widened(found, element)) & np.isnan(widened(wanted, element))
    word = f"u{found.dtype.itemsize}"
    return np.flatnonzero((found.view(word) != wanted.view(word)) & ~nan)


def values(element: str, count: int, seed: int) -> NDArray[Any]:
    """Return numbers of all kinds: common ones, any bits, and special ones."""
    chance = np.random.default_rng(seed)
    itemsize = 2 if element == "bfloat16" else np.dtype(element).itemsize
    bits = np.frombuffer(chance.bytes(count * itemsize), f"u{itemsize}").copy()
    if element not in ("float16", "bfloat16", "float32", "float64"):
        return bits.view(element)
    stored = "uint16" if element == "bfloat16" else element
    kind = chance.integers(0, 4, count)
    with np.errstate(all="ignore"):
        common, special = (
            narrowed(numbers.astype("float32" if element == "bfloat16" else element), element)
            for numbers in (chance.standard_normal(count) * 3, chance.choice(SPECIAL, count))
        )
    return np.choose(
        np.minimum(kind, 2), [bits, special.view(bits.dtype), common.view(bits.dtype)]
    ).view(stored)


def wave(element: str, op: str) -> tuple[list[Fold], int]:
    """Return ranges of every alignment, number of inputs and tail, and the elements of each buffer."""
    itemsize = 2 if element == "bfloat16" else np.dtype(element).itemsize
    vector = VECTOR_BYTES // itemsize
    tile = THREADS * UNROLL * vector
    lengths = [
        *range(1, TAILS),
        *(tile + more for more in (-1, 0, 1, vector, TAILS - 1)),
        2 * tile + 1,
    ]
    folds, at = [], 0
    for turn, (how, inputs, length) in enumerate(
        product(ALIGNMENTS, range(1, INPUTS + 1), lengths)
    ):
        off = ALIGNMENTS[how]
        starts = [at + off(turn % vector, buffer) for buffer in range(inputs + 1)]
        spans = [Span(f"{buffer}", start, start + length) for buffer, start in enumerate(starts)]
        out, *own = spans
        divisor = DIVISORS[turn % len(DIVISORS)] if op == "avg" else 0
        folds.append(Fold(out, (out, *own[1:]) if how == "in place" else tuple(own), divisor))
        # a gap, which has to stay as it is
        at = (max(span.stop for span in spans) // vector + 2) * vector
    return folds, at


def wrong_elements(here: Here, element: str, op: str) -> tuple[int, int, str]:
    """Return the wrong elements of a launch of many ranges, the number of its ranges, and the first wrong one."""
    gpu = here.gpu
    folds, count = wave(element, op)
    before = {f"{buffer}": values(element, count, buffer) for buffer in range(INPUTS + 1)}
    buffers = {name: gpu.upload(given) for name, given in before.items()}
    (launch,) = fold_launches(gpu, element, op, buffers, [folds])
    launch()
    found, wanted = gpu.download(buffers["0"]), before["0"].copy()
    for fold in folds:
        inputs = [before[span.buffer][span.start : span.stop] for span in fold.inputs]
        wanted[fold.out.start : fold.out.stop] = expected(inputs, element, op, fold.divisor)
    wrong = differing(found, wanted, element)
    first = ""
    if len(wrong):
        place = int(wrong[0])
        fold = next((fold for fold in folds if fold.out.start <= place < fold.out.stop), None)
        first = (
            f"{op}: element {place} is {found[place]}, not {wanted[place]}, of {fold or 'no range'}"
        )
    return len(wrong), len(folds), first


def fold(here: Here) -> Iterator[Verdict]:
    """The results of the fold kernel: each type in one line."""
    for element in KERNEL_TYPES:
        wrong = {op: wrong_elements(here, element, op) for op in KERNEL_OPS}
        ranges = sum(count for _, count, _ in wrong.values())
        total, first = (
            sum(each for each, _, _ in wrong.values()),
            next((text for *_, text in wrong.values() if text), ""),
        )
        what = f"fold of {element}, {len(wrong)} ops, {ranges} ranges of 1 to {INPUTS} inputs, against NumPy"
        yield right(f"{what}{first and ': '}{first}", total)
