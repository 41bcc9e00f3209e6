"""Checks results on a GPU: fills and compares the buffers there; only the number of wrong elements is copied back.

Values repeat after PERIOD elements, a prime. Written as vectors of V elements (16 bytes), they
repeat after PERIOD vectors, and a generation that begins one element later begins V^-1 (modulo
PERIOD) vectors later. One aligned table of 1 MiB per unit therefore holds all generations. The
table stays in L2, so a fill of S bytes moves S bytes, and so does a check. A short unit has one row
of vectors per generation instead. Vectors that two units share are handled element by element.
Guards are units whose values are the same in all generations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpccoll.cases.memory_estimate import GENERATIONS, PERIOD, VECTOR_BYTES
from hpccoll.measure.run.guards import Guard, GuardCheck
from hpccoll.measure.run.payload import EXTRA, Array, Payload, bits
from hpccoll.transports.gpu import Gpu

SOURCE = Path(__file__).with_name("result_check.cu")
THREADS = 256
BLOCKS = 4096
"""The maximum number of blocks of a launch, over all segments: several for each multiprocessor."""


class ValueTable(NamedTuple):
    """The values of a unit in all generations, [vector, element]; each begins ``step`` vectors after the one before."""

    vectors: NDArray[np.unsignedinteger]
    step: int

    @classmethod
    def of(cls, row: NDArray[np.unsignedinteger], length: int, head: int) -> "ValueTable":
        """Return the table of a unit of ``length`` elements, whose first vector begins ``head`` elements before it.

        ``row`` is one period of values, or for a short unit its values in all generations, EXTRA
        elements longer.
        """
        words_of_vector = VECTOR_BYTES // row.itemsize
        if (row == row[0]).all():
            return cls(np.full((1, words_of_vector), row[0]), 0)
        if len(row) == PERIOD:
            return cls(
                row[(np.arange(PERIOD * words_of_vector) - head) % PERIOD].reshape(
                    -1, words_of_vector
                ),
                pow(words_of_vector, -1, PERIOD),
            )
        step = -(-(head + length) // words_of_vector)
        places = np.arange(GENERATIONS)[:, np.newaxis] + np.arange(step * words_of_vector) - head
        return cls(row[places.clip(0, len(row) - 1)].reshape(-1, words_of_vector), step)

    @classmethod
    def fixed(cls, words: NDArray[np.unsignedinteger], head: int) -> "ValueTable":
        """Return the table of values that are the same in all generations; ``head`` as in ``of``."""
        words_of_vector = VECTOR_BYTES // words.itemsize
        return cls(
            np.pad(words, (head, -(head + len(words)) % words_of_vector)).reshape(
                -1, words_of_vector
            ),
            0,
        )


class _Segments:
    """Units of buffers on a GPU, with their values in all generations; the units of ``parts`` are included."""

    def __init__(self, gpu: Gpu, *parts: "_Segments") -> None:
        self.gpu = gpu
        self.rows: list[tuple[int, ...]] = [row for part in parts for row in part.rows]
        self.tables: list[Any] = []

    def add(self, buffer: Any, lengths: Sequence[int], values: Sequence[Array]) -> None:
        """Add units that are contiguous in ``buffer``."""
        begin = self.gpu.address(buffer) if any(lengths) else 0
        for length, row in zip(lengths, values, strict=True):
            if length:
                self._add(
                    begin,
                    length,
                    ValueTable.of(bits(row), length, begin % VECTOR_BYTES // row.itemsize),
                )
                begin += length * row.itemsize

    def add_guard(self, guard: Guard) -> None:
        """Add a guard, which no operation may write."""
        begin = self.gpu.address(guard.memory)
        words = guard.words
        self._add(
            begin, len(words), ValueTable.fixed(words, begin % VECTOR_BYTES // words.itemsize)
        )

    def _add(self, begin: int, length: int, table: ValueTable) -> None:
        self.tables.append(self.gpu.upload(table.vectors))
        head = begin % VECTOR_BYTES // table.vectors.itemsize
        place = begin - begin % VECTOR_BYTES
        values_at = self.gpu.address(self.tables[-1])
        self.rows.append((place, head, head + length, values_at, len(table.vectors), table.step))

    def launches(self, itemsize: int) -> Iterator[tuple[tuple[int, int], tuple[int], Any, int]]:
        """Yield the grid, the block, the segments and their address of one launch; nothing if there are no units."""
        if not self.rows:
            return
        most = max(stop * itemsize // VECTOR_BYTES + 1 for _, _, stop, *_ in self.rows)
        wide = max(1, min(-(-most // THREADS), BLOCKS // len(self.rows)))
        segments = self.gpu.upload(np.array(self.rows, np.uint64))
        yield (wide, len(self.rows)), (THREADS,), segments, self.gpu.address(segments)


class GpuCheck:
    """Like ``Check``, with its arguments and results, for buffers on ``gpu``."""

    def __init__(
        self,
        payload: Payload,
        src: Any,
        dst: Any,
        result: Any,
        gpu: Gpu,
        *,
        in_place: bool,
        generation: int = 0,
        guards: Sequence[Guard] = (),
    ) -> None:
        me = payload.me
        itemsize = payload.dtype.itemsize
        periodic = replace(payload, periodic=True)
        self.generation = generation
        self._gpu = gpu
        units = periodic.call.target(me, periodic.units)
        filled = periodic.filled_units(in_place=in_place)
        unchanged = _Segments(gpu)  # the operation must not write them
        for guard in guards:
            if not guard.on_host:
                unchanged.add_guard(guard)
        if not in_place:
            own = periodic.call.source(me, periodic.units)
            unchanged.add(
                src, [periodic.length("src", unit) for unit in own], periodic.source(EXTRA)
            )
        fills = _Segments(gpu, unchanged)
        compared = _Segments(gpu, unchanged)
        lengths = [periodic.length("dst", unit) for unit in filled]
        fills.add(dst, lengths, periodic.initial(in_place=in_place, extra=EXTRA))
        self._missized = periodic.missized(result)
        if not self._missized:
            lengths = [periodic.length("dst", unit) for unit in units]
            compared.add(result, lengths, periodic.expected(in_place=in_place, extra=EXTRA))
        # keeps their memory allocated
        self._tables = unchanged.tables, fills.tables, compared.tables
        self._fills = list(fills.launches(itemsize))
        self._checks = list(compared.launches(itemsize))
        self._guards = GuardCheck([guard for guard in guards if guard.on_host])
        self._fill, self._count = (
            gpu.kernel(SOURCE, name, itemsize) for name in ("fill", "count_wrong")
        )
        # never reset: the increase is the number of wrong elements
        self._counter = gpu.upload(np.zeros(1, np.uint64))
        self._counted = 0

    def reset(self) -> None:
        """Fill the buffers with the values of the next generation.

        All work queued on the GPU has completed when this returns; plans rely on it
        (``TransportPlan.run``).
        """
        self.generation = (self.generation + 1) % GENERATIONS
        self._guards.reset()
        for grid, block, _, segments in self._fills:
            self._fill(grid, block, (np.uint64(segments), np.uint64(self.generation)))
        self._gpu.await_work()

    def wrong(self) -> int:
        counter = np.uint64(self._gpu.address(self._counter))
        generation = np.uint64(self.generation)
        for grid, block, _, segments in self._checks:
            self._count(grid, block, (np.uint64(segments), generation, counter))
        counted_before = self._counted
        (count,) = self._gpu.download(self._counter)
        self._counted = int(count)
        different = self._counted - counted_before
        return different + self._missized + self._guards.wrong()
