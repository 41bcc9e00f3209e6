"""Following Slurm jobs: what is noted of them, which are given up, that none is left; on programs that play Slurm."""

from pathlib import Path

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.store.scheduler_log import ScheduledJob, read_scheduled
from hpccoll.sweep.slurm.job_supervisor import SlurmMonitor
from hpccoll.sweep.slurm.squeue import job_prefix

FACTS = """\
JobId=7 JobName=x JobState={state} Reason={reason} TimeLimit=00:30:00 NodeList=n[1-2] StdOut=/logs/7.log Power=
"""


@pytest.fixture
def slurm(programs, tmp_path):
    """Say what squeue answers: jobs of this directory and of others."""
    programs("scancel")

    def queue(*jobs, facts="RUNNING", reason="None"):
        mine = [f"{number}|{job_prefix(tmp_path)}_uuid|{state}|{why}|rule_measure_wildcards_mpi.n2x1"
                for number, state, why in jobs]  # fmt: skip
        programs("squeue", "\n".join([*mine, "99|hpccoll-other_uuid|RUNNING|None|rule_measure_wildcards_mpi.n2x1", ""]))
        programs("scontrol", FACTS.format(state=facts, reason=reason))

    queue.calls = programs.calls
    return queue


def cancelled(slurm):
    return [call for call in slurm.calls() if call.startswith("scancel")]


def test_the_last_word_on_a_job_is_kept_with_its_log_and_its_limit(slurm, tmp_path):
    monitor = SlurmMonitor(tmp_path)
    slurm(("7", "RUNNING", "None"))
    monitor.poll_now()
    assert [(job.id, job.state) for job in read_scheduled(tmp_path)] == [("7", "RUNNING")]
    slurm(("7", "TIMEOUT", "TimeLimit"), facts="TIMEOUT", reason="TimeLimit")
    monitor.poll_now()
    slurm()  # squeue forgets it
    monitor.poll_now()
    (job,) = read_scheduled(tmp_path)
    assert job == ScheduledJob(
        job="mpi.n2x1", id="7", state="TIMEOUT", hosts="n[1-2]", limit="00:30:00", log="/logs/7.log"
    )
    assert job.description == "TIMEOUT: it reached its time limit of 00:30:00; Slurm job 7, log /logs/7.log"


def test_a_job_that_fails_is_printed_once_and_at_once_and_jobs_of_earlier_sweeps_are_not(slurm, tmp_path, capsys):
    slurm(("6", "FAILED", "None"), ("7", "RUNNING", "None"))
    monitor = SlurmMonitor(tmp_path)
    monitor.poll_now()
    assert capsys.readouterr().err == ""
    slurm(("6", "FAILED", "None"), ("7", "NODE_FAIL", "None"), ("8", "COMPLETED", "None"), facts="NODE_FAIL")
    monitor.poll_now()
    monitor.poll_now()
    assert capsys.readouterr().err == (
        "hpccoll: mpi.n2x1: NODE_FAIL: one of its nodes failed; Slurm job 7, log /logs/7.log\n"
    )


def raise_broken_pipe(_text):
    raise BrokenPipeError


def test_a_job_that_ended_while_no_sweep_watched_is_not_printed_and_a_broken_stderr_ends_nothing(
    slurm, tmp_path, capsys, monkeypatch
):
    slurm(("7", "RUNNING", "None"))
    SlurmMonitor(tmp_path).poll_now()
    slurm(("7", "TIMEOUT", "None"), ("8", "RUNNING", "None"), facts="TIMEOUT")
    later = SlurmMonitor(tmp_path)
    later.poll_now()
    assert capsys.readouterr().err == ""
    slurm(("8", "NODE_FAIL", "None"), facts="NODE_FAIL")
    monkeypatch.setattr("sys.stderr.write", raise_broken_pipe)
    later.poll_now()
    assert [job.state for job in read_scheduled(tmp_path)] == ["TIMEOUT", "NODE_FAIL"]


def test_a_job_that_waits_for_a_lost_node_is_given_up_and_one_that_waits_its_turn_is_not(slurm, tmp_path, capsys):
    waiting = ("7", "PENDING", "ReqNodeNotAvail, UnavailableNodes:n3"), ("8", "PENDING", "Priority")
    slurm(*waiting, facts="PENDING", reason="ReqNodeNotAvail,_UnavailableNodes:n3")
    patient, hasty = SlurmMonitor(tmp_path), SlurmMonitor(tmp_path, pending_limit_s=0)
    patient.poll_now()
    patient.poll_now()
    assert cancelled(slurm) == []
    hasty.poll_now()
    assert cancelled(slurm) == ["scancel 7"]
    words = {job.id: job.description for job in read_scheduled(tmp_path)}
    assert capsys.readouterr().err == f"hpccoll: mpi.n2x1: {words['7']}\n"
    assert words["7"].startswith("CANCELLED: it was cancelled (it was pending for 0 s; Slurm's reason: ReqNodeNotAvail")
    slurm(("7", "CANCELLED", "None"), ("8", "PENDING", "Priority"))
    hasty.poll_now()
    assert "pending for 0 s" in read_scheduled(tmp_path)[0].description  # Slurm knows no better


def test_a_job_that_does_not_end_is_reported(slurm, tmp_path):
    slurm(("7", "RUNNING", "None"))
    with pytest.raises(BadInputError, match="Slurm jobs: '7' is not valid: ended 0 s after"):
        SlurmMonitor(tmp_path).cancel_and_wait("it is over", seconds=0)


