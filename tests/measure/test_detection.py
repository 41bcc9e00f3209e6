"""What the check sees is published, and the published page is current."""

import subprocess
import sys
from pathlib import Path

import pytest

from hpccoll.schedule import DTYPES

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "results" / "golden" / "detection.md"


@pytest.fixture(scope="module")
def printed():
    program = [sys.executable, str(HERE / "detection.py")]
    return subprocess.run(program, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def cells(printed):
    """The shares of parts in per cent, least over p, by fault, op and dtype."""
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| ")][2:]
    return {
        (fault, op, dtype): min(map(int, cell.split(" / ")))
        for fault, op, *parts, _elements in rows
        for dtype, cell in zip(DTYPES, parts, strict=True)
    }


def test_the_published_matrix_is_current(printed):
    assert printed == PAGE.read_text(), "run python tests/measure/detection.py > results/golden/detection.md"


def test_only_a_doubled_contribution_to_min_or_max_gets_past_the_check_of_a_part(cells):
    unseen = {key for key, share in cells.items() if share < 100}
    doubled = {("one rank's contribution counted twice", op, dtype) for op in ("min", "max") for dtype in DTYPES}
    assert unseen == doubled
    assert len(cells) == 10 * 5 * 5
