"""Drills: a sweep is killed, and goes on where it was; nothing is lost, measured twice or left running.

More ways to kill it, at random times, are in random_fault_drills.py.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cli_runner import ENVIRONMENT, invoke, spawn

from hpccoll.common.errors import BadInputError
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
"""So many that a busy machine, which takes seconds to hear of a kill, does not finish them before the last one."""
SNAKEMAKE = "-m snakemake -s "
"""What a sweep starts; the processes that Snakemake itself starts are called otherwise."""
LONG_S = 240
"""What takes seconds has this long: processors may be busy."""


class Drill:
    """A sweep that is started again and again in one directory."""

    def __init__(self, home: Path, marked) -> None:
        self.marked, self.home, self.out = marked, home, home / "results" / "slow"
        self.journal = self.out / "raw" / "mpi.p2.h5.journal"
        self.finished: dict[str, bytes] = {}  # the start times of every case that had an outcome before a kill
        (home / "slow.yaml").write_text(SLOW)

    def start(self):
        """Start a sweep, wait until it has two outcomes of its own, and stop a rank: the others wait for it."""
        before = self.outcomes()
        command = [sys.executable, "-m", "hpccoll", "sweep", "slow.yaml"]
        sweep = subprocess.Popen(
            command, cwd=self.home, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + LONG_S
        while self.outcomes() < before + 2:
            assert time.monotonic() < until, "it does not measure"
            assert sweep.poll() is None, sweep.stderr.read()
            time.sleep(0.05)
        self.stopped = self.ranks()[1]
        os.kill(self.stopped, signal.SIGSTOP)
        return sweep

    def hit(self, kill, process, number):
        """Kill something, and let the rank that was stopped hear of it."""
        kill(process, number)
        with suppress(ProcessLookupError):
            os.kill(self.stopped, signal.SIGCONT)

    def outcomes(self):
        lines = self.journal.read_bytes().split(b"\n") if self.journal.exists() else ()
        return sum(starts_with_key(line, "outcome") for line in lines)

    def now(self):
        """Return the start times of the cases that have an outcome now."""
        with suppress(BadInputError):
            raw = read_journal(self.journal)
            return {o.case.id: o.times.start_ns.tobytes() for _, outcomes in raw.attempts for o in outcomes}
        return {}

    def ranks(self):
        return [place.pid for place in read_journal(self.journal).attempts[-1][0].places]

    def ends(self, sweep, code):
        """See a sweep end with ``code``, with a report, with nothing left and nothing lost; return its output."""
        out, err = sweep.communicate(timeout=LONG_S)
        assert sweep.returncode == code, f"{sweep.returncode}\n{out}\n{err}"
        assert out.splitlines()[-1] == "report: results/slow/report/index.html"
        assert self.marked() == {}
        self.keep()
        return out

    def keep(self):
        now = self.now()
        assert self.finished.items() <= now.items()
        self.finished = now

    def process(self, words):
        return next(pid for pid, command in self.marked().items() if words in command)


@pytest.fixture
def drill(tmp_path, marked):
    drill = Drill(tmp_path, marked)
    yield drill
    kill_orphans(drill.out)


@pytest.mark.usefixtures("swept")
def test_a_sweep_survives_the_end_of_a_rank_ctrl_c_and_its_own(drill):
    sweep = drill.start()
    status = invoke("status", drill.out)
    assert (status.code, status.out.partition(":")[0]) == (3, "a sweep is running")
    assert "mpi.p2: running, " in status.out
    assert spawn("sweep", "slow.yaml", cwd=drill.home).is_bad_input("results/slow", "a sweep is running")
    drill.hit(os.kill, drill.ranks()[1], signal.SIGKILL)
    out = drill.ends(sweep, 3)
    assert out.splitlines()[3].startswith("  failed in mpi.p2: all_reduce.")  # which tells more than what was not run

    sweep = drill.start()
    drill.hit(os.killpg, sweep.pid, signal.SIGINT)  # Ctrl-C
    drill.ends(sweep, 3)

    sweep = drill.start()
    snakemake = drill.process(SNAKEMAKE)
    sweep.send_signal(signal.SIGSTOP)  # it must not notice that Snakemake ends, and end what runs
    os.kill(snakemake, signal.SIGKILL)
    sweep.kill()
    sweep.communicate()
    assert drill.process("hpccoll run")
    drill.keep()

    status = invoke("status", drill.out)
    assert (status.code, status.out.partition(":")[0]) == (3, "no sweep is running")
    assert " not run" in status.out
    result = spawn("sweep", "slow.yaml", cwd=drill.home)
    assert result.code == 0, result.out + result.err
    assert "ended an orphan of an earlier sweep: " in result.err
    assert f"{CASES} of {CASES} cases" in result.out
    assert drill.marked() == {}
    raw = read_raw(drill.out / "raw" / "mpi.p2.h5")
    measured = [(o.case.id, o.times.start_ns.tobytes()) for _, outcomes in raw.attempts for o in outcomes]
    assert len(measured) == CASES
    assert drill.finished.items() <= dict(measured).items()
    assert len(raw.attempts) == 4
    assert not drill.journal.exists()
