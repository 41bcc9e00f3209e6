"""Published training steps: what is predicted after one fit is what the golden table says."""

import re
from pathlib import Path

import pytest
from published_rows import predicted, tables

GOLDEN = Path(__file__).parents[4] / "results" / "golden" / "published_steps.md"


def golden(name):
    """Return the last cells of the first row of the golden table with a name."""
    rows = [[cell.strip() for cell in line.split("|")] for line in GOLDEN.read_text().splitlines()]
    return next(cells[-2] for cells in rows if len(cells) > 2 and cells[2] == name)


def test_the_golden_table_is_what_is_predicted():
    (fraction, fitted), (_, step) = predicted(tables()[0], ["175B"])
    assert fitted.error == pytest.approx(0, abs=1e-3)
    assert re.search(r"[\d.]+", golden("22B"))[0] == f"{100 * fraction:.1f}"
    assert golden("175B") == f"{step.error:+.1%}"


def test_an_interleaved_schedule_has_a_part_of_the_bubble():
    (_, (_, step)) = predicted(tables()[0], ["175B"])
    assert step.bubble_s == pytest.approx(step.timeline.bubble_s / 3)
    assert step.seconds < step.timeline.step_s
