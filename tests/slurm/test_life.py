"""The life of a sweep on real Slurm. Ranks, hosts, disks and people fail it; what was measured stays.

The faults are injected by fault_drills.py, whose fixtures hold the outcome of each drill.
"""

import re
import sys

import pytest
from cli_runner import ENVIRONMENT
from sweep_sandbox import CASES

from hpccoll.analysis.wire_bandwidth import add_headers
from hpccoll.cases.plan import CPUS_ON_NODE, Plan
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results
from hpccoll.store.scheduler_log import read_scheduled
from hpccoll.sweep.site_file import Site

pytest_plugins = ("fault_drills",)
pytestmark = [pytest.mark.slurm, pytest.mark.sweep]


def test_a_nested_sweep_is_complete_and_knows_where_it_was(success):
    sandbox, first, *_ = success
    assert first.code == 0, first.err
    assert "8 of 8 cases" in first.out
    results = read_results([sandbox.out])
    assert {(row.job, row.nodes, row.ranks, row.kind, row.status) for row in results.rows} == {
        ("mpi.n4x1", n, n, "measured on a testbed", "ok") for n in (2, 4)
    }
    assert len(results.rows) == 8
    raw = hdf5.read_raw_file(sandbox.out / "raw" / "mpi.n4x1.h5")
    hosts = [[place.host for place in attempt.places] for attempt, _ in raw.attempts]
    assert hosts == [sandbox.nodes[:2], sandbox.nodes]
    assert "COMPLETED" in sandbox.status().out


def test_as_many_bytes_cross_the_wire_as_the_ring_needs(success):
    sandbox, *_ = success
    rows = [
        r for r in read_results([sandbox.out]).rows if (r.algorithm, r.bytes) == ("ring", 1 << 20)
    ]
    assert [row.nodes for row in rows] == [2, 4]
    for row in rows:
        assert row.wire_bytes_predicted == 2 * (row.nodes - 1) * row.bytes
        assert row.wire_bytes_measured == pytest.approx(
            add_headers(row.wire_bytes_predicted, 9000), rel=0.04
        )


def test_a_second_sweep_submits_nothing(success):
    _, _, second, (same, new, jobs) = success
    assert second.code == 0, second.err
    assert (same, new, jobs) == (True, set(), 1)


@pytest.mark.long
def test_plain_snakemake_measures_and_reports_alike(plain):
    sandbox, result = plain
    assert result.code == 0, result.err
    plan = Plan.load(sandbox.out / "plan.json")
    planned = {(job.name, case.id, 2, "ok") for job in plan.jobs for case in job.cases}
    measured = {
        (row.job, row.case_id, row.nodes, row.status) for row in read_results([sandbox.out]).rows
    }
    assert measured == planned
    assert len(measured) == 4
    assert "<html" in sandbox.page


def test_separate_scaling_has_a_job_for_each_size_and_one_rank_is_one(separate):
    sandbox, result = separate
    assert result.code == 0, result.err
    assert sorted((job.job, job.state) for job in read_scheduled(sandbox.out)) == [
        ("mpi.n1x1", "COMPLETED"),
        ("mpi.n2x1", "COMPLETED"),
    ]
    there = sorted((row.job, row.nodes, row.ranks) for row in read_results([sandbox.out]).rows)
    assert there == [("mpi.n1x1", 1, 1)] * 4 + [("mpi.n2x1", 2, 2)] * 4


def test_a_killed_rank_is_named_and_what_was_measured_stays(killed_rank):
    sandbox, first, job, status, kept, page = killed_rank
    log = str(sandbox.out / "logs" / "slurm" / "rule_measure" / "mpi.n2x1" / f"{job}.log")
    assert (first.code, status.code) == (3, 3)
    for text in (status.out, page):
        assert "failed" in text
        assert sandbox.nodes[1] in text
        assert f"Slurm job {job}" in text
        assert log in text
    assert 2 <= len(kept) < CASES


