"""Ctrl-C on a run: what is under way is finished, and a line says what there is and how to go on."""

import re
import signal
import sys
from contextlib import suppress

import pytest
import raw_examples
from cli_runner import ENVIRONMENT, invoke
from launched_programs import launched
from patience import LONG_S, wait

from hpccoll.cases.case import Effort
from hpccoll.common.errors import BadInputError
from hpccoll.store.journal import journal_path, read_journal


@pytest.fixture
def slow(tmp_path):
    """A job of half a minute, of measurements that take a fifth of a second each."""
    effort = Effort(
        warmup=1, min_iterations=3, max_iterations=1_000_000, seconds=0.2, precision=1e-9
    )
    job = raw_examples.job(*(raw_examples.case(8 * size) for size in range(1, 151)), effort=effort)
    (tmp_path / "job.json").write_text(job.to_json())
    return tmp_path / "job.json"


def measurements(out):
    with suppress(BadInputError):
        return read_journal(journal_path(out)).measurements
    return 0


@pytest.mark.mpi
def test_ctrl_c_prints_in_a_line_what_is_stored_and_the_same_command_continues(
    mpiexec,  # noqa: ARG001
    slow,
    tmp_path,
):
    out = tmp_path / "F.h5"
    command = [
        "mpiexec",
        "-n",
        "2",
        sys.executable,
        "-m",
        "hpccoll",
        "run",
        "--job",
        slow,
        "--out",
        out,
    ]
    with launched(
        command,
        env=ENVIRONMENT,
        # who tests in the background ignores it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as run:
        wait(lambda: measurements(out) >= 2, "nothing is measured")
        run.send_signal(signal.SIGINT)
        printed, complaints = run.communicate(timeout=LONG_S)
    assert run.returncode == 3, printed + complaints
    assert "Traceback" not in printed + complaints
    kept, there = (
        measurements(out),
        f"measurements are in {journal_path(out)}; the same command measures the rest",
    )
    assert 2 <= kept < 150
    assert printed.splitlines()[-1] == f"# interrupted by SIGINT: {kept} of 150 {there}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "F.h5.interrupted",
        "F.h5.journal",
        "job.json",
    ]
    valid = invoke("status", out)
    assert valid.code == 3
    assert re.search(rf"partial, {kept} of 150 cases, {150 - kept} not run, 1 attempt\n", valid.out)