def test_every_job_is_cancelled_once_and_waited_for(slurm, tmp_path, monkeypatch):
    slurm(("7", "RUNNING", "None"), ("8", "COMPLETED", "None"))

    def pass_by(_seconds):
        state = (
            "COMPLETING" if "COMPLETING" not in Path(tmp_path / "programs" / ".squeue.0").read_text() else "CANCELLED"
        )
        slurm(("7", state, "None"))

    monkeypatch.setattr("time.sleep", pass_by)
    assert SlurmMonitor(tmp_path).cancel_and_wait("the sweep was interrupted") == ["Slurm job 7 (mpi.n2x1, running)"]
    assert cancelled(slurm) == ["scancel 7"]
    assert "(the sweep was interrupted)" in read_scheduled(tmp_path)[0].description


@pytest.mark.parametrize(
    ("reason", "given_up"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:n3", True), ("ReqNodeNotAvail, Reserved for maintenance", False),
        ("PartitionTimeLimit", True), ("QOSMaxWallDurationPerJobLimit", True), ("AssocMaxCpuPerJobLimit", True),
        ("QOSMaxJobsPerUserLimit", False), ("JobHeldUser", False), ("JobHeldAdmin", True), ("Resources", False),
    ],
)  # fmt: skip
def test_jobs_are_given_up_for_what_only_people_end(slurm, tmp_path, reason, given_up):
    slurm(("7", "PENDING", reason), facts="PENDING", reason=reason)
    SlurmMonitor(tmp_path, pending_limit_s=0).poll_now()
    assert bool(cancelled(slurm)) == given_up


def test_a_job_that_slurm_is_clearing_away_has_ended_and_is_not_cancelled(slurm, tmp_path, monkeypatch):
    slurm(("7", "COMPLETING", "None"), facts="COMPLETING")
    monkeypatch.setattr(
        "time.sleep", lambda _seconds: slurm(("7", "TIMEOUT", "TimeLimit"), facts="TIMEOUT", reason="TimeLimit")
    )
    monitor = SlurmMonitor(tmp_path)
    monitor.end("the sweep ended without it")
    assert cancelled(slurm) == []
    assert [job.state for job in read_scheduled(tmp_path)] == ["TIMEOUT"]


def test_how_a_job_really_ended_is_more_than_that_we_cancelled_it(slurm, tmp_path, monkeypatch):
    slurm(("7", "RUNNING", "None"))
    monkeypatch.setattr("time.sleep", lambda _seconds: slurm(("7", "NODE_FAIL", "None"), facts="NODE_FAIL"))
    SlurmMonitor(tmp_path).end("the sweep was interrupted")
    assert [job.state for job in read_scheduled(tmp_path)] == ["NODE_FAIL"]


@pytest.mark.parametrize(("age", "noticed"), [(20, 160), (500, 240), (10_000, 300)])  # seconds
def test_snakemake_that_does_not_notice_the_end_of_its_jobs_is_noticed(slurm, tmp_path, monkeypatch, age, noticed):
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monitor = SlurmMonitor(tmp_path)
    slurm()
    monitor.poll_now()
    now += 10_000
    monitor.poll_now()
    assert not monitor.missed_end  # nothing has been submitted yet
    slurm(("7", "RUNNING", "None"))
    monitor.poll_now()
    slurm(("7", "PREEMPTED", "None"), facts="PREEMPTED")
    now += age
    monitor.poll_now()
    assert not monitor.missed_end  # it has just ended
    now += noticed - 1
    monitor.poll_now()
    assert not monitor.missed_end
    now += 2
    monitor.poll_now()
    assert monitor.missed_end
    monitor.restart()
    monitor.poll_now()
    now += 10_000
    monitor.poll_now()
    assert not monitor.missed_end  # the next Snakemake has submitted nothing


UP, DOWN = ("Slurmctld(primary) at head is " + state for state in ("UP", "DOWN"))


def test_a_job_that_the_controller_lost_before_anybody_saw_it_is_not_waited_for(slurm, programs, tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    slurm()
    monitor = SlurmMonitor(tmp_path, every_s=5)
    monitor.poll_now()
    for answer, forgotten in ((UP, False), (DOWN, False), (DOWN, False), (UP, False), (UP, True)):
        programs("scontrol", answer)
        now += 20
        monitor.poll()
        assert monitor.missed_end == forgotten
    monitor.restart()
    now += 1000
    monitor.poll()
    assert not monitor.missed_end


def test_nodes_that_are_down_after_an_outage_are_no_reason_to_give_up_at_once(slurm, programs, tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    slurm(("7", "PENDING", "PartitionDown"), facts="PENDING", reason="PartitionDown")
    monitor = SlurmMonitor(tmp_path, pending_limit_s=60)
    for answer in [DOWN, *[UP] * 14]:
        programs("scontrol", answer)
        now += 20
        monitor.poll()
    assert cancelled(slurm) == []
    for _ in range(10):
        now += 20
        monitor.poll()
    assert cancelled(slurm)


def test_a_controller_that_is_gone_is_asked_for_no_jobs(slurm, programs, tmp_path, monkeypatch, capsys):
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    slurm()
    monitor = SlurmMonitor(tmp_path)
    programs("scontrol", DOWN)
    now += 60
    monitor.poll()
    monitor.cancel_all("the sweep was interrupted")
    monitor.end("the sweep was interrupted")
    assert {*slurm.calls()} == {"scontrol ping"}
    assert "the next sweep cancels" in capsys.readouterr().err