def test_a_job_signalled_before_its_time_limit_finishes_its_case_and_the_next_continues(
    near_time_limit,
):
    sandbox, first, status, kept, files, second = near_time_limit
    assert (first.code, status.code) == (3, 3)
    assert "stopped by SIGUSR1" in status.out, f"{files}\n{status.out}\n{sandbox.logs()}"
    assert 3 <= len(kept) < CASES
    # srun may end rank 0 before it tidies up
    assert {*files} >= {"mpi.n2x1.h5.journal", "mpi.n2x1.h5.interrupted"}
    assert "mpi.n2x1.h5" not in files
    assert second.code == 0, second.err
    now = sandbox.measured()
    assert kept.items() <= now.items()
    assert (len(now), {attempt for _, attempt in now}) == (CASES, {1, 2})
    assert sorted(path.name for path in sandbox.out.glob("raw/*")) == ["mpi.n2x1.h5"]


@pytest.mark.long
def test_a_job_that_reaches_its_time_limit_is_reported(time_limit):
    sandbox, result = time_limit
    assert result.code == 3, result.err
    (job,) = read_scheduled(sandbox.out)
    assert re.fullmatch(r"00:\d\d:00", job.limit)
    for text in (result.out, sandbox.status().out, sandbox.page):
        assert f"TIMEOUT: it reached its time limit of {job.limit}; Slurm job {job.id}" in text
    assert len(sandbox.measured()) == 1


@pytest.mark.long
def test_a_cancelled_job_is_reported(cancelled):
    sandbox, result = cancelled
    assert result.code == 3, result.err
    for text in (result.out, sandbox.status().out, sandbox.page):
        assert "CANCELLED: it was cancelled" in text
    assert len(sandbox.measured()) >= 2


def test_a_dead_host_is_reported_and_cases_that_do_not_need_it_are_measured(dead_worker):
    sandbox, result = dead_worker
    see_that_a_host_was_lost(sandbox, result)
    assert [(job.job, job.state) for job in read_scheduled(sandbox.out)] == [  # one after the other
        ("mpi.n2x1", "NODE_FAIL"),
        ("mpi.n1x1", "COMPLETED"),
    ]
    assert len(sandbox.measured("mpi.n1x1")) == CASES


@pytest.mark.long
def test_the_host_of_the_batch_script_may_die_too(dead_batch_host):
    see_that_a_host_was_lost(*dead_batch_host)


def see_that_a_host_was_lost(sandbox, result):
    assert result.code == 3, result.err
    for text in (result.out, sandbox.status().out, sandbox.page):
        assert "NODE_FAIL: one of its nodes failed" in text
    assert 2 <= len(sandbox.measured()) < CASES


def test_a_job_whose_node_is_gone_does_not_wait_for_ever(job_without_a_node):
    sandbox, result, queue = job_without_a_node
    assert result.code == 0, result.err
    assert list(queue.values()) == ["CANCELLED"]
    (job,) = read_scheduled(sandbox.out)
    assert (
        "CANCELLED: it was cancelled (it was pending for 1 s; Slurm's reason: " in job.description
    )


def test_what_a_drained_node_and_the_partition_cannot_give_is_planned_away(separate):
    sandbox, result = separate
    assert result.code == 0, result.err
    results = read_results([sandbox.out])
    assert {(row.nodes, row.status) for row in results.rows} == {(1, "ok"), (2, "ok")}
    reasons = {gap.reason for gap in results.skipped}
    has = "partition separate has 4 nodes, 1 of them down or drained"
    assert reasons == {f"4 ranks on 4 nodes: {has}", f"8 ranks on 8 nodes: {has}"}
    assert has in sandbox.page


