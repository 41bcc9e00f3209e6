"""The fold kernel: it executes a wave of folds in one launch, from tables uploaded when the plan is made."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.schedule.operation import Array
from hpccoll.transports.nccl.fold import Fold

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

SOURCE = Path(__file__).with_name("fold.cu")

THREADS, UNROLL, VECTOR_BYTES = 256, 4, 16
"""The threads of a block, the vectors that a thread loads at once from each input, and the bytes of a vector."""

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


def launch_tables(folds: Sequence[Fold], addresses: Mapping[str, int], itemsize: int) -> LaunchTables:
    """Return the tables of a wave."""
    tile = THREADS * UNROLL * VECTOR_BYTES // itemsize  # elements
    rows: list[tuple[int, ...]] = []
    inputs: list[int] = []
    tiles = 0
    for fold in folds:
        out, *own = (addresses[span.buffer] + span.start * itemsize for span in (fold.out, *fold.inputs))
        head = _unaligned_elements(out, own, itemsize, len(fold.out))
        rows.append((out, len(inputs), len(own), len(fold.out), tiles, fold.divisor, head))
        inputs += own
        tiles += max(1, -(-(len(fold.out) - head * (head < len(fold.out))) // tile))
    return LaunchTables(np.array(rows, np.int64), np.array(inputs, np.int64), tiles)


def _unaligned_elements(out: int, inputs: Sequence[int], itemsize: int, length: int) -> int:
    """Return the elements before the first aligned vector; all of them if the alignments of the buffers differ."""
    if any((address - out) % VECTOR_BYTES for address in inputs):
        return length
    return min(length, -out % VECTOR_BYTES // itemsize)


@cache
def _function(element: str, op: str, device: int) -> Callable[..., object]:  # noqa: ARG001  one for each device
    """Return the kernel; CuPy compiles it, or loads it from its disk cache."""
    import cupy

    options = tuple(f"-D{name}={value}" for name, value in kernel_macros(element, op).items())
    function: Callable[..., object] = cupy.RawKernel(SOURCE.read_text(), "fold", options).kernel
    return function


class FoldLauncher:
    """Prepares launches of the fold kernel on a GPU's stream."""

    def __init__(self, gpu: "Gpu") -> None:
        self.gpu = gpu

    def launches(
        self, element: str, op: str, buffers: Mapping[str, Array], waves: Sequence[Sequence[Fold]]
    ) -> list[Callable[[], object]]:
        """Return one call for each wave, which queues it; one copy uploads the tables of all waves."""
        if not waves:
            return []
        addresses = {name: self.gpu.address(buffer) for name, buffer in buffers.items()}
        itemsize = next(iter(buffers.values())).dtype.itemsize
        tables = [launch_tables(wave, addresses, itemsize) for wave in waves]
        uploaded = self.gpu.upload(np.concatenate([part.ravel() for table in tables for part in table[:2]]))
        function = _function(element, op, self.gpu.number)
        calls: list[Callable[[], object]] = []
        at = 0
        for table in tables:
            rows = uploaded[at : at + table.rows.size]
            inputs = uploaded[at + table.rows.size : at + table.rows.size + table.inputs.size]
            at += table.rows.size + table.inputs.size
            arguments = (rows, inputs, np.int32(len(table.rows)))
            calls.append(partial(function, (table.tiles, 1, 1), (THREADS, 1, 1), arguments, stream=self.gpu.stream))
        return calls
