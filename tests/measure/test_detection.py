"""The published detection matrix is current and has the claimed shares."""

import subprocess
import sys
from pathlib import Path

import pytest

from hpccoll.schedule import BFLOAT16, DTYPES

pytestmark = pytest.mark.long
EVERY = (*DTYPES, BFLOAT16)
HERE = Path(__file__).parent
IN_MESSAGE = "The same faults in the contribution"
MOVED = "Where blocks are moved"
BESIDE = "Where the result is right"
PAGE = HERE.parents[1] / "results" / "golden" / "detection.md"


def rows_of(section):
    """Return the cells of the rows of a table, without its head."""
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]


@pytest.fixture(scope="module")
def printed():
    program = [sys.executable, str(HERE / "detection.py")]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def cells(printed):
    """The shares of parts in per cent, least over p, by fault, op and dtype."""
    rows = rows_of(printed.partition(IN_MESSAGE)[0])
    return {
        (fault, op, dtype): min(map(int, cell.split(" / ")))
        for fault, op, *parts, _elements in rows
        for dtype, cell in zip(EVERY, parts, strict=True)
    }


@pytest.fixture(scope="module")
def in_message(printed):
    """The shares of parts, and of single elements, in which a fault of one contribution shows: by fault and op."""
    rows = rows_of(printed.partition(IN_MESSAGE)[2].partition(MOVED)[0])
    return {(fault, op): (min(map(int, parts)), int(elements)) for fault, op, *parts, elements in rows}


@pytest.fixture(scope="module")
def moved(printed):
    """The same where blocks are moved, least over p: by fault and dtype, and of single elements."""
    rows = rows_of(printed.partition(MOVED)[2].partition(BESIDE)[0])
    columns = (*EVERY, "single elements")
    return {(fault, of): int(cell) for fault, *cells in rows for of, cell in zip(columns, cells, strict=True)}


@pytest.fixture(scope="module")
def beside(printed):
    """The shares of faults beside a right result that are seen: by fault and dtype."""
    rows = rows_of(printed.partition(BESIDE)[2])
    return {(fault, of): int(cell) for fault, *cells in rows for of, cell in zip(EVERY, cells, strict=False)}


def test_the_published_matrix_is_current(printed):
    assert printed == PAGE.read_text(), "run python tests/measure/detection.py > results/golden/detection.md"


def test_only_a_doubled_contribution_to_min_or_max_is_undetected_in_a_part(cells):
    unseen = {key for key, share in cells.items() if share < 100}
    doubled = {("one rank's contribution counted twice", op, dtype) for op in ("min", "max") for dtype in EVERY}
    assert unseen == doubled
    assert len(cells) == 11 * 5 * 6


def test_a_fault_of_one_contribution_shows_in_every_part_unless_a_reduction_rounds_it_off(in_message):
    hidden = {key for key, (parts, _) in in_message.items() if parts < 100}
    assert hidden == {("one unit in the last place off", op) for op in ("sum", "avg")}
    assert len(in_message) == 7 * 5


def test_a_zeroed_or_displaced_element_shows_in_a_minimum_or_maximum_that_another_rank_decides(in_message):
    of_extremes = {fault: min(in_message[fault, op][1] for op in ("min", "max")) for fault, _ in in_message}
    assert of_extremes["never written"] == of_extremes["zeroed"] == 100
    moving = "two parts swapped", "displaced by one element", "displaced by 128 bytes", "one bit flipped"
    assert min(of_extremes[fault] for fault in moving) > 50


def test_in_moved_blocks_every_faulty_part_and_nearly_every_faulty_element_is_detected(moved):
    assert {share for (_, of), share in moved.items() if of in EVERY} == {100}
    assert min(moved.values()) >= 99
    assert len(moved) == 9 * 7


def test_wrong_sizes_writes_outside_and_changes_of_src_are_detected(beside):
    assert {*beside.values()} == {100}
    assert len(beside) == 6 * 6
