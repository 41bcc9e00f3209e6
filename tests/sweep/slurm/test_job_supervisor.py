"""Supervision of Slurm jobs, on programs that stand in for Slurm: what is recorded, what is cancelled, what is left."""

from types import SimpleNamespace

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.store.scheduler_log import ScheduledJob, read_scheduled
from hpccoll.sweep.slurm.job_supervisor import SlurmMonitor
from hpccoll.sweep.slurm.squeue import job_prefix

FACTS = "JobId=7 JobName=x JobState={} Reason={} TimeLimit=00:30:00 NodeList=n[1-2] StdOut=/logs/7.log Power=\n"
UP, DOWN = ("Slurmctld(primary) at head is " + state for state in ("UP", "DOWN"))


@pytest.fixture
def slurm(programs, tmp_path):
    """Set what squeue lists: jobs of this directory and of others; scontrol describes the first."""
    programs("scancel")

    def queue(*jobs, known=None):
        rows = [
            f"{number}|{job_prefix(tmp_path)}_uuid|{state}|{why}|rule_measure_wildcards_mpi.n2x1"
            for number, state, why in (job if len(job) > 2 else (*job, "None") for job in jobs)
        ]
        programs(
            "squeue",
            "\n".join(
                [*rows, "99|hpccoll-other_uuid|RUNNING|None|rule_measure_wildcards_mpi.n2x1", ""]
            ),
        )
        _, state, reason = known or (*(jobs[0] if jobs else ("7", "RUNNING")), "None")[:3]
        programs("scontrol", FACTS.format(state, reason.replace(" ", "_")))

    queue.calls = programs.calls
    queue.cancelled = lambda: [call for call in programs.calls() if call.startswith("scancel")]
    return queue


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("time.monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def polled(clock, programs):
    """Poll a monitor every 20 s, with these answers of the controller."""

    def polled(monitor, *answers):
        for answer in answers:
            programs("scontrol", answer)
            clock.now += 20
            monitor.poll()
            yield monitor.missed_end

    return polled


def test_the_last_state_of_a_job_is_kept_with_its_log_and_its_limit(slurm, tmp_path):
    monitor = SlurmMonitor(tmp_path)
    # at last squeue has forgotten it
    for jobs in ([("7", "RUNNING")], [("7", "TIMEOUT", "TimeLimit")], []):
        slurm(*jobs)
        monitor.poll_now()
    (job,) = read_scheduled(tmp_path)
    assert job == ScheduledJob(
        job="mpi.n2x1", id="7", state="TIMEOUT", hosts="n[1-2]", limit="00:30:00", log="/logs/7.log"
    )
    assert (
        job.description
        == "TIMEOUT: it reached its time limit of 00:30:00; Slurm job 7, log /logs/7.log"
    )


def test_a_job_that_fails_is_printed_once_and_at_once_and_jobs_of_earlier_sweeps_are_not(
    slurm, tmp_path, capsys, monkeypatch
):
    slurm(("7", "RUNNING"), ("6", "FAILED"))
    monitor = SlurmMonitor(tmp_path)
    monitor.poll_now()
    assert capsys.readouterr().err == ""
    slurm(("7", "NODE_FAIL"), ("6", "FAILED"), ("8", "COMPLETED"), ("9", "RUNNING"))
    monitor.poll_now()
    SlurmMonitor(tmp_path).poll_now()
    monitor.poll_now()
    words = "hpccoll: mpi.n2x1: NODE_FAIL: one of its nodes failed; Slurm job 7, log /logs/7.log\n"
    assert capsys.readouterr().err == words

    def raise_broken_pipe(_text):
        raise BrokenPipeError

    # a terminal that is gone ends nothing
    monkeypatch.setattr("sys.stderr.write", raise_broken_pipe)
    slurm(("9", "NODE_FAIL"))
    monitor.poll_now()
    assert {job.id: job.state for job in read_scheduled(tmp_path)}["9"] == "NODE_FAIL"


def test_a_job_that_waits_for_a_lost_node_is_given_up_and_one_that_waits_its_turn_is_not(
    slurm, tmp_path, capsys
):
    slurm(("7", "PENDING", "ReqNodeNotAvail, UnavailableNodes:n3"), ("8", "PENDING", "Priority"))
    patient, hasty = SlurmMonitor(tmp_path), SlurmMonitor(tmp_path, pending_limit_s=0)
    patient.poll_now()
    patient.poll_now()
    assert slurm.cancelled() == []
    hasty.poll_now()
    assert slurm.cancelled() == ["scancel 7"]
    words = {job.id: job.description for job in read_scheduled(tmp_path)}["7"]
    assert capsys.readouterr().err == f"hpccoll: mpi.n2x1: {words}\n"
    assert words.startswith(
        "CANCELLED: it was cancelled (it was pending for 0 s; Slurm's reason: ReqNodeNotAvail"
    )
    slurm(("7", "CANCELLED"), ("8", "PENDING", "Priority"))
    hasty.poll_now()
    assert "pending for 0 s" in read_scheduled(tmp_path)[0].description  # Slurm knows no better


@pytest.mark.parametrize(
    ("reason", "given_up"),
    [
        ("ReqNodeNotAvail, Reserved for maintenance", False),
        ("PartitionTimeLimit", True),
        ("AssocMaxCpuPerJobLimit", True),
        ("QOSMaxJobsPerUserLimit", False),
        ("JobHeldUser", False),
        ("JobHeldAdmin", True),
        ("Resources", False),
    ],
)
def test_jobs_are_given_up_for_what_only_people_end(slurm, tmp_path, reason, given_up):
    slurm(("7", "PENDING", reason))
    SlurmMonitor(tmp_path, pending_limit_s=0).poll_now()
    assert bool(slurm.cancelled()) == given_up


def test_every_job_is_cancelled_once_and_waited_for(slurm, tmp_path, monkeypatch):
    slurm(("7", "RUNNING"), ("8", "COMPLETED"))
    states = iter(["COMPLETING", "CANCELLED"])
    monkeypatch.setattr("time.sleep", lambda _seconds: slurm(("7", next(states, "CANCELLED"))))
    assert SlurmMonitor(tmp_path).cancel_and_wait("the sweep was interrupted") == [
        "Slurm job 7 (mpi.n2x1, running)"
    ]
    assert slurm.cancelled() == ["scancel 7"]
    assert "(the sweep was interrupted)" in read_scheduled(tmp_path)[0].description


def test_a_job_that_does_not_end_is_reported(slurm, tmp_path):
    slurm(("7", "RUNNING"))
    with pytest.raises(BadInputError, match="Slurm jobs: '7' is not valid: ended 0 s after"):
        SlurmMonitor(tmp_path).cancel_and_wait("it is over", seconds=0)


@pytest.mark.parametrize(
    ("before", "after", "cancelled"),
    [("COMPLETING", "TIMEOUT", []), ("RUNNING", "NODE_FAIL", ["scancel 7"])],
)
def test_how_a_job_really_ended_is_more_than_that_we_cancelled_it(
    slurm, tmp_path, monkeypatch, before, after, cancelled
):
    slurm(("7", before))
    monkeypatch.setattr("time.sleep", lambda _seconds: slurm(("7", after)))
    SlurmMonitor(tmp_path).end("the sweep ended without it")
    assert slurm.cancelled() == cancelled
    assert [job.state for job in read_scheduled(tmp_path)] == [after]


@pytest.mark.parametrize(("age", "noticed"), [(20, 160), (500, 240), (10_000, 300)])  # seconds
def test_snakemake_that_does_not_notice_the_end_of_its_jobs_is_noticed(
    slurm, tmp_path, clock, age, noticed
):
    monitor = SlurmMonitor(tmp_path)

    def missed_end(after_s, *jobs):
        slurm(*jobs)
        clock.now += after_s
        monitor.poll_now()
        return monitor.missed_end

    assert not missed_end(0)
    assert not missed_end(10_000), "nothing has been submitted yet"
    assert not missed_end(0, ("7", "RUNNING"))
    ended = ("7", "PREEMPTED")
    assert [missed_end(seconds, ended) for seconds in (age, noticed - 1, 2)] == [False, False, True]
    monitor.restart()
    assert not missed_end(0, ended)
    assert not missed_end(10_000, ended), "the next Snakemake has submitted nothing"


def test_a_job_that_the_controller_lost_before_anybody_saw_it_is_not_waited_for(
    slurm, tmp_path, clock, polled
):
    slurm()
    monitor = SlurmMonitor(tmp_path, every_s=5)
    monitor.poll_now()
    assert [*polled(monitor, UP, DOWN, DOWN, UP, UP)] == [False] * 4 + [True]
    monitor.restart()
    clock.now += 1000
    assert not any(polled(monitor, UP))


def test_nodes_that_are_down_after_an_outage_are_no_reason_to_give_up_at_once(
    slurm, tmp_path, polled
):
    slurm(("7", "PENDING", "PartitionDown"))
    monitor = SlurmMonitor(tmp_path, pending_limit_s=60)
    assert len([*polled(monitor, DOWN, *[UP] * 14)]) == 15
    assert slurm.cancelled() == []
    assert len([*polled(monitor, *[UP] * 10)]) == 10
    assert slurm.cancelled()


def test_a_controller_that_is_gone_is_asked_for_no_jobs(slurm, tmp_path, polled, capsys):
    slurm()
    monitor = SlurmMonitor(tmp_path)
    assert not any(polled(monitor, DOWN))
    monitor.cancel_all("the sweep was interrupted")
    monitor.end("the sweep was interrupted")
    assert {*slurm.calls()} == {"scontrol ping"}
    assert "the next sweep cancels" in capsys.readouterr().err
