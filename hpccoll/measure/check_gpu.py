"""The check on a GPU: fills buffers there, and compares there; only the count of wrong elements comes back.

Values repeat after PERIOD elements, which is prime. Written 16 bytes after 16 bytes, V elements at once, they repeat
after PERIOD vectors, and a turn that begins one element later begins V^-1 (modulo PERIOD) vectors later: so one table
of 1 MiB a unit holds all turns, aligned. It stays in L2, and a fill of S bytes moves S bytes, a check S bytes. A unit
that is short has a row of vectors for each turn instead. What one vector shares with another unit is done by elements.
Guards are units whose values are the same in all turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hpccoll.measure.check import GuardCheck, wrong_size
from hpccoll.measure.guard_check import Guard
from hpccoll.measure.payload import Payload
from hpccoll.measure.payload_values import Array, bits
from hpccoll.spec.memory import GENERATIONS, PERIOD, VECTOR_BYTES

SOURCE = Path(__file__).with_name("check.cu")
THREADS = 256
BLOCKS = 4096
"""The most blocks of a launch, over all segments: some for each multiprocessor, in turns."""


class Kernel(Protocol):
    """A kernel of a GPU, launched on its stream."""

    def __call__(self, grid: tuple[int, int], block: tuple[int], arguments: tuple[np.uint64, ...]) -> None:
        """Queue it."""


class CheckDevice(Protocol):
    """What the check needs of a GPU."""

    def upload(self, values: NDArray[Any]) -> Any:
        """Return a copy of ``values`` there, which begins at a multiple of 16 bytes."""

    def download(self, array: Any) -> NDArray[Any]:
        """Return a copy here, after all that was queued."""

    def address(self, array: Any) -> int:
        """Return where an array begins there."""

    def kernel(self, source: Path, name: str, itemsize: int) -> Kernel:
        """Return a kernel of a file, compiled for elements of so many bytes."""

    def synchronize(self) -> None:
        """Return when all that was queued is done."""


class ValueTable(NamedTuple):
    """The values of a unit in all turns, in vectors [vector, element]."""

    vectors: NDArray[np.unsignedinteger]
    step: int

    @classmethod
    def of(cls, row: NDArray[np.unsignedinteger], length: int, head: int) -> "ValueTable":
        """Return the table of a unit.

        Args:
            row: the values, one PERIOD of them; of a short unit those of all turns, so much longer than it is.
            length: elements of the unit.
            head: elements by which its first vector begins before it.
        """
        each = VECTOR_BYTES // row.itemsize
        if (row == row[0]).all():
            return cls(np.full((1, each), row[0]), 0)
        if len(row) == PERIOD:
            return cls(row[(np.arange(PERIOD * each) - head) % PERIOD].reshape(-1, each), pow(each, -1, PERIOD))
        step = -(-(head + length) // each)
        places = np.arange(GENERATIONS)[:, np.newaxis] + np.arange(step * each) - head
        return cls(row[places.clip(0, len(row) - 1)].reshape(-1, each), step)

    @classmethod
    def fixed(cls, words: NDArray[np.unsignedinteger], head: int) -> "ValueTable":
        """Return the table of what is the same in all turns; ``head`` as above."""
        each = VECTOR_BYTES // words.itemsize
        return cls(np.pad(words, (head, -(head + len(words)) % each)).reshape(-1, each), 0)


class _Segments:
    """Units of buffers on a GPU, with the values of all turns.

    Args:
        gpu: whose memory they are.
        others: whose units are among them.
    """

    def __init__(self, gpu: CheckDevice, *others: "_Segments") -> None:
        self.gpu = gpu
        self.rows: list[tuple[int, ...]] = [row for other in others for row in other.rows]
        self.tables: list[Any] = []

    def add(self, buffer: Any, lengths: Sequence[int], values: Sequence[Array]) -> None:
        """Add units that lie one after the other in ``buffer``."""
        begin = self.gpu.address(buffer) if any(lengths) else 0
        for length, row in zip(lengths, values, strict=True):
            if length:
                self._add(begin, length, ValueTable.of(bits(row), length, begin % VECTOR_BYTES // row.itemsize))
                begin += length * row.itemsize

    def add_guard(self, guard: Guard) -> None:
        """Add memory that no operation may write."""
        begin, words = self.gpu.address(guard.memory), guard.words
        self._add(begin, len(words), ValueTable.fixed(words, begin % VECTOR_BYTES // words.itemsize))

    def _add(self, begin: int, length: int, table: ValueTable) -> None:
        """Add a unit of ``length`` elements from the address ``begin`` on."""
        self.tables.append(self.gpu.upload(table.vectors))
        head = begin % VECTOR_BYTES // table.vectors.itemsize
        place, values_at = begin - begin % VECTOR_BYTES, self.gpu.address(self.tables[-1])
        self.rows.append((place, head, head + length, values_at, len(table.vectors), table.step))

    def launches(self, itemsize: int) -> Iterator[tuple[tuple[int, int], tuple[int], Any, int]]:
        """Yield grids, blocks and segments: one launch, or none for no units."""
        if not self.rows:
            return
        most = max(stop * itemsize // VECTOR_BYTES + 1 for _, _, stop, *_ in self.rows)
        wide = max(1, min(-(-most // THREADS), BLOCKS // len(self.rows)))
        segments = self.gpu.upload(np.array(self.rows, np.uint64))
        yield (wide, len(self.rows)), (THREADS,), segments, self.gpu.address(segments)


class GpuCheck:
    """As ``Check``, for buffers on a GPU, and with the same answers.

    Args:
        payload: the values.
        src: where the contribution is, unless in place.
        dst: the units of dst that ``payload.filled_units`` names.
        result: where the result is to be; one of another size than ``payload`` promises is wrong in all elements.
        gpu: whose memory they are.
        in_place: whether dst begins with the contribution.
        generation: which of the turns has been.
        guards: memory that the operation may not write.
    """

    def __init__(
        self, payload: Payload, src: Any, dst: Any, result: Any, gpu: CheckDevice, *, in_place: bool,
        generation: int = 0, guards: Sequence[Guard] = (),
    ) -> None:  # fmt: skip
        extra, me, itemsize = GENERATIONS - 1, payload.me, payload.dtype.itemsize
        told = replace(payload, periodic=True)
        self.generation, self._gpu = generation, gpu
        units, filled = told.call.target(me, told.units), told.filled_units(in_place=in_place)
        kept = _Segments(gpu)  # what an operation leaves as it is
        for guard in guards:
            if not guard.on_host:
                kept.add_guard(guard)
        if not in_place:
            own = told.call.source(me, told.units)
            kept.add(src, [told.length("src", unit) for unit in own], told.source(extra))
        fills, compared = _Segments(gpu, kept), _Segments(gpu, kept)
        fills.add(dst, [told.length("dst", unit) for unit in filled], told.initial(in_place=in_place, extra=extra))
        self._misfit = wrong_size(result, told.expected_length)
        if not self._misfit:
            lengths = [told.length("dst", unit) for unit in units]
            compared.add(result, lengths, told.expected(in_place=in_place, extra=extra))
        self._kept = kept.tables, fills.tables, compared.tables
        self._fills, self._checks = [*fills.launches(itemsize)], [*compared.launches(itemsize)]
        self._guards = GuardCheck([guard for guard in guards if guard.on_host])
        self._fill, self._count = (gpu.kernel(SOURCE, name, itemsize) for name in ("fill", "count_wrong"))
        self._counter = gpu.upload(np.zeros(1, np.uint64))  # never set back: what is added is what is wrong
        self._counted = 0

    def reset(self) -> None:
        """Put the buffers back to what they hold before an operation, the next one; they do when it returns."""
        self.generation = (self.generation + 1) % GENERATIONS
        self._guards.reset()
        for grid, block, _, segments in self._fills:
            self._fill(grid, block, (np.uint64(segments), np.uint64(self.generation)))
        self._gpu.synchronize()

    def wrong(self) -> int:
        """Return how many elements are wrong: of the result, of src, and next to the buffers."""
        for grid, block, _, segments in self._checks:
            counter = np.uint64(self._gpu.address(self._counter))
            self._count(grid, block, (np.uint64(segments), np.uint64(self.generation), counter))
        before, self._counted = self._counted, int(self._gpu.download(self._counter)[0])
        return self._misfit + self._guards.wrong() + self._counted - before