@pytest.mark.long
def test_ranks_that_start_alone_are_reported_at_once(no_pmi):
    sandbox, result, page = no_pmi
    status = sandbox.status()
    assert (result.code, status.code) == (3, 3)
    for text in (result.out, status.out, page):
        assert text.count("MPI_COMM_WORLD has one rank; use the launcher of MPICH") == 1
        assert "the MPI library supports --mpi=pmi2" in text
    assert not list(sandbox.out.glob("raw/*.h5*l"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        (
            "none",
            [
                "MPI_COMM_WORLD has one rank; use the launcher of MPICH",
                "the MPI library supports --mpi=pmi2",
            ],
        ),
        # Of MPICH, whose words are lost where srun ends before they come.
        ("pmix", ["Exited with exit code ", "the MPI library supports --mpi=pmi2"]),
        ("template", ["2 ranks: 2 on ", "requested: 2 ranks on 2 nodes, 1 on each of "]),
    ],
)
def test_misplaced_ranks_are_reported_at_once(wrong_launchers, launcher, words):
    code, status, journals = wrong_launchers[launcher]
    assert (code, status.code, journals) == (2, 3, [])
    (line,) = [line for line in status.out.splitlines() if "not run: 4 cases" in line]
    assert [word for word in words if word not in line] == []


@pytest.mark.long
def test_every_part_of_a_sweep_may_be_killed_and_nothing_is_lost(kills):
    sandbox, results = kills
    assert results["left by both"] == 1
    assert results["left by Snakemake"] == results["left by Ctrl-C"] == (0, 0)
    for which in ("third", "interrupted"):
        assert results[which].code == 3, results[which].err
        assert results[which].out.splitlines()[-1] == "report: results/s/report/index.html"
    assert "CANCELLED: it was cancelled (the sweep was interrupted)" in results["status"].out, (
        results["status"]
    )
    assert "ended an orphan of an earlier sweep: Slurm job" in results["third"].err
    assert results["last"].code == 0, results["last"].err
    assert len(sandbox.measured()) == 22


@pytest.mark.long
def test_a_killed_controller_is_reported_and_awaited_and_nothing_is_lost(no_controller):
    sandbox, results, kept = no_controller
    assert "jobs that run go on" in results["outage"]
    assert results["interrupted"].code == 3, results["interrupted"].err
    assert (
        "the sweep was interrupted: the same command measures the rest"
        in results["interrupted"].err
    )
    assert "the next sweep cancels the jobs" in results["interrupted"].err
    assert results["last"].code == 0, results["last"].err
    assert "answers again" in results["last"].err
    now = sandbox.measured()
    assert kept.items() <= now.items()
    assert (len({case for case, _ in now}), len(now)) == (CASES, CASES)


@pytest.mark.long
def test_a_full_disk_is_reported_and_the_sweep_continues_once_there_is_space(full_disk):
    sandbox, first, status, kept, second = full_disk
    assert (first.code, status.code) == (3, 3), first.err
    assert "No space left on device" in status.out
    assert second.code == 0, second.err
    assert kept.items() <= sandbox.measured().items()
    assert len(sandbox.measured()) == CASES


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("partition", ["partition", "'nowhere'", "bad_input", "work"]),
        ("account", ["account", "'gold'", "keeps no accounts"]),
        ("key", ["site.yaml", "partitoin", "partition, account"]),
        ("PATH", ["Slurm: no scontrol on PATH"]),
        # it refuses, or takes its time on a busy machine
        ("controller", ["Slurm: no controller answers"]),
    ],
)
def test_bad_input_takes_one_line(bad_input, what, words):
    sandbox, results, queue = bad_input
    assert results[what].is_bad_input(*words)
    assert not sandbox.out.exists()
    assert queue == {}


def test_ranks_count_each_other_before_anything_is_measured(testbed):
    result = testbed.run(
        "srun", "-N2", "-n2", "--mpi=pmi2", sys.executable, "-m", "hpccoll", "run", "--shape", "4x1"
    )
    assert result.code != 0  # 2, unless srun had to end a rank that took its time
    (line,) = [line for line in result.err.splitlines() if line.startswith("hpccoll: ")]
    assert "2 ranks: 1 on n1, 1 on n2" in line
    assert "requested: 4 ranks on 4 nodes, 1 on each" in line


