"""The published detection matrix is current and has the claimed shares."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def tables():
    """The rows of the four tables of the page, as they are now: their words, and the least of their shares."""
    from detection import PAGE, page

    printed = page()
    assert printed == PAGE.read_text(), "run python tests/measure/detection.py"
    tables = printed.split("| --- |")[1:]
    cells = (
        [line.strip("| ").split(" | ") for line in table.splitlines()[1:] if line[:2] == "| " and "fault" not in line]
        for table in tables
    )
    return [
        {
            tuple(cell for cell in row if not cell[0].isdigit()): [
                min(map(int, cell.split(" / "))) for cell in row if cell[0].isdigit()
            ]
            for row in table
        }
        for table in cells
    ]


def test_the_published_matrix_is_current_and_only_a_doubled_contribution_to_min_or_max_is_undetected(tables):
    folded, *_ = tables
    unseen = {row for row, (*parts, _elements) in folded.items() if min(parts) < 100}
    assert unseen == {("one rank's contribution counted twice", op) for op in ("min", "max")}
    assert len(folded) == 11 * 5


def test_a_fault_of_one_contribution_shows_in_every_part_unless_a_reduction_rounds_it_off(tables):
    _, in_message, *_ = tables
    hidden = {row for row, (*parts, _elements) in in_message.items() if min(parts) < 100}
    assert hidden == {("one unit in the last place off", op) for op in ("sum", "avg")}
    assert len(in_message) == 7 * 5
    of_extremes = {fault: min(in_message[fault, op][-1] for op in ("min", "max")) for fault, _ in in_message}
    assert of_extremes["never written"] == of_extremes["zeroed"] == 100
    moving = "two parts swapped", "displaced by one element", "displaced by 128 bytes", "one bit flipped"
    assert min(of_extremes[fault] for fault in moving) > 50


def test_in_moved_blocks_and_beside_a_right_result_every_faulty_part_is_detected(tables):
    *_, moved, beside = tables
    assert (len(moved), len(beside)) == (9, 6)
    assert {share for *parts, _ in (*moved.values(), *beside.values()) for share in parts} == {100}
    assert min(map(min, moved.values())) >= 99
