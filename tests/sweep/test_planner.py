"""The plan: jobs, cases and what is left out, known before anything runs."""

import json
from dataclasses import replace

import pytest
from cli_runner import invoke
from planning_inputs import CLUSTER, TEXT, begin
from synthetic_timings import measured_table

from hpccoll.cases.case import Case, Job
from hpccoll.cases.catalogue import load_job
from hpccoll.cases.plan import Plan
from hpccoll.common.errors import BadInputError
from hpccoll.measure.port_traffic import PASS_S, SETTLE_S
from hpccoll.schedule import COLLECTIVES
from hpccoll.schedule.registry import power_of_two
from hpccoll.sweep.execution_site import ExecutionSite
from hpccoll.sweep.planner import SAMPLE_S, check_output_directory, estimate_seconds, write_plan


@pytest.fixture
def picky():
    """An algorithm that a power of two of ranks can run."""
    family = COLLECTIVES["all_reduce"]
    family("picky", needs=[power_of_two])(family.algorithms["ring"].program)
    yield
    del family.algorithms["picky"]


def test_a_job_is_a_number_of_ranks_and_its_cases_are_the_product(planned):
    plan = planned()
    assert [(job.name, job.ranks, job.seed, len(job.cases)) for job in plan.jobs] == [
        ("mpi.p2", 2, 4, 8),
        ("mpi.p3", 3, 4, 8),
    ]
    assert len({case.id for job in plan.jobs for case in job.cases}) == 8
    assert [plan.launcher.line(*job.shapes) for job in plan.jobs] == [
        "mpiexec -n 2 hpccoll",
        "mpiexec -n 3 hpccoll",
    ]


def test_the_table_of_auto_is_in_the_plan_and_its_jobs_and_no_other_file_is_needed(
    planned, tmp_path
):
    file = tmp_path / "t.json"
    file.write_text(json.dumps(measured_table({"ring": {8: 1e-6}}).to_json()))
    plan = planned(TEXT + f"algorithms: [auto, native]\ntable: {file}")
    write_plan(plan, tmp_path / "out")
    table = json.loads(file.read_text())
    file.unlink()
    assert Plan.load(tmp_path / "out" / "plan.json") == plan
    assert load_job(tmp_path / "out" / "jobs" / "mpi.p2.json").table == table


@pytest.mark.usefixtures("picky")
def test_a_case_that_cannot_run_is_skipped_with_the_reason(planned):
    plan = planned("algorithms: [ring, picky]\nbytes: 8\nin_place: false\nranks: [2, 3]")
    assert [(skip.job, skip.reason) for skip in plan.skips] == [
        ("mpi.p3", "picky of all_reduce needs a power-of-two number of workers")
    ]
    assert [len(job.cases) for job in plan.jobs] == [2, 1]
    alone = planned("algorithms: picky\nbytes: 8\nranks: [2, 3]")
    assert [job.name for job in alone.jobs] == ["mpi.p2"], "a job without cases is not started"


def test_on_one_node_there_is_one_mapping_and_between_nodes_the_job_sees(planned, on_cluster):
    plan = planned(
        "algorithms: ring\nbytes: 8\nin_place: false\nranks: 2\nmapping: [block, cyclic]"
    )
    assert [case.mapping for case in plan.jobs[0].cases] == ["block"]
    assert [skip.reason for skip in plan.skips] == [
        "mapping cyclic numbers these ranks as block does: all on one node"
    ]
    plan = on_cluster(
        "algorithms: ring\nbytes: 8\nin_place: false\nnodes: [1, 2]\nmapping: [block, cyclic]"
    )
    assert [(case.nodes, case.mapping) for case in plan.jobs[0].cases] == [
        (1, "block"),
        (2, "block"),
        (2, "cyclic"),
    ]


