"""A sweep is killed, and goes on where it was; nothing is lost, measured twice or left running.

More ways to kill it, at random times, are in random_fault_drills.py; those on Slurm in
tests/slurm/test_life.py.
"""

import os
import signal
import subprocess
import sys
import time

import pytest
from cli_runner import ENVIRONMENT, invoke, spawn

from hpccoll.store.checksummed_lines import starts_with_key
from hpccoll.store.journal import read_journal
from hpccoll.store.result_files import read_raw
from hpccoll.sweep.workflow import kill_orphans

pytestmark = pytest.mark.sweep

SLOW = """
algorithms: [ring, native]
bytes: {from: 8, to: 512}
ranks: 2
rounds: 1
effort: {warmup: 1, min_iterations: 3, max_iterations: 100000, seconds: 0.2, precision: 0.000001}
"""
CASES = 28
QUIET = subprocess.DEVNULL
LONG_S = 240
"""What takes seconds has this long: processors may be busy."""


def start_times(raw):
    return {
        each.case.id: each.times.start_ns.tobytes()
        for _, outcomes in raw.attempts
        for each in outcomes
    }


@pytest.mark.usefixtures("swept")
def test_a_sweep_survives_its_own_end_and_what_it_leaves_is_ended_by_the_next(tmp_path, marked):
    (tmp_path / "slow.yaml").write_text(SLOW)
    out = tmp_path / "results" / "slow"
    journal = out / "raw" / "mpi.p2.h5.journal"
    command = [sys.executable, "-m", "hpccoll", "sweep", "slow.yaml"]
    sweep = subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRONMENT, stdout=QUIET, stderr=QUIET, start_new_session=True
    )
    try:
        until = time.monotonic() + LONG_S
        while (
            not journal.exists()
            or sum(starts_with_key(x, "outcome") for x in journal.read_bytes().split(b"\n")) < 2
        ):
            assert time.monotonic() < until, "it does not measure"
            assert sweep.poll() is None
            time.sleep(0.02)
        rank = read_journal(journal).attempts[-1][0].places[1].pid
        os.kill(rank, signal.SIGSTOP)  # the others wait for it, until the next sweep ends them all
        status = invoke("status", out)
        assert (status.code, status.out.split(": ")[1]) == (3, "a sweep is running")
        assert "mpi.p2: running (" in status.out
        assert spawn("sweep", "slow.yaml", cwd=tmp_path).is_bad_input(
            "results/slow", "a sweep is running"
        )

        snakemake = next(pid for pid, words in marked().items() if "-m snakemake -s " in words)
        # it must not notice that Snakemake ends, and end what runs
        sweep.send_signal(signal.SIGSTOP)
        os.kill(snakemake, signal.SIGKILL)
        sweep.kill()
        sweep.wait()
        kept = start_times(read_journal(journal))
        assert any("hpccoll run" in words for words in marked().values())
        status = invoke("status", out)
        assert (status.code, status.out.split(": ")[1]) == (3, "no sweep is running")

        result = spawn("sweep", "slow.yaml", cwd=tmp_path)
        assert result.code == 0, result.out + result.err
        assert "ended an orphan of an earlier sweep: " in result.err
        assert f"{CASES} of {CASES} cases" in result.out
        assert marked() == {}
        raw = read_raw(out / "raw" / "mpi.p2.h5")
        assert kept.items() <= start_times(raw).items()
        assert sum(len(outcomes) for _, outcomes in raw.attempts) == CASES
        assert (len(raw.attempts), journal.exists()) == (2, False)
    finally:
        sweep.kill()
        kill_orphans(out)
