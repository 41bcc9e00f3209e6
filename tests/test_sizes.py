"""The three sizes of the tests: each test has one, and together they are all."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = "tests/measure/test_stall.py", "tests/slurm/test_life.py", "tests/common"
"""Files and a directory with tests of all sizes."""


def collected(selection):
    words = "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", selection
    ran = subprocess.run(
        [sys.executable, *words, *PARTS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {line for line in ran.stdout.splitlines() if "::" in line}


@pytest.fixture(scope="module")
def sizes():
    """The tests of each size, as tests/run.sh selects them."""
    return {
        "everyday": collected("not slow and not long"),
        "slow": collected("not long"),
        "all": collected("long or not long"),
    }


def test_each_size_contains_the_smaller_one_and_all_contains_every_test(sizes):
    assert sizes["everyday"] < sizes["slow"] <= sizes["all"] == collected("")


def test_no_test_is_slow_and_long(sizes):
    assert collected("slow and long") == set()
    assert sizes["slow"] - sizes["everyday"] == collected("slow")
