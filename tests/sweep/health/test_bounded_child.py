"""A child process of a check ends in its time, and its descendants with it."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from patience import wait

from hpccoll.sweep.health.bounded_child import run_bounded

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open(sys.argv[1], "w").write(f"{os.getpid()} {child.pid}\\n")
time.sleep(1000)
"""


def is_running(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def family(path):
    return [int(word) for word in path.read_text().split()]


def test_the_output_and_the_exit_code_of_a_child_are_returned():
    child = run_bounded(["sh", "-c", "echo out; echo 1 >&2; echo 2 >&2; exit 3"], 60, os.environ)
    assert (child.code, child.out, child.error) == (3, "out\n", "2")


def test_a_child_that_does_not_end_is_killed_with_its_descendants(tmp_path):
    command = [sys.executable, "-c", FAMILY, str(tmp_path / "pids")]
    begun = time.monotonic()
    limit_s = 5
    child = run_bounded(command, limit_s, os.environ)
    assert child.code is None
    assert time.monotonic() - begun >= limit_s
    pids = family(tmp_path / "pids")
    wait(lambda: not any(map(is_running, pids)), "descendants still run")


ENDED = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
from hpccoll.sweep.health.bounded_child import run_bounded
run_bounded([sys.executable, "-c", sys.argv[1], sys.argv[2]], 1000, os.environ)
"""


def test_a_check_that_is_ended_by_a_signal_leaves_no_descendant(tmp_path):
    pids = tmp_path / "pids"
    check = subprocess.Popen([sys.executable, "-c", textwrap.dedent(ENDED), FAMILY, str(pids)])
    wait(lambda: pids.exists() and pids.read_text().endswith("\n"), "the child does not start")
    check.send_signal(signal.SIGTERM)
    assert check.wait() == 143
    wait(lambda: not any(map(is_running, family(pids))), "descendants still run")
