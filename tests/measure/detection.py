"""The detection matrix: the faults that the check of results detects, in the tables of results/golden/detection.md.

python tests/measure/detection.py writes them anew.
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
    RANKS,
    SIZES,
    WRITES,
    Buffers,
    Fault,
    Setting,
)

from hpccoll.measure.run.payload import bits
from hpccoll.measure.run.result_check import Check

PAGE = Path(__file__).parents[2] / "results" / "golden" / "detection.md"


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
        found = [
            [least(shares(name, op, dtype, p)[fault] for name in FOLDING) for p in RANKS]
            for dtype in EVERY
        ]
        yield row(fault, op, found=found)


def moved() -> Iterator[str]:
    for fault in ALIKE:
        found = [
            least(shares(name, "sum", dtype, p)[fault] for name in MOVING for p in RANKS)
            for dtype in EVERY
        ]
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
        of_dtype = [
            [beside_shares(name, dtype, p) for name in (*FOLDING, *MOVING) for p in RANKS]
            for dtype in EVERY
        ]
        # Where a rank has no src, nothing is written to it.
        yield row(
            fault,
            found=[[least(each[fault] for each in every if fault in each)] for every in of_dtype],
        )


def page() -> str:
    """Return the page with its tables as they are now."""
    tables, lines = iter((matrix(), in_message(), moved(), beside())), []
    for line in PAGE.read_text().splitlines():
        if not line.startswith("| ") or line.startswith(("| fault ", "| --- ")):
            lines.append(line)
        if line.startswith("| --- "):
            lines += next(tables)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
