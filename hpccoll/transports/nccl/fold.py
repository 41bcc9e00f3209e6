"""Folds: the computations of a rank between its messages, arranged in waves, and the kernel that executes them.

A wave is one launch, from tables that are uploaded when the plan is made.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.operation import Array
from hpccoll.transports.shared_lowering import Span

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

SOURCE = Path(__file__).with_name("fold.cu")

THREADS = 256
"""The threads of a block."""

UNROLL = 4
"""The vectors that a thread loads at once from each input."""

VECTOR_BYTES = 16
"""The bytes of a vector."""

KERNEL_TYPES = {
    "uint8": ("unsigned char", "unsigned int", "INTEGER"),
    "int32": ("int", "unsigned int", "INTEGER"),
    "int64": ("long long", "unsigned long long", "INTEGER"),
    "float16": ("unsigned short", "float", "HALF"),
    "bfloat16": ("unsigned short", "float", "BFLOAT16"),
    "float32": ("float", "float", "REAL"),
    "float64": ("double", "double", "REAL"),
}
"""By dtype: the type in memory, the type of computation, and the kind, as in fold.cu."""

KERNEL_OPS = {"sum": "SUM", "avg": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
"""The macro of each reduction; an average is a sum with a division at the end."""


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold of ``inputs``, in order, into ``out``; a fold of one input is a copy.

    An element of ``out`` depends only on the elements of ``inputs`` with the same index, so that
    ``out`` itself may be an input. Values are rounded to the element type after each input, as in
    separate folds.
    """

    out: Span
    inputs: tuple[Span, ...]  # the spans that are read, as long as ``out`` each
    divisor: int = 0  # the divisor of the folded values, 0 for none; integers round down

    def conflicts_with(self, other: "Fold") -> bool:
        """Return whether the order of both matters."""
        if any(self.out.overlaps(span) for span in (other.out, *other.inputs)):
            return True
        return any(other.out.overlaps(span) for span in self.inputs)

    def fused_with(self, then: "Fold") -> "Fold | None":
        """Return one fold equivalent to this one and ``then``, None unless ``then`` folds more inputs into ``out``."""
        own, *further = then.inputs
        if self.divisor or not own == then.out == self.out:
            return None
        if any(map(self.out.overlaps, further)):
            return None
        return replace(self, inputs=(*self.inputs, *further), divisor=then.divisor)


def fold_waves(folds: Iterable[Fold]) -> list[list[Fold]]:
    """Return an ordered sequence of folds as waves. Folds of a wave do not conflict, and depend on earlier waves only.

    Successive folds into one span are fused, so that each of its elements is read and written once.
    """
    kept: list[Fold] = []
    for fold in folds:
        last = _last_conflict(kept, fold)
        fused = None if last is None else kept[last].fused_with(fold)
        if last is not None and fused:
            kept[last] = fused  # no later fold conflicts with it
        else:
            kept.append(fold)
    waves: list[list[Fold]] = []
    depths: list[int] = []
    for fold in kept:
        earlier_depths = [
            depth
            for depth, earlier in zip(depths, kept, strict=False)
            if earlier.conflicts_with(fold)
        ]
        depth = 1 + max(earlier_depths, default=-1)
        depths.append(depth)
        if depth == len(waves):
            waves.append([])
        waves[depth].append(fold)
    return waves


def _last_conflict(folds: Sequence[Fold], fold: Fold) -> int | None:
    """Return the index of the last of ``folds`` that conflicts with a fold; None if none does."""
    for number in reversed(range(len(folds))):
        if folds[number].conflicts_with(fold):
            return number
    return None


class LaunchTables(NamedTuple):
    """The tables of a launch, described in fold.cu, and its number of tiles."""

    rows: NDArray[np.int64]
    inputs: NDArray[np.int64]
    tiles: int


