"""Right results of every kind, and faults in and around them, for tests of their checks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any

import numpy as np

from hpccoll.measure.run.guards import guards_of
from hpccoll.measure.run.payload import Payload, bits, concatenated
from hpccoll.measure.run.result_check import Check
from hpccoll.measure.run.result_check_gpu import GpuCheck
from hpccoll.schedule import BFLOAT16, COLLECTIVES, DTYPES, REDUCTIONS, collective, dtype_of
from hpccoll.schedule.cut import GRAIN
from hpccoll.transports.gpu import Gpu
from hpccoll.transports.guarded_memory import allocate_guarded
from hpccoll.transports.transport_interface import aligned_empty

RANKS = (2, 3, 4, 8)
PARTS = 128
OPS = ("sum", "prod", "min", "max", "avg")
# a reduce is an all-reduce of which one rank has the result
FOLDING = ("all_reduce", "reduce_scatter")
MOVING = tuple(  # blocks of whole parts: unequal ones have the values of all_to_all
    name
    for name, family in COLLECTIVES.items()
    if not family.reduces and "traffic" not in family.arguments
)

EVERY = (*DTYPES, BFLOAT16)


@dataclass(frozen=True)
class Setting:
    """A right result and what it is made of."""

    payload: Payload
    right: np.ndarray

    @classmethod
    def of(cls, name: str, op: str, dtype: str, p: int) -> "Setting":
        """Return the result of the last rank that has one: a root, or a rank with a partner."""
        count = PARTS * GRAIN // dtype_of(dtype).itemsize
        call = collective(name).call(p, p - 1 if name == "gather" else None)
        me = max(me for me in range(p) if call.target(me, p))
        payload = Payload(call, REDUCTIONS[op], dtype_of(dtype), count, me=me, generation=1)
        return cls(payload, concatenated(payload.expected(in_place=False), payload.dtype))

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
        (unit,) = self.payload.call.target(self.payload.me, len(self.payload.source()))
        return [replace(self.payload, me=me).source()[unit] for me in range(self.payload.p)]

    def counted(self, origin: int, times: int) -> np.ndarray:
        return self.folded(
            [
                c
                for me, c in enumerate(self.contributions)
                for _ in range(times if me == origin else 1)
            ]
        )

    def folded(self, contributions: list[np.ndarray]) -> np.ndarray:
        with np.errstate(all="ignore"):  # a flipped bit may make any number
            folded = reduce(self.payload.reduction.fold, contributions).copy()
        self.payload.reduction.scale(folded, self.payload.p)
        return folded

    def with_fault_in_message(self, fault: "Fault", origin: int) -> Iterator[np.ndarray]:
        """Yield the result if the contribution of ``origin`` arrives with this fault and is then folded."""
        others = self.contributions[:origin] + self.contributions[origin + 1 :]
        for faulty in fault(replace(self, right=self.contributions[origin])):
            yield self.folded([*others, faulty.astype(self.right.dtype)])


def bit_flipped(s: Setting) -> Iterator[np.ndarray]:
    """Flip one bit of every element, at random."""
    flipped = bits(s.right.copy())
    places = np.random.default_rng(1).integers(0, 8 * s.right.itemsize, len(flipped), flipped.dtype)
    flipped ^= np.left_shift(flipped.dtype.type(1), places)
    yield flipped.view(s.right.dtype)


def one_ulp_off(s: Setting) -> Iterator[np.ndarray]:
    integer = np.issubdtype(s.right.dtype, np.integer)
    yield (
        s.right + s.right.dtype.type(1)
        if integer
        else np.nextafter(s.right, s.right.dtype.type(np.inf))
    )


def right_of(s: Setting, **other: int) -> Iterator[np.ndarray]:
    """Yield the right result of another operation."""
    yield concatenated(replace(s.payload, **other).expected(in_place=False), s.payload.dtype)


Fault = Callable[[Setting], Iterable[np.ndarray]]
FAULTS: dict[str, Fault] = {
    "one rank's contribution missing": lambda s: (
        s.counted(origin, 0) for origin in range(s.payload.p)
    ),
    "one rank's contribution counted twice": lambda s: (
        s.counted(origin, 2) for origin in range(s.payload.p)
    ),
    "never written": lambda s: [np.resize(s.payload.sentinel(), len(s.right))],
    "zeroed": lambda s: [np.zeros_like(s.right)],
    "two parts swapped": lambda s: [s.right.reshape(-1, 2, s.grain)[:, ::-1].ravel()],
    "one bit flipped": bit_flipped,
    "one unit in the last place off": one_ulp_off,
    "left by the last operation": partial(right_of, generation=0),
    "of another seed": partial(right_of, seed=2),
    "displaced by one element": lambda s: [np.roll(s.right, 1)],
    f"displaced by {GRAIN} bytes": lambda s: [np.roll(s.right, s.grain)],
}


ALIKE = [fault for fault in FAULTS if "contribution" not in fault]
"""Faults that there are without folding, too."""

IN_MESSAGE = [
    fault for fault in ALIKE if fault not in ("left by the last operation", "of another seed")
]
"""Faults of one contribution before it is folded."""


def settings(p: int, dtype: str) -> Iterator[tuple[Setting, list[Fault]]]:
    """Yield every right result of so many ranks, with the faults that it may have."""
    for name in FOLDING:
        for op in OPS:
            yield Setting.of(name, op, dtype, p), [*FAULTS.values()]
    for name in MOVING:
        yield Setting.of(name, "sum", dtype, p), [FAULTS[fault] for fault in ALIKE]


SIZES: dict[str, Callable[[int], Iterable[int]]] = {
    "the plan's result is empty": lambda _: (0,),
    "the plan's result is too short": lambda length: (1, length // 2, length - 1),
    "the plan's result is too long": lambda length: (length + 1, 2 * length),
}
"""Elements that a plan may say its result has, of so many that the case promises."""


WRITES = AFTER, BEFORE, IN_SRC = (
    "written after the end of a buffer",
    "written before the beginning of a buffer",
    "src overwritten",
)
"""Writes outside the buffers, with a correct result."""


def _intruders(s: Setting) -> Iterator[np.ndarray]:
    """Yield what a faulty operation may write in the wrong place: one element, and one grain."""
    zeros, poison = np.zeros(s.grain, s.right.dtype), np.resize(s.payload.sentinel(), s.grain)
    for values in (s.right, concatenated(s.payload.source(), s.right.dtype), zeros, poison):
        if len(values):
            yield from (bits(values[:n]) for n in (1, s.grain))


def _lengths(s: Setting) -> dict[str, int]:
    return {"src": s.contributed, "dst": len(s.right)}


def writes(s: Setting) -> Iterator[tuple[str, str, int, np.ndarray]]:
    """Yield each write to where nothing may be written: its fault, src or dst, the first element, and the values.

    To every part of src poison, zeros, the result, and one other bit are written.
    """
    for name, length in _lengths(s).items():
        for values in _intruders(s) if length else ():  # an empty buffer has no memory
            yield AFTER, name, length, values
            yield BEFORE, name, -len(values), values
    own = bits(concatenated(s.payload.source(), s.right.dtype))
    flipped = own ^ own.dtype.type(1)
    for begin in range(0, len(own), s.grain):
        poison = bits(np.resize(s.payload.sentinel(), s.grain))
        for values in (flipped[begin : begin + s.grain], poison, flipped[begin : begin + 1]):
            yield IN_SRC, "src", begin, values
    if len(own):
        yield IN_SRC, "src", 0, bits(np.resize(s.right, len(own)))


class Buffers:
    """src and dst of a right result, between guards, and the check of them.

    Args:
        setting: the result.
        gpu: whose memory they are; None for the host.
    """

    def __init__(self, setting: Setting, gpu: Gpu | None = None) -> None:
        def allocate(count: int, dtype: np.dtype[np.generic]) -> Any:
            buffer = aligned_empty(count, dtype)
            return gpu.upload(buffer) if gpu else buffer

        self.setting, self.gpu = setting, gpu
        dtype = bits(setting.right).dtype
        self.made = {
            name: allocate_guarded(allocate, length, dtype)
            for name, length in _lengths(setting).items()
        }
        self.check = self.check_of(len(setting.right))

    def check_of(self, length: int) -> Check | GpuCheck:
        """Return the check of a result of which the plan says that it has ``length`` elements, after the operation."""
        src, dst = self.made.values()
        result = dst.memory[dst.start : dst.start + length]
        # A check is made of the payload of turn 0; its first operation is turn 1, that of the
        # setting.
        buffers = replace(self.setting.payload, generation=0), src.buffer, dst.buffer, result
        guards = [*guards_of([src, dst], self.setting.payload.me)]
        if self.gpu:
            check: Check | GpuCheck = GpuCheck(*buffers, self.gpu, in_place=False, guards=guards)
        else:
            check = Check(*buffers, in_place=False, guards=guards)
        check.reset()
        self.put("dst", 0, bits(self.setting.right))
        return check

    def put(self, buffer: str, begin: int, values: np.ndarray) -> np.ndarray:
        """Write, and return what was there."""
        made = self.made[buffer]
        at = slice(made.start + begin, made.start + begin + len(values))
        found = made.memory[at]
        before = self.gpu.download(found) if self.gpu else found.copy()
        made.memory[at] = self.gpu.upload(values) if self.gpu else values
        return before

    def seen(self, buffer: str, begin: int, values: np.ndarray) -> tuple[bool, float]:
        """Return whether the check sees a write, and the share of its elements that differ from what was there."""
        before = self.put(buffer, begin, values)
        wrong = self.check.wrong()
        self.put(buffer, begin, before)
        assert wrong == np.count_nonzero(values != before)
        return wrong > 0, wrong / len(before)

    def size_seen(self, length: int) -> tuple[bool, float]:
        """Return likewise for what the plan says of its result."""
        wrong = self.check_of(length).wrong()
        return wrong > 0, wrong / len(self.setting.right)

    def all_seen(self) -> Iterator[tuple[str, tuple[bool, float]]]:
        """Yield whether each of the faults outside a correct result is detected, if the result alone is correct."""
        assert self.check.wrong() == 0
        for fault, lengths in SIZES.items():
            yield from (
                (fault, self.size_seen(length)) for length in lengths(len(self.setting.right))
            )
        yield from ((fault, self.seen(*write)) for fault, *write in writes(self.setting))
        assert self.check.wrong() == 0


def all_are_seen(setting: Setting, faults: Iterable[Fault], gpu: Gpu) -> None:
    """See that the check on a GPU finds a right result right, and of a wrong one every element that is."""
    right = bits(setting.right)
    src, dst = gpu.upload(np.zeros(setting.contributed, right.dtype)), gpu.upload(right)
    check = GpuCheck(replace(setting.payload, generation=0), src, dst, dst, gpu, in_place=False)
    check.reset()  # the turn of the setting
    for faulty in (right, *(bits(faulty) for fault in faults for faulty in fault(setting))):
        dst[...] = gpu.upload(faulty)
        assert check.wrong() == np.count_nonzero(faulty != right)
    assert all(seen for _, (seen, _) in Buffers(setting, gpu).all_seen())
