"""The detection matrix: the faults that the check of results detects.

python tests/measure/detection.py > results/golden/detection.md
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from injected_faults import (
    ALIKE,
    EVERY,
    FAULTS,
    FOLDING,
    IN_MESSAGE,
    MOVING,
    OPS,
    PARTS,
    RANKS,
    SIZES,
    WRITES,
    Buffers,
    Fault,
    Setting,
)

from hpccoll.measure.payload import GENERATIONS, bits
from hpccoll.measure.result_check import Check
from hpccoll.schedule.cut import GRAIN
from hpccoll.transports.guarded_memory import GUARD_BYTES

SIZE = f"{PARTS * GRAIN // 1024} KiB"

HEAD = """# What the check of results can and cannot see

Every timed result is compared bit for bit with what it must be. How the values are made is described in
`hpccoll/measure/payload.py`.
Below, a fault is put into a right all-reduce, and a right reduce-scatter, of {size} in {parts} parts of {grain} bytes,
the grain in which buffers are cut. A cell is the share of parts, in per cent, in which the check sees the fault: the
least over both and over all ranks that can be at fault, for p = {ranks} ranks (one number where they agree). 100
means that no part of {grain} bytes gets past it.
The last column is the share of single elements, the least over dtypes and p: what protects a message of one element.

| fault | op | {dtypes} | single elements |
| --- | --- |{rules} --: |
"""

MESSAGE = """
The same faults in the contribution of one rank, before it is folded into an all-reduce of {size}: the share of parts,
and of single elements, in which the result differs, the least over p and over the ranks.

| fault | op | {dtypes} | single elements |
| --- | --- |{rules} --: |
"""

MOVED = """
Where blocks are moved and none is folded, the same faults in blocks of {size}: the least over p and over
{moving}.

| fault | {dtypes} | single elements |
| --- |{rules} --: |
"""

BESIDE = """
Where the result is right, and something beside it is not: the share of faults that are seen, the least over p and over
{folding}, and over
{moving}.
What is written outside is one element, and one grain, of the right result, of the contribution, of zeros, and of what
an unwritten buffer holds.

| fault | {dtypes} | single elements |
| --- |{rules} --: |
"""

FOOT = """
What this means:

- *Never written*, *one bit*, *one unit in the last place*: always seen, in every element. The comparison is exact.
- *Missing*: a sum shows it in every element, a minimum or maximum in every p-th, which one rank decides: of a part
  of fewer than p elements some ranks are not missed. A factor of 1 changes no product; an average of integers rounds
  down, one of floats is rounded, and a small contribution may vanish in it.
- *In the contribution of one rank*: what does not change the result is not seen, because the result is right. A minimum
  or maximum leaves out a number that the fault moves away from the extreme, if another rank decides the element. A sum
  of floats rounds, so that the last bits of a contribution vanish in it; an average rounds, too; in a product of
  integers the highest bits pass the range of the type. Another rank decides an element in the next operation: of up to
  {turns} ranks, each decides nearly every element within {turns} operations, so that a fault which stays is seen.
- *Counted twice*: **min and max cannot see it**, whatever the values: to hear a number twice changes neither. That an
  algorithm counts once is proven on its schedule, for every op (`hpccoll/schedule/prove.py`), and seen here with sum,
  prod and avg.
- *Left by the last operation*: every operation has other values: a buffer that was not filled again is seen. They come
  again after {turns} operations: what exactly {turns}, {twice}, ... operations before has left is not seen.
- *Swapped*, *displaced*: single elements may be equal by chance, most often in products, which have few values.
- *The plan's result*: where the result lies, and how long it is, comes from the case. A plan that says another size is
  wrong in all elements that the case promises.
- *Written outside*: {watched} bytes before and after src and dst are guards. They hold hashes of rank, buffer and
  position, so that what one buffer's guards hold is wrong in another's; two words of 16 bits may be equal by chance. A
  write that begins further away is not seen. There are guards on the host, in shared windows, on GPUs, and around the
  copies on the host of the `staged` transport; buffers that NCCL allocates have none before them. What dst has beside
  the result is workspace: schedules may write it, and so may a library in place. Out of place a library is given the
  result alone, and the guards of dst lie around that.
- *src overwritten*: out of place src is compared with the contribution after every operation. Single elements are not
  seen where what is written is what was there, as a rank's own block in the result of an all-to-all.
- Not seen: what is put right before the operation returns; what is written to workspace, or far from every buffer; in
  which order contributions were folded, since all orders give the same bits here, on purpose.

With more ranks a sum of float16 has fewer values (its integers end at 2048), a product gives weight to few ranks at a
time, and a minimum or maximum to one: a part must be longer for a missing rank to be sure to be seen.

