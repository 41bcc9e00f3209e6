"""The published detection matrix is current and has the claimed shares."""

import subprocess
import sys
from pathlib import Path

import pytest

from hpccoll.schedule import BFLOAT16, DTYPES

pytestmark = pytest.mark.long
EVERY = (*DTYPES, BFLOAT16)
HERE = Path(__file__).parent
BESIDE = "Where the result is right"
PAGE = HERE.parents[1] / "results" / "golden" / "detection.md"


@pytest.fixture(scope="module")
def printed():
    program = [sys.executable, str(HERE / "detection.py")]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def cells(printed):
    """The shares of parts in per cent, least over p, by fault, op and dtype."""
    folded = printed.partition("Where blocks are moved")[0]
    rows = [line.strip("| ").split(" | ") for line in folded.splitlines() if line.startswith("| ")][2:]
    return {
        (fault, op, dtype): min(map(int, cell.split(" / ")))
        for fault, op, *parts, _elements in rows
        for dtype, cell in zip(EVERY, parts, strict=True)
    }


@pytest.fixture(scope="module")
def moved(printed):
    """The same where blocks are moved, least over p: by fault and dtype, and of single elements."""
    lines = printed.partition("Where blocks are moved")[2].partition(BESIDE)[0].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]
    columns = (*EVERY, "single elements")
    return {(fault, of): int(cell) for fault, *cells in rows for of, cell in zip(columns, cells, strict=True)}


@pytest.fixture(scope="module")
def beside(printed):
    """The shares of faults beside a right result that are seen: by fault and dtype."""
    rows = [line.strip("| ").split(" | ") for line in printed.partition(BESIDE)[2].splitlines() if line[:2] == "| "][2:]
    return {(fault, of): int(cell) for fault, *cells in rows for of, cell in zip(EVERY, cells, strict=False)}


def test_the_published_matrix_is_current(printed):
    assert printed == PAGE.read_text(), "run python tests/measure/detection.py > results/golden/detection.md"


def test_only_a_doubled_contribution_to_min_or_max_is_undetected_in_a_part(cells):
    unseen = {key for key, share in cells.items() if share < 100}
    doubled = {("one rank's contribution counted twice", op, dtype) for op in ("min", "max") for dtype in EVERY}
    assert unseen == doubled
    assert len(cells) == 10 * 5 * 6


def test_in_moved_blocks_every_faulty_part_and_nearly_every_faulty_element_is_detected(moved):
    assert {share for (_, of), share in moved.items() if of in EVERY} == {100}
    assert min(moved.values()) >= 99
    assert len(moved) == 8 * 7


def test_wrong_sizes_writes_outside_and_changes_of_src_are_detected(beside):
    assert {*beside.values()} == {100}
    assert len(beside) == 6 * 6
