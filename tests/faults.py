"""Faults: right results of every kind, and what may be wrong with them, for tests of what checks them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from hpccoll.measure.check_gpu import GpuCheck, Machine
from hpccoll.measure.payload import Payload
from hpccoll.measure.values import bits, joined
from hpccoll.schedule import BFLOAT16, COLLECTIVES, DTYPES, REDUCTIONS, collective, dtype_of
from hpccoll.schedule.cut import GRAIN

RANKS = (2, 3, 4, 8)
PARTS = 128
OPS = ("sum", "prod", "min", "max", "avg")
FOLDING = ("all_reduce", "reduce_scatter")  # a reduce is an all-reduce of which one rank has the result
MOVING = tuple(  # blocks of whole parts: unequal ones have the values of all_to_all
    name for name, family in COLLECTIVES.items() if not family.reduces and "traffic" not in family.arguments
)

EVERY = (*DTYPES, BFLOAT16)


@dataclass(frozen=True)
class Setting:
    """A right result and what it is made of."""

    payload: Payload
    right: np.ndarray

    @classmethod
    def of(cls, name: str, op: str, dtype: str, p: int) -> "Setting":
        """Return the result of the last rank, of a root that has one."""
        count = PARTS * GRAIN // dtype_of(dtype).itemsize
        promise = collective(name).promise(p, p - 1 if name == "gather" else None)
        payload = Payload(promise, REDUCTIONS[op], dtype_of(dtype), count, me=p - 1, turn=1)
        return cls(payload, joined(payload.expected(in_place=False), payload.dtype))

    @property
    def contributed(self) -> int:
        """Elements that the rank brings itself."""
        return sum(map(len, self.payload.source()))

    @property
    def grain(self) -> int:
        return GRAIN // self.payload.dtype.itemsize

    @cached_property
    def contributions(self) -> list[np.ndarray]:
        """What each rank brings to the result, where it is folded."""
        (unit,) = self.payload.promise.target(self.payload.me, len(self.payload.source()))
        return [replace(self.payload, me=me).source()[unit] for me in range(self.payload.p)]

    def counted(self, origin: int, times: int) -> np.ndarray:
        payload = self.payload
        sources = (c for me, c in enumerate(self.contributions) for _ in range(times if me == origin else 1))
        folded = reduce(payload.reduction.fold, sources).copy()
        payload.reduction.scale(folded, payload.p)
        return folded


def missing(s: Setting) -> Iterator[np.ndarray]:
    yield from (s.counted(origin, 0) for origin in range(s.payload.p))


def doubled(s: Setting) -> Iterator[np.ndarray]:
    yield from (s.counted(origin, 2) for origin in range(s.payload.p))


def never_written(s: Setting) -> Iterator[np.ndarray]:
    yield np.resize(s.payload.poison(), len(s.right))


def swapped(s: Setting) -> Iterator[np.ndarray]:
    yield s.right.reshape(-1, 2, s.grain)[:, ::-1].ravel()


def bit_flipped(s: Setting) -> Iterator[np.ndarray]:
    """Flip one bit of every element, another one in each."""
    flipped = bits(s.right.copy())
    places = np.arange(len(flipped), dtype=flipped.dtype) % (8 * s.right.itemsize)
    flipped ^= np.left_shift(flipped.dtype.type(1), places)
    yield flipped.view(s.right.dtype)


def one_ulp_off(s: Setting) -> Iterator[np.ndarray]:
    integer = np.issubdtype(s.right.dtype, np.integer)
    yield s.right + s.right.dtype.type(1) if integer else np.nextafter(s.right, s.right.dtype.type(np.inf))


def stale(s: Setting) -> Iterator[np.ndarray]:
    yield joined(replace(s.payload, turn=0).expected(in_place=False), s.payload.dtype)


def another_seed(s: Setting) -> Iterator[np.ndarray]:
    yield joined(replace(s.payload, seed=2).expected(in_place=False), s.payload.dtype)


def displaced_one(s: Setting) -> Iterator[np.ndarray]:
    yield np.roll(s.right, 1)


def displaced_grain(s: Setting) -> Iterator[np.ndarray]:
    yield np.roll(s.right, s.grain)


Fault = Callable[[Setting], Iterator[np.ndarray]]
FAULTS: dict[str, Fault] = {
    "one rank's contribution missing": missing,
    "one rank's contribution counted twice": doubled,
    "never written": never_written,
    "two parts swapped": swapped,
    "one bit flipped": bit_flipped,
    "one unit in the last place off": one_ulp_off,
    "left by the last operation": stale,
    "of another seed": another_seed,
    "displaced by one element": displaced_one,
    f"displaced by {GRAIN} bytes": displaced_grain,
}


ALIKE = [fault for fault in FAULTS if "contribution" not in fault]
"""Faults that there are without folding, too."""


def settings(p: int, dtype: str) -> Iterator[tuple[Setting, list[Fault]]]:
    """Yield every right result of so many ranks, with the faults that it may have."""
    for name in FOLDING:
        for op in OPS:
            yield Setting.of(name, op, dtype, p), [*FAULTS.values()]
    for name in MOVING:
        yield Setting.of(name, "sum", dtype, p), [FAULTS[fault] for fault in ALIKE]


def all_are_seen(setting: Setting, faults: Iterable[Fault], gpu: Machine) -> None:
    """See that the check on a GPU finds a right result right, and of a wrong one every element that is."""
    right = bits(setting.right)
    src, dst = gpu.upload(np.zeros(setting.contributed, right.dtype)), gpu.upload(right)
    check = GpuCheck(replace(setting.payload, turn=0), src, dst, dst, gpu, in_place=False)
    check.reset()  # the turn of the setting
    for faulty in (right, *(bits(faulty) for fault in faults for faulty in fault(setting))):
        dst[...] = gpu.upload(faulty)
        assert check.wrong() == np.count_nonzero(faulty != right)