CPUS = f"""
import os
from hpccoll.sweep.slurm.squeue import cpus_of_node
print(cpus_of_node(os.environ["SLURM_JOB_ID"]), "of", os.environ["{CPUS_ON_NODE}"], flush=True)
"""


def test_the_cpus_that_ranks_of_gpus_divide_are_those_of_slurm_and_srun_takes_them(
    testbed, tmp_path
):
    (option,) = re.findall(
        r"--cpus-per-task=.*?\)\)", Site(gpus_per_node="2").rank_launcher().command
    )
    (tmp_path / "cpus.py").write_text(CPUS)
    srun = (
        f"srun --ntasks-per-node=2 {option.format(ranks_per_node=2)} printenv SLURM_CPUS_PER_TASK"
    )
    script = f"#!/bin/bash\n{sys.executable} cpus.py\n{srun}\n"
    options = "--parsable", "--output=%j.log", "--nodes=2", "--ntasks-per-node=2", "--exclusive"
    submitted = testbed.run("sbatch", *options, cwd=tmp_path, stdin=script)
    number = submitted.out.strip()
    assert testbed.end_of(number) == 0, submitted.err
    assert (tmp_path / f"{number}.log").read_text().split("\n") == ["2 of 2", *["1"] * 4, ""]


@pytest.mark.parametrize(
    ("accounts", "account", "refused"),
    [
        ("physics\\nchem\\n", "physics", False),
        ("physics\\nchem\\n", "Physics", False),
        ("My Project (A1)\\n", "My Project (A1)", False),
        ("My Project (A1)\\n", "Project", True),
    ],
)
def test_an_account_of_the_database_is_planned_with(testbed, tmp_path, accounts, account, refused):
    # a testbed has no database
    for name, body in {"sacct": "exit 0", "sacctmgr": 'printf "%b" "$ACCOUNTS"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "site.yaml").write_text(
        f"partition: work\nlauncher: srun --mpi=pmi2\naccount: {account}\n"
    )
    (tmp_path / "sweep.yaml").write_text("algorithms: [ring]\nbytes: 1K\nnodes: 2\n")
    path = f"PATH={tmp_path}:{ENVIRONMENT['PATH']}"
    words = "hpccoll", "plan", "sweep.yaml", "--profile", "slurm", "--site", "site.yaml"
    planned = testbed.run("env", path, f"ACCOUNTS={accounts}", *words, cwd=tmp_path)
    if refused:
        assert planned.is_bad_input("account", account, "an account of yours: My Project (A1)")
    else:
        assert planned.code == 0, planned.err
        assert account in planned.out


def test_lists_of_nodes_of_any_form_are_expanded_by_slurm(testbed):
    names = "node[001-003,010],gpu-[1-2]-[3-4],login"
    program = f"from hpccoll.sweep.slurm.squeue import host_names; print(*host_names('{names}'))"
    expanded = testbed.slurm(sys.executable, "-c", program).split()
    assert expanded == [
        "node001",
        "node002",
        "node003",
        "node010",
        "gpu-1-3",
        "gpu-1-4",
        "gpu-2-3",
        "gpu-2-4",
        "login",
    ]


def test_a_sweep_with_blanks_in_its_names_runs_inside_an_allocation(testbed, tmp_path):
    (tmp_path / "my sweep.yaml").write_text(
        "algorithms: [ring]\nbytes: 1K\nin_place: false\nnodes: 2\n"
        "effort: {min_iterations: 5, max_iterations: 5, seconds: 0.1}\nrounds: 1\n"
    )
    words = "hpccoll", "sweep", "my sweep.yaml", "--profile", "testbed", "--out", "my results/a b"
    outer = "salloc", "--quiet", "-N1", "env", f"PATH={ENVIRONMENT['PATH']}", "SLURM_MEM_PER_CPU=1"
    ended = testbed.run(*outer, *words, cwd=tmp_path)
    assert ended.code == 0, f"{ended.out}\n{ended.err}"
    (row,) = read_results([tmp_path / "my results" / "a b"]).rows
    assert (row.status, row.nodes) == ("ok", 2)
