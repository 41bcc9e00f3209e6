"""The published detection matrix is current and has the claimed shares."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
sys.path.append(str(Path(__file__).parent))


def test_the_published_matrix_is_current_and_has_the_claimed_shares():
    from detection import PAGE, page

    printed = page()
    assert printed == PAGE.read_text(), "run python tests/measure/detection.py"
    folded, in_message, moved, beside = (
        {
            tuple(cell for cell in row if not cell[0].isdigit()): [
                min(map(int, cell.split(" / "))) for cell in row if cell[0].isdigit()
            ]
            for row in (
                line.strip("| ").split(" | ") for line in table.splitlines()[1:] if line[:2] == "| "
            )
            if row[0] != "fault"
        }
        for table in printed.split("| --- |")[1:]
    )
    assert [*map(len, (folded, in_message, moved, beside))] == [11 * 5, 7 * 5, 9, 6]
    unseen = {row for row, (*parts, _elements) in folded.items() if min(parts) < 100}
    assert unseen == {("one rank's contribution counted twice", op) for op in ("min", "max")}
    hidden = {row for row, (*parts, _elements) in in_message.items() if min(parts) < 100}
    # a reduction rounds it off
    assert hidden == {("one unit in the last place off", op) for op in ("sum", "avg")}
    assert {share for *parts, _ in (*moved.values(), *beside.values()) for share in parts} == {100}
    assert min(map(min, moved.values())) >= 99
