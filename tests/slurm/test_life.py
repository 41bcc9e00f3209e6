"""The life of a sweep on real Slurm. Ranks, hosts, disks and people fail it; what was measured stays.

The faults are injected by fault_drills.py, whose fixtures hold the outcome of each drill.
"""

import re
import sys

import pytest
from cli_runner import ENVIRONMENT
from sweep_sandbox import CASES

from hpccoll.analysis.wire_bandwidth import add_headers
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results
from hpccoll.store.scheduler_log import read_scheduled
from hpccoll.sweep.site_file import CPUS_ON_NODE, Site

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
    rows = [r for r in read_results([sandbox.out]).rows if (r.algorithm, r.bytes) == ("ring", 1 << 20)]
    assert [row.nodes for row in rows] == [2, 4]
    for row in rows:
        assert row.wire_bytes_predicted == 2 * (row.nodes - 1) * row.bytes
        assert row.wire_bytes_measured == pytest.approx(add_headers(row.wire_bytes_predicted, 9000), rel=0.04)


def test_a_second_sweep_submits_nothing(success):
    _, _, second, (same, new, jobs) = success
    assert second.code == 0, second.err
    assert (same, new, jobs) == (True, set(), 1)


def test_separate_scaling_has_a_job_for_each_size_and_one_rank_is_one(separate):
    sandbox, result = separate
    assert result.code == 0, result.err
    assert sorted((job.job, job.state) for job in read_scheduled(sandbox.out)) == [
        ("mpi.n1x1", "COMPLETED"), ("mpi.n2x1", "COMPLETED"),
    ]  # fmt: skip
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


def test_a_job_signalled_before_its_time_limit_finishes_its_case_and_the_next_continues(near_time_limit):
    sandbox, first, status, kept, files, second = near_time_limit
    assert (first.code, status.code) == (3, 3)
    assert "stopped by SIGUSR1" in status.out, f"{files}\n{status.out}\n{sandbox.logs()}"
    assert 3 <= len(kept) < CASES
    assert {*files} >= {"mpi.n2x1.h5.journal", "mpi.n2x1.h5.interrupted"}  # srun may end rank 0 before it tidies up
    assert "mpi.n2x1.h5" not in files
    assert second.code == 0, second.err
    now = sandbox.measured()
    assert kept.items() <= now.items()
    assert (len(now), {attempt for _, attempt in now}) == (CASES, {1, 2})
    assert sorted(path.name for path in sandbox.out.glob("raw/*")) == ["mpi.n2x1.h5"]


def test_a_dead_host_is_reported_and_cases_that_do_not_need_it_are_measured(dead_worker):
    sandbox, result = dead_worker
    assert result.code == 3, result.err
    for text in (result.out, sandbox.status().out, sandbox.page):
        assert "NODE_FAIL: one of its nodes failed" in text
    assert 2 <= len(sandbox.measured()) < CASES
    assert [(job.job, job.state) for job in read_scheduled(sandbox.out)] == [  # one after the other
        ("mpi.n2x1", "NODE_FAIL"), ("mpi.n1x1", "COMPLETED"),
    ]  # fmt: skip
    assert len(sandbox.measured("mpi.n1x1")) == CASES


@pytest.mark.long
def test_every_part_of_a_sweep_may_be_killed_and_nothing_is_lost(kills):
    sandbox, results = kills
    assert results["left by both"] == 1
    assert results["left by Snakemake"] == results["left by Ctrl-C"] == (0, 0)
    for which in ("third", "interrupted"):
        assert results[which].code == 3, results[which].err
        assert results[which].out.splitlines()[-1] == "report: results/s/report/index.html"
    assert "CANCELLED: it was cancelled (the sweep was interrupted)" in results["status"].out, results["status"]
    assert "ended an orphan of an earlier sweep: Slurm job" in results["third"].err
    assert results["last"].code == 0, results["last"].err
    assert len(sandbox.measured()) == 22


@pytest.mark.long
def test_a_killed_controller_is_reported_and_awaited_and_nothing_is_lost(no_controller):
    sandbox, results, kept = no_controller
    assert "jobs that run go on" in results["outage"]
    assert results["interrupted"].code == 3, results["interrupted"].err
    assert "the sweep was interrupted: the same command measures the rest" in results["interrupted"].err
    assert "the next sweep cancels the jobs" in results["interrupted"].err
    assert results["last"].code == 0, results["last"].err
    assert "answers again" in results["last"].err
    now = sandbox.measured()
    assert kept.items() <= now.items()
    assert (len({case for case, _ in now}), len(now)) == (CASES, CASES)


CPUS = f"""
import os
from hpccoll.sweep.slurm.squeue import cpus_of_node
print(cpus_of_node(os.environ["SLURM_JOB_ID"]), "of", os.environ["{CPUS_ON_NODE}"], flush=True)
"""


def test_the_cpus_that_ranks_of_gpus_divide_are_those_of_slurm_and_srun_takes_them(testbed, tmp_path):
    (option,) = re.findall(r"--cpus-per-task=.*?\)\)", Site(gpus_per_node="2").rank_launcher().command)
    (tmp_path / "cpus.py").write_text(CPUS)
    srun = f"srun --ntasks-per-node=2 {option.format(ranks_per_node=2)} printenv SLURM_CPUS_PER_TASK"
    script = f"#!/bin/bash\n{sys.executable} cpus.py\n{srun}\n"
    options = "--parsable", "--output=%j.log", "--nodes=2", "--ntasks-per-node=2", "--exclusive"
    submitted = testbed.run("sbatch", *options, cwd=tmp_path, stdin=script)
    number = submitted.out.strip()
    assert testbed.end_of(number) == 0, submitted.err
    assert (tmp_path / f"{number}.log").read_text().split("\n") == ["2 of 2", *["1"] * 4, ""]


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
