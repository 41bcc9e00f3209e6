"""Driving Snakemake: alone in a directory, interrupted once, nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from cli_runner import invoke
from hypothesis import given
from hypothesis import strategies as st
from snakemake.cli import get_argument_parser, parse_config

from hpccoll.common.errors import BadInputError
from hpccoll.common.interruption import INTERRUPTED
from hpccoll.sweep import workflow

LONG_S = 120.0
"""What takes a moment has this long: processors may be busy."""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
RESTLESS = """
import signal, subprocess, sys
def again(*_): sys.exit(bool(subprocess.Popen(["sleep", "60"])))
signal.signal(signal.SIGTERM, again); print(flush=True); signal.pause()
"""


def marked(out, *command):
    environment = {**os.environ, workflow.SWEEP_VARIABLE: str(out.resolve())}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    if command[0] == sys.executable:
        child.stdout.readline()  # it has set its signals
    return child


def interrupts(out, number):
    """Return what to show while something is driven: a signal to ourselves, when it says that it has set its own."""

    def show():
        if "\non\n" in (out / "logs" / "snakemake.log").read_text():
            os.kill(os.getpid(), number)

    return show


def test_a_lock_that_is_a_pipe_or_a_link_is_neither_waited_for_nor_written(tmp_path):
    (tmp_path / "aim").write_text("mine")
    for number, plant in enumerate((os.mkfifo, lambda lock: lock.symlink_to(tmp_path / "aim"))):
        out = tmp_path / f"out{number}"
        out.mkdir()
        plant(out / ".lock")
        assert not workflow.is_running(out)
        with pytest.raises(BadInputError, match="--out"), workflow.exclusive(out):
            pass
    assert (tmp_path / "aim").read_text() == "mine"


def test_a_sweep_is_alone_in_its_directory(tmp_path):
    (tmp_path / "a.yaml").write_text("algorithms: ring\nbytes: 8\nranks: 2")
    with workflow.exclusive(tmp_path / "out"):
        result = invoke("sweep", tmp_path / "a.yaml", "--out", tmp_path / "out")
        assert result.is_bad_input("out", "a sweep is running in it")
    with workflow.exclusive(tmp_path / "out"):
        pass


def test_leftovers_end_and_others_do_not(tmp_path):
    with (
        marked(tmp_path, "sleep", "60") as ours,
        marked(tmp_path / "else", "sleep", "61") as another,
    ):
        assert workflow.kill_orphans(tmp_path) == [f"sleep 60  (process {ours.pid})"]
        assert ours.wait(LONG_S) == -signal.SIGTERM
        assert another.poll() is None
        another.kill()
    assert workflow.kill_orphans(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "grace", "ended", "status"),
    [(STUBBORN, 0.3, 1, -signal.SIGKILL), (RESTLESS, LONG_S, 2, 1)],
)
def test_a_leftover_that_does_not_listen_is_killed_and_what_it_starts_is_ended_too(
    tmp_path, code, grace, ended, status
):
    with marked(tmp_path, sys.executable, "-c", code) as child:
        assert len(workflow.kill_orphans(tmp_path, grace=grace)) == ended
        assert child.wait(LONG_S) == status


def test_a_profile_of_the_user_for_other_workflows_does_not_reach_snakemake(tmp_path, monkeypatch):
    monkeypatch.setenv("SNAKEMAKE_PROFILE", "/mine")
    monkeypatch.setattr(workflow.shutil, "which", lambda name: f"/bin/{name}")
    command = workflow.snakemake_command(Path("a.yaml"), "local", None, tmp_path, [])
    assert get_argument_parser().parse_args(command[3:]).profile == ["none"]
    chosen = workflow.snakemake_command(
        Path("a.yaml"), "local", None, tmp_path, ["--profile", "own"]
    )
    assert get_argument_parser().parse_args(chosen[3:]).profile == ["own"]
    assert "none" not in workflow.snakemake_command(
        Path("a.yaml"), "local", None, tmp_path, ["--profile=own"]
    )
    workflow.run_workflow(
        ["sh", "-c", "echo profile=${SNAKEMAKE_PROFILE-none}"], tmp_path, lambda: None
    )
    assert workflow.last_log_line(tmp_path) == "profile=none"


@pytest.mark.parametrize("cache", ["", "/proc/cache"])
def test_snakemake_has_its_cache_below_the_output_if_the_home_is_read_only(
    tmp_path, monkeypatch, cache
):
    monkeypatch.setenv("HOME", "/proc")
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    workflow.run_workflow(["sh", "-c", "echo $XDG_CACHE_HOME"], tmp_path, lambda: None)
    assert Path(workflow.last_log_line(tmp_path)).is_relative_to(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    workflow.run_workflow(["sh", "-c", "echo $XDG_CACHE_HOME"], tmp_path, lambda: None)
    assert workflow.last_log_line(tmp_path) == str(tmp_path / "mine")


def test_what_is_driven_is_logged_with_its_command_and_its_code_returned(tmp_path):
    script = f"echo hello; while [ ! -e {tmp_path}/shown ]; do sleep 0.02; done; exit 5"
    code = workflow.run_workflow(["sh", "-c", script], tmp_path, (tmp_path / "shown").touch)
    assert code == 5
    assert (tmp_path / "logs" / "snakemake.log").read_text() == f"\n$ sh -c '{script}'\nhello\n"


@pytest.mark.parametrize("number", workflow.END_SIGNALS)
def test_an_interrupt_is_forwarded_once_and_the_next_step_is_printed(tmp_path, capsys, number):
    count = "trap 'echo interrupted; exit 7' INT; echo on; sleep 1000 & wait; wait"
    assert (
        workflow.run_workflow(["bash", "-c", count], tmp_path, interrupts(tmp_path, number))
        == INTERRUPTED
    )
    assert (tmp_path / "logs" / "snakemake.log").read_text().count("interrupted\n") == 1
    assert capsys.readouterr().err.splitlines() == [
        "hpccoll: interrupted: ending what runs, in 60 s at most",
        "hpccoll: the sweep was interrupted: the same command measures the rest",
    ]
    assert not [pid for pid, _ in workflow._scan_processes(tmp_path)]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("limit", ["INTERRUPT_S", "OUTAGE_INTERRUPT_S"])
def test_what_ignores_an_interrupt_is_killed_and_not_waited_for_if_it_cannot_cancel_its_jobs(
    tmp_path, monkeypatch, limit
):
    monkeypatch.setattr(workflow, limit, 0.2)
    monkeypatch.setattr(workflow.kill_orphans, "__defaults__", (1.0,))  # seconds of grace
    monitor = Forgets(0, tmp_path) if limit == "OUTAGE_INTERRUPT_S" else None
    if monitor:
        monitor.controller.unreachable, monitor.cancel_all = True, lambda _reason: None
    ignores = "trap '' INT TERM; echo on; sleep 64; sleep 64"
    interrupted = interrupts(tmp_path, signal.SIGINT)
    assert (
        workflow.run_workflow(["bash", "-c", ignores], tmp_path, interrupted, monitor)
        == INTERRUPTED
    )
    assert not [pid for pid, _ in workflow._scan_processes(tmp_path)]


def test_snakemake_is_interrupted_where_the_sweep_is_killed_without_a_word(tmp_path):
    waits = f"trap 'echo told > {tmp_path}/told; exit' INT; echo on > {tmp_path}/on; while :; do sleep 0.05; done"
    code = "import sys; from pathlib import Path; from hpccoll.sweep import workflow; "
    code += (
        f"workflow.run_workflow(['bash', '-c', sys.argv[1]], Path({str(tmp_path)!r}), lambda: None)"
    )
    sweep = subprocess.Popen([sys.executable, "-c", code, waits])
    until = time.monotonic() + LONG_S
    while not (tmp_path / "on").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    sweep.kill()
    sweep.wait()
    while not (tmp_path / "told").exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def starts(out):
    """Return how often Snakemake was started; it may be ended before it says a word."""
    return (out / "logs" / "snakemake.log").read_text().count("\n$ ")


class Forgets:
    """A monitor by whom the jobs of the first so many Snakemakes are forgotten, once there is a file."""

    def __init__(self, times, file):
        self.left, self.file = times, file
        self.ended = ""
        self.controller = Mock(unreachable=False)
        self.outage = False

    def poll(self):
        pass

    @property
    def missed_end(self):
        return self.left > 0 and self.file.exists()

    def restart(self):
        self.left -= 1

    def end(self, reason):
        self.ended = reason


class Refuses(Forgets):
    """A monitor to whom Slurm does not say that the jobs have ended."""

    def restart(self):
        raise BadInputError("Slurm", "squeue", "a controller that answers")


class Outages(Forgets):
    """A monitor whose controller does not answer for a while in the life of each of so many Snakemakes, which fails."""

    def __init__(self, times):
        super().__init__(times, Path())
        self.outage = True
        self.controller = Mock(unreachable=True)
        self.controller.poll.side_effect = lambda: setattr(self.controller, "unreachable", False)
        self.controller.ask.side_effect = lambda: setattr(
            self.controller, "unreachable", self.outage
        )

    missed_end = False

    def restart(self):
        assert not self.controller.unreachable
        super().restart()
        self.outage = self.left > 0


WAITS = "echo on; [ -e {file} ] && exit 5; touch {file}; exec sleep 1000"
FAILS = "echo >> {file}; [ $(wc -l < {file}) -gt %d ] && exit 0; exit 1"
OUTAGES = workflow.MAX_STARTS + 1
SLEEPS = "touch {file}; exec sleep 1000"


@pytest.mark.parametrize(
    ("script", "monitor", "code", "started", "words"),
    [
        (WAITS, lambda file: Forgets(1, file), 5, 2, "it is started again"),
        (
            SLEEPS,
            lambda file: Forgets(100, file),
            -signal.SIGINT,
            workflow.MAX_STARTS,
            "it is ended",
        ),
        (FAILS % OUTAGES, lambda _: Outages(OUTAGES), 0, OUTAGES + 1, "it is started again"),
        (FAILS % 1, lambda file: Forgets(0, file), 1, 1, ""),
        (SLEEPS, lambda file: Refuses(1, file), -signal.SIGINT, 1, "a controller that answers"),
    ],
    ids=[
        "it forgot its jobs",
        "again and again",
        "it failed in outages",
        "it failed without an outage",
        "Slurm is gone",
    ],
)
def test_snakemake_is_started_again_after_what_is_not_its_fault(
    tmp_path, capsys, script, monitor, code, started, words
):
    watch = monitor(tmp_path / "once")
    line = script.format(file=tmp_path / "once")
    assert workflow.run_workflow(["sh", "-c", line], tmp_path, lambda: None, watch) == code
    assert starts(tmp_path) == started
    assert capsys.readouterr().err.strip().endswith(words)
    assert watch.ended == "the sweep ended without it"


def config_of(out, site=None, profile="local"):
    """Return what Snakemake makes of the configuration that it is given, and once more as it gives it to its jobs."""
    command = workflow.snakemake_command(Path("a.yaml"), profile, site, out, [])
    first = parse_config(
        [word for word in command if word.startswith(("out=", "profile=", "site="))]
    )
    again = parse_config([f"{key}={value}" for key, value in first.items()])
    assert first == again
    return first


@pytest.mark.parametrize("name", ["{job}", "'q'", "a\nb", "a: b", "a #b", "\udcff", "a%j", "a\\b"])
def test_a_name_that_snakemake_or_slurm_would_change_is_refused(name):
    with pytest.raises(BadInputError, match="--out"):
        config_of(Path(name), profile="slurm")


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
        lambda name: "/" not in name
    )
)
def test_a_name_is_refused_or_reaches_the_rules_as_it_is(name):
    try:
        found = config_of(Path(name))["out"]
    except BadInputError:
        pass
    else:
        assert Path(found).absolute() == Path(name).absolute()


def test_a_site_file_reaches_the_rules_too_and_the_name_of_a_site_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "2026").write_text("partition: work")
    assert config_of(Path("a"), "2026", "slurm")["site"] == str(tmp_path / "2026")
    assert config_of(Path("a"), "hgx", "slurm")["site"] == "hgx"
