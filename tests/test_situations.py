"""Commands in situations that they cannot choose: a sample of the table in tests/situations.py."""

import os

import pytest
import situations

SAMPLE = [
    ("stdout closed", "export"), ("stdout full", "export"), ("stdout full", "run-check"),
    ("stdout unread", "export"), ("both full", "export"), ("stderr full", "export"), ("disk of 4k", "import"),
    ("files of 0", "run-raw"), ("files of 2 KiB", "import"), ("directory deleted", "import"),
    ("output read-only", "import"), ("output a loop", "import"), ("PATH empty", "sweep"),
    ("memory of 400000 KiB", "show-png"), ("memory of 600000 KiB", "report"), ("12 open files", "run-check"),
    ("3 processes", "run-check"), ("MPI4PY_RC_THREAD_LEVEL=x", "run-check"),
    ("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0", "named"), ("PYTHONIOENCODING=ascii", "named"),
]  # fmt: skip


@pytest.mark.parametrize(("situation", "name"), SAMPLE, ids=": ".join)
def test_a_command_does_its_work_or_says_in_one_line_what_is_in_its_way(situation, name):
    if situations.SITUATIONS[situation].root and os.geteuid():
        pytest.skip("only root can bring it about")
    assert situations.faults(situation, name) == []