Made by `python tests/measure/detection.py`; a test keeps it current.
"""


@cache
def shares(name: str, op: str, dtype: str, p: int) -> dict[str, tuple[float, float]]:
    """Return the least share of parts, and of elements, in which the check sees a fault, by fault."""
    setting = Setting.of(name, op, dtype, p)
    dst, src = np.empty_like(setting.right), np.empty(setting.contributed, setting.right.dtype)
    # A check is made of the payload of turn 0; its first operation is turn 1, that of the setting.
    check = Check(replace(setting.payload, generation=0), src, dst, dst, in_place=False)
    check.reset()
    np.copyto(dst, setting.right)
    assert check.wrong() == 0

    def seen(fault: Fault) -> Iterator[tuple[float, float]]:
        for faulty in fault(setting):
            np.copyto(dst, faulty)
            differs = bits(faulty) != bits(setting.right)
            assert check.wrong() == np.count_nonzero(differs)
            yield differs.reshape(-1, setting.grain).any(axis=1).mean(), differs.mean()

    faults = FAULTS if name in FOLDING else ALIKE
    return {fault: least(seen(FAULTS[fault])) for fault in faults}


def least(found: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the least share of parts, and the least of elements."""
    parts, elements = zip(*found, strict=True)
    return min(parts), min(elements)


def per_cent(share: float) -> str:
    """Return a share in whole per cent, rounded down: 100 is all of them."""
    return str(int(100 * share))


def row(*labels: str, found: Sequence[Sequence[tuple[float, float]]]) -> str:
    """Return a row of a table: what is found of each dtype for all p, or the least; and the least of all elements."""
    cells = []
    for of_dtype in found:
        parts = [per_cent(part) for part, _ in of_dtype]
        cells.append(parts[0] if len(set(parts)) == 1 else " / ".join(parts))
    least_element = per_cent(min(element for of_dtype in found for _, element in of_dtype))
    return f"| {' | '.join((*labels, *cells, least_element))} |"


def matrix() -> Iterator[str]:
    for fault, op in product(FAULTS, OPS):
        found = [[least(shares(name, op, dtype, p)[fault] for name in FOLDING) for p in RANKS] for dtype in EVERY]
        yield row(fault, op, found=found)


def moved() -> Iterator[str]:
    for fault in ALIKE:
        found = [least(shares(name, "sum", dtype, p)[fault] for name in MOVING for p in RANKS) for dtype in EVERY]
        yield row(fault, found=[[each] for each in found])


@cache
def message_shares(op: str, dtype: str, p: int) -> dict[str, tuple[float, float]]:
    """Return the least share of parts, and of elements, in which a fault of one contribution changes the result."""
    setting = Setting.of("all_reduce", op, dtype, p)

    def differing(fault: Fault) -> Iterator[tuple[float, float]]:
        for origin in range(p):
            for faulty in setting.with_fault_in_message(fault, origin):
                differs = bits(faulty) != bits(setting.right)
                yield differs.reshape(-1, setting.grain).any(axis=1).mean(), differs.mean()

    return {fault: least(differing(FAULTS[fault])) for fault in IN_MESSAGE}


def in_message() -> Iterator[str]:
    for fault, op in product(IN_MESSAGE, OPS):
        found = [least(message_shares(op, dtype, p)[fault] for p in RANKS) for dtype in EVERY]
        yield row(fault, op, found=[[each] for each in found])


@cache
def beside_shares(name: str, dtype: str, p: int) -> dict[str, tuple[float, float]]:
    """Return the share of faults beside a right result that are seen, and the least of their elements, by fault."""
    found: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for fault, seen in Buffers(Setting.of(name, "sum", dtype, p)).all_seen():
        found[fault].append(seen)
    return {
        fault: (sum(seen for seen, _ in each) / len(each), min(share for _, share in each))
        for fault, each in found.items()
    }


def beside() -> Iterator[str]:
    for fault in (*SIZES, *WRITES):
        of_dtype = [[beside_shares(name, dtype, p) for name in (*FOLDING, *MOVING) for p in RANKS] for dtype in EVERY]
        # Where a rank has no src, nothing is written to it.
        yield row(fault, found=[[least(each[fault] for each in every if fault in each)] for every in of_dtype])


def page() -> str:
    words = {
        "size": SIZE, "parts": PARTS, "grain": GRAIN, "ranks": ", ".join(map(str, RANKS)),
        "dtypes": " | ".join(EVERY), "rules": " --: |" * len(EVERY), "folding": ", ".join(FOLDING),
        "moving": ", ".join(MOVING), "turns": GENERATIONS, "twice": 2 * GENERATIONS, "watched": GUARD_BYTES,
    }  # fmt: skip
    tables = (HEAD, matrix()), (MESSAGE, in_message()), (MOVED, moved()), (BESIDE, beside())
    return "\n".join([*(head.format(**words) + "\n".join(rows) for head, rows in tables), FOOT.format(**words)])


if __name__ == "__main__":
    print(page(), end="")