def kernel_macros(element: str, op: str) -> dict[str, str]:
    """Return the macros that compile fold.cu for a dtype and a reduction."""
    stored, computed, kind = KERNEL_TYPES[element]
    macros = {"STORED": stored, "COMPUTED": computed, "KIND": kind, "OP": KERNEL_OPS[op]}
    return {**macros, "THREADS": str(THREADS), "UNROLL": str(UNROLL)}


def launch_tables(
    folds: Sequence[Fold], addresses: Mapping[str, int], itemsize: int
) -> LaunchTables:
    """Return the tables of a wave."""
    tile = THREADS * UNROLL * VECTOR_BYTES // itemsize  # elements
    rows: list[tuple[int, ...]] = []
    inputs: list[int] = []
    tiles = 0
    for fold in folds:
        row, own = fold_row(fold, addresses, itemsize, len(inputs), tiles)
        rows.append(row)
        inputs += own
        length = len(fold.out)
        head = row[-1]
        in_tiles = length - head if head < length else length
        tiles += max(1, -(-in_tiles // tile))
    return LaunchTables(np.array(rows, np.int64), np.array(inputs, np.int64), tiles)


def fold_row(
    fold: Fold, addresses: Mapping[str, int], itemsize: int, first_input: int, first_tile: int
) -> tuple[tuple[int, ...], list[int]]:
    """Return the row of a fold as fold.cu reads it, and the addresses of its inputs."""
    length = len(fold.out)
    out, *inputs = (
        addresses[span.buffer] + span.start * itemsize for span in (fold.out, *fold.inputs)
    )
    head = _unaligned_elements(out, inputs, itemsize, length)
    return (out, first_input, len(inputs), length, first_tile, fold.divisor, head), inputs


def _unaligned_elements(out: int, inputs: Sequence[int], itemsize: int, length: int) -> int:
    """Return the elements before the first aligned vector; all of them if the alignments of the buffers differ."""
    if any((address - out) % VECTOR_BYTES for address in inputs):
        return length
    return min(length, -out % VECTOR_BYTES // itemsize)


@cache
def _function(element: str, op: str, device: int) -> Callable[..., object]:  # noqa: ARG001  one for each device
    import cupy

    options = tuple(f"-D{name}={value}" for name, value in kernel_macros(element, op).items())
    function: Callable[..., object] = cupy.RawKernel(SOURCE.read_text(), "fold", options).kernel
    return function


def fold_launches(
    gpu: "Gpu", element: str, op: str, buffers: Mapping[str, Array], waves: Sequence[Sequence[Fold]]
) -> list[Callable[[], object]]:
    """Return one call for each wave of folds in ``buffers``, which queues it on the stream of ``gpu``."""
    if not waves:
        return []
    addresses = {name: gpu.address(buffer) for name, buffer in buffers.items()}
    itemsize = next(iter(buffers.values())).dtype.itemsize
    return launches_at(gpu, element, op, itemsize, addresses, waves)


def launches_at(
    gpu: "Gpu",
    element: str,
    op: str,
    itemsize: int,
    addresses: Mapping[str, int],
    waves: Sequence[Sequence[Fold]],
) -> list[Callable[[], object]]:
    """Return one call for each wave of folds in buffers at ``addresses``; one copy uploads all tables."""
    if not waves:
        return []
    tables = [launch_tables(wave, addresses, itemsize) for wave in waves]
    parts = [part for table in tables for part in (table.rows.ravel(), table.inputs)]
    uploaded = gpu.upload(np.concatenate(parts))
    function = _function(element, op, gpu.number)
    calls: list[Callable[[], object]] = []
    start = 0
    for table in tables:
        end_of_rows = start + table.rows.size
        end = end_of_rows + table.inputs.size
        arguments = (
            uploaded[start:end_of_rows],
            uploaded[end_of_rows:end],
            np.int32(len(table.rows)),
        )
        calls.append(
            partial(function, (table.tiles, 1, 1), (THREADS, 1, 1), arguments, stream=gpu.stream)
        )
        start = end
    return calls
