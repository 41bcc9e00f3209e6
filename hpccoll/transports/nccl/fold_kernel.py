"""The fold kernel: the moves of a wave in one launch, from a table that lies on the GPU since the plan was compiled."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.transports.nccl.fold import Fold
from hpccoll.transports.operation import Array

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

SOURCE = Path(__file__).with_name("fold.cu")

THREADS, UNROLL, VECTOR_BYTES = 256, 4, 16
"""Threads of a block, vectors that each has in flight of every input, and bytes of a vector."""

KERNEL_TYPES = {
    "uint8": ("unsigned char", "unsigned int", "INTEGER"),
    "int32": ("int", "unsigned int", "INTEGER"),
    "int64": ("long long", "unsigned long long", "INTEGER"),
    "float16": ("unsigned short", "float", "HALF"),
    "bfloat16": ("unsigned short", "float", "BFLOAT16"),
    "float32": ("float", "float", "REAL"),
    "float64": ("double", "double", "REAL"),
}
"""By element: its type in memory, the one it is computed with, and its kind, as fold.cu has them."""

KERNEL_OPS = {"sum": "SUM", "avg": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
"""The fold of each reduction; an average is a sum that is divided in the end."""


class LaunchTables(NamedTuple):
    """The tables of a launch, as fold.cu describes them."""

    rows: NDArray[np.int64]
    inputs: NDArray[np.int64]
    tiles: int


def kernel_macros(element: str, op: str) -> dict[str, str]:
    """Return what fold.cu is compiled with for a fold of such elements."""
    stored, counted, kind = KERNEL_TYPES[element]
    words = {"STORED": stored, "COUNTED": counted, "KIND": kind, "OP": KERNEL_OPS[op]}
    return {**words, "THREADS": str(THREADS), "UNROLL": str(UNROLL)}


def launch_tables(moves: Sequence[Fold], addresses: Mapping[str, int], itemsize: int) -> LaunchTables:
    """Return the tables of a wave, given the address of each buffer."""
    tile = THREADS * UNROLL * VECTOR_BYTES // itemsize  # elements
    rows: list[tuple[int, ...]] = []
    inputs: list[int] = []
    tiles = 0
    for move in moves:
        out, *of = (addresses[span.buffer] + span.start * itemsize for span in (move.out, *move.inputs))
        head = _unaligned_elements(out, of, itemsize, len(move.out))
        rows.append((out, len(inputs), len(of), len(move.out), tiles, move.divisor, head))
        inputs += of
        tiles += max(1, -(-(len(move.out) - head * (head < len(move.out))) // tile))
    return LaunchTables(np.array(rows, np.int64), np.array(inputs, np.int64), tiles)


def _unaligned_elements(out: int, inputs: Sequence[int], itemsize: int, length: int) -> int:
    """Return the elements before the first whole vector; all of them where the buffers do not lie alike."""
    if any((address - out) % VECTOR_BYTES for address in inputs):
        return length
    return min(length, -out % VECTOR_BYTES // itemsize)


@cache
def _function(element: str, op: str, device: int) -> Callable[..., object]:  # noqa: ARG001  one for each device
    """Compile the kernel, or find it in CuPy's cache on disk."""
    import cupy

    options = tuple(f"-D{name}={words}" for name, words in kernel_macros(element, op).items())
    function: Callable[..., object] = cupy.RawKernel(SOURCE.read_text(), "fold", options).kernel
    return function


class FoldLauncher:
    """Makes the launches of folds on a GPU's stream.

    Args:
        gpu: that is current.
    """

    def __init__(self, gpu: "Gpu") -> None:
        self.gpu = gpu

    def launches(
        self, element: str, op: str, buffers: Mapping[str, Array], waves: Sequence[Sequence[Fold]]
    ) -> list[Callable[[], object]]:
        """Return the call that queues each wave; what it needs is on the GPU then, in one copy for all of them."""
        if not waves:
            return []
        addresses = {name: self.gpu.address(buffer) for name, buffer in buffers.items()}
        itemsize = next(iter(buffers.values())).dtype.itemsize
        tables = [launch_tables(wave, addresses, itemsize) for wave in waves]
        whole = self.gpu.upload(np.concatenate([part.ravel() for table in tables for part in table[:2]]))
        self.gpu.synchronize()
        function = _function(element, op, self.gpu.number)
        calls: list[Callable[[], object]] = []
        at = 0
        for table in tables:
            rows = whole[at : at + table.rows.size]
            inputs = whole[at + table.rows.size : at + table.rows.size + table.inputs.size]
            at += table.rows.size + table.inputs.size
            arguments = (rows, inputs, np.int32(len(table.rows)))
            calls.append(partial(function, (table.tiles, 1, 1), (THREADS, 1, 1), arguments, stream=self.gpu.stream))
        return calls