def test_the_time_for_a_diagnosis_grows_with_the_nodes_if_single_links_are_asked_for(on_cluster):
    def added(nodes, section):
        plain, diagnosed = (
            on_cluster(CLUSTER.replace("[1, 2, 4, 6]", nodes) + more).estimated_s
            for more in ("", f"diagnose: {section}")
        )
        return diagnosed - plain

    assert 0 < added("2", "{}") == pytest.approx(added("4", "{links: false}"))
    assert added("4", "{links: true}") > added("2", "{links: true}") > added("2", "{}")
    assert added("[1, 2]", "{}") == pytest.approx(added("2", "{}"))


def test_the_estimate_counts_the_pass_that_counts_bytes_between_nodes(on_cluster):
    one, two = (on_cluster(CLUSTER.replace("[1, 2, 4, 6]", nodes)).estimated_s for nodes in "12")
    # and the start of another node
    assert two - one == pytest.approx(4 * (PASS_S + SETTLE_S), abs=0.1)


def test_the_estimate_grows_with_the_nodes_that_start_and_with_what_rank_0_records():
    cases = tuple(
        Case(collective="all_reduce", algorithm="ring", bytes=4 * n) for n in range(1, 11)
    )
    job = Job(name="mpi", ranks=16, nodes=2, cases=cases)
    large = replace(job, ranks=65536, nodes=8192)
    records = replace(
        large, effort=replace(job.effort, max_iterations=10 * job.effort.max_iterations)
    )
    small_s, large_s, records_s = map(estimate_seconds, (job, large, records))
    assert large_s > small_s + 60
    assert records_s - large_s == pytest.approx(9 * len(cases) * 65536 * 1000 * SAMPLE_S)


def test_a_directory_takes_more_jobs_and_no_other_ones(planned, tmp_path):
    write_plan(first := planned(), tmp_path / "out")
    begin(first.jobs[0], tmp_path / "out")
    check_output_directory(planned(TEXT + "ranks: [2, 3, 4]"), tmp_path / "out")
    with pytest.raises(BadInputError, match=r"mpi\.p2 .*\(sizes: 8 B.* before, 16 B now\)"):
        check_output_directory(planned(TEXT + "bytes: 16"), tmp_path / "out")


def test_a_plan_says_where_the_end_of_the_sizes_is_not_reached(planned):
    sizes = "algorithms: ring\nranks: 2\nbytes: {from: 1K, to: 1M, factor: "
    assert planned(sizes + "8}").notes == (
        "the largest size is 512 KiB: the factor 8 does not reach 1 MiB",
    )
    assert not planned(sizes + "4}").notes


def test_a_plan_of_this_machine_says_that_it_has_no_gpu_for_cases_on_some(planned, tmp_path):
    jobs = planned(TEXT + "devices: [cpu, cuda]\n").jobs
    count = sum(case.device == "cuda" for job in jobs for case in job.cases)
    (note,) = ExecutionSite.local().notes(jobs, tmp_path)
    assert note == f"{count} cases on GPUs will be skipped on this machine: no CUDA device"
    assert not list(ExecutionSite.local().notes(planned().jobs, tmp_path))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    assert "no CUDA device" not in " ".join(ExecutionSite.local().notes(jobs, tmp_path))


def test_plan_as_json_is_the_plan_and_the_evidence_of_its_jobs(planned, tmp_path):
    plan = planned()
    fields = json.loads(invoke("plan", tmp_path / "some.yaml", "--json").out)
    assert fields.pop("evidence").keys() == {job.name for job in plan.jobs}
    assert fields == json.loads(plan.to_json())


@pytest.mark.parametrize("command", ["plan", "sweep"])
def test_an_output_that_cannot_be_written_takes_one_line(command, planned, tmp_path):
    planned()
    out = tmp_path / "some.yaml" / "below"
    assert invoke(command, tmp_path / "some.yaml", "--out", out).is_bad_input(
        "--out", out, "cannot be written"
    )


def test_a_plan_that_could_not_be_read_again_is_not_written(planned, tmp_path, monkeypatch):
    monkeypatch.setattr("hpccoll.sweep.planner.JOB_BYTES", 1000)
    with pytest.raises(BadInputError, match=r"its plan has .* at most 1000 B"):
        write_plan(planned(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
