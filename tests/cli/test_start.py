"""MPI as it starts and ends: ranks that never come are not waited for as long as the job may last."""

import faulthandler
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from namespaces import PROGRAM, unshared

from hpccoll.common.errors import BadInputError
from hpccoll.measure import mpi_startup
from hpccoll.sweep.child_process import root_cause

LATE = Path(__file__).with_name("late_ranks.py")
STOPPED = Path(__file__).with_name("stopped_ranks.py")
LITTLE = ("-a", "null", "-b", "8", "-e", "8", "-n", "1")


@pytest.fixture(scope="module")
def late(mpiexec):
    """What came of two ranks of which one is late as MPI starts, of two as it ends, and of two as
    rank 0 writes the results; all wait at the same time."""
    with ThreadPoolExecutor() as pool:
        launched = {
            when: pool.submit(mpiexec, 2, LATE, when, *LITTLE)
            for when in ("starts", "ends", "writes")
        }
    return {when: launch.result() for when, launch in launched.items()}


@pytest.mark.mpi
def test_a_rank_that_never_comes_ends_the_others_who_say_what_they_wait_in(late):
    cause = "a rank waited too long for the others in MPI_Init, MPI_Finalize or at the end: Timeout (0:00:04)!"
    assert (late["starts"].returncode != 0, root_cause(late["starts"].stderr.splitlines())) == (
        True,
        cause,
    )


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("when", "words"), [("writes", "Timeout (0:00:04)!"), ("ends", "Alarm clock")]
)
def test_a_rank_that_never_writes_the_results_or_never_ends_is_not_waited_for(late, when, words):
    ended = late[when]
    assert ended.returncode != 0
    assert "null" in ended.stdout  # it has come to the end
    assert words in ended.stdout + ended.stderr


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("rank", "command", "line"),
    [
        (2, ["diagnose"], "r0 | rank 2 does not answer "),
        (0, ["run", *LITTLE], "r1 | rank 0 does not answer "),
    ],
)
def test_a_rank_that_stops_before_its_first_call_is_named_when_the_launch_ends(
    mpiexec, rank, command, line
):
    ended = mpiexec(4, STOPPED, rank, "after", *command)
    assert ended.returncode == 3, ended.stderr
    (named,) = [each for each in ended.stderr.splitlines() if each.startswith(line)]
    assert named.endswith("; the launch ends by MPI_Abort")
    assert ("; the others are on n[0-1], n3;" in named) == (rank == 2)
    assert not ended.stdout


@pytest.mark.mpi
def test_a_rank_that_is_late_is_named_once_and_waited_for(mpiexec, tmp_path):
    ended = mpiexec(2, STOPPED, 1, tmp_path / "named", "run", *LITTLE)
    assert ended.returncode == 0, ended.stderr
    (named,) = [line for line in ended.stderr.splitlines() if "MPI_Init" in line]
    assert named.startswith("r0 | rank 1 does not answer ")
    assert named.endswith("; the others are on n0")
    assert "null" in ended.stdout


@pytest.mark.mpi
def test_rank_0_says_that_mpi_init_waits_for_a_rank_that_does_not_come(mpiexec):
    ended = mpiexec(2, STOPPED, 1, "before", "run", *LITTLE)
    assert ended.returncode
    assert "r0 | MPI_Init has not returned after 1 s" in ended.stderr


def test_seconds_that_are_none_are_refused_by_the_name_of_their_variable(monkeypatch):
    monkeypatch.setenv(mpi_startup.START_TIMEOUT_VARIABLE, "soon")
    with pytest.raises(
        BadInputError, match="HPCCOLL_START_S: 'soon' is not valid: a number of seconds above 0"
    ):
        mpi_startup.start_deadline()


def test_what_a_watchdog_watches_has_no_limit_and_what_follows_has(monkeypatch):
    calls = []
    monkeypatch.setattr(
        faulthandler, "dump_traceback_later", lambda *_, **__: calls.append("limit")
    )
    monkeypatch.setattr(mpi_startup, "cancel_deadline", lambda: calls.append("none"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its own
    with suppress(RuntimeError), mpi_startup.StopSignal().measuring():
        calls.append("watched")
        raise RuntimeError
    assert calls == ["none", "watched", "limit"]


@pytest.mark.parametrize(
    ("ranks", "size", "warned"),
    [(2, "2m", True), (4, "16m", True), (2, "64m", False), (1, "2m", False)],
)
def test_small_shared_memory_is_named_before_mpich_dies_of_it(
    require,
    mpiexec,  # noqa: ARG001
    ranks,
    size,
    warned,
):
    check = f"mpiexec -n {ranks} {PROGRAM} run --check"
    ended = unshared(require, ["-m"], f"mount -t tmpfs -o size={size} tmpfs /dev/shm && {check}")
    warning = [
        line for line in ended.err.splitlines() if line.startswith("# shared memory: /dev/shm has ")
    ]
    assert bool(warning) == warned, ended.err
    if warned:
        assert "--shm-size" in warning[0]
    else:
        assert ended.code == 0, ended.err
