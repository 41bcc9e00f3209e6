"""The plan: jobs, cases and what is left out, known before anything runs."""

import json

import pytest
from commands import inside

from hpccoll.case import Plan
from hpccoll.errors import BadInputError
from hpccoll.schedule import COLLECTIVES
from hpccoll.schedule.registry import power_of_two
from hpccoll.sweep.plan import check_out, make_plan, write_plan

TEXT = "algorithms: [ring, native]\nbytes: [8, 1K]\nranks: [2, 3]\nseed: 4\n"


@pytest.fixture
def planned(tmp_path):
    def plan(text=TEXT):
        path = tmp_path / "some.yaml"
        path.write_text(text)
        return make_plan(path)

    return plan


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
    assert [plan.launcher.line(*job.shapes) for job in plan.jobs] == ["mpiexec -n 2 hpccoll", "mpiexec -n 3 hpccoll"]


def test_the_same_sweep_file_gives_the_same_plan(planned):
    assert planned() == planned()


def test_values_of_a_parameter_are_cases(planned):
    cases = planned(TEXT + "params: {ring: {channels: [1, 4]}}").jobs[0].cases
    assert {case.params.get("channels") for case in cases if case.algorithm == "ring"} == {1, 4}
    assert {case.params.get("channels") for case in cases if case.algorithm == "native"} == {None}


def test_the_floor_is_measured_in_one_placement(planned):
    cases = planned("algorithms: [null]\nbytes: 8\nranks: 2").jobs[0].cases
    assert len(cases) == 1


def test_a_barrier_has_one_size(planned):
    cases = planned("collectives: barrier\nalgorithms: native\nbytes: [8, 16]\nin_place: false\nranks: 2").jobs[0].cases
    assert len(cases) == 1


@pytest.mark.usefixtures("picky")
def test_a_case_that_cannot_run_is_skipped_with_the_reason(planned):
    plan = planned("algorithms: [ring, picky]\nbytes: 8\nin_place: false\nranks: [2, 3]")
    assert [(skip.job, skip.reason) for skip in plan.skips] == [
        ("mpi.p3", "picky needs a power-of-two number of workers")
    ]
    assert [len(job.cases) for job in plan.jobs] == [2, 1]


@pytest.mark.usefixtures("picky")
def test_a_job_without_cases_is_not_started(planned):
    plan = planned("algorithms: picky\nbytes: 8\nranks: [2, 3]")
    assert [job.name for job in plan.jobs] == ["mpi.p2"]


def test_the_estimate_grows_with_the_cases(planned):
    assert planned().estimated_s == pytest.approx(2 * (1.5 + 8 * 0.5))


def test_a_plan_is_read_as_it_was_written(planned, tmp_path):
    plan = planned()
    write_plan(plan, tmp_path / "out")
    assert Plan.load(tmp_path / "out" / "plan.json") == plan
    assert sorted(path.name for path in (tmp_path / "out" / "jobs").iterdir()) == ["mpi.p2.json", "mpi.p3.json"]


def test_a_directory_takes_more_jobs_and_no_other_ones(planned, tmp_path):
    write_plan(planned(), tmp_path / "out")
    check_out(planned(TEXT + "ranks: [2, 3, 4]"), tmp_path / "out")
    with pytest.raises(BadInputError, match=r"--out: .* another directory: mpi\.p2 was measured there"):
        check_out(planned(TEXT + "bytes: 16"), tmp_path / "out")


def test_a_plan_that_is_none_takes_one_line(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    assert inside("status", tmp_path).complains_of("plan", "plan.json", "hpccoll plan")


@pytest.mark.usefixtures("picky")
def test_plan_shows_jobs_cases_skips_and_time(planned, tmp_path):
    planned("algorithms: [ring, picky]\nbytes: 8\nin_place: false\nranks: [2, 3]")
    said = inside("plan", tmp_path / "some.yaml")
    assert said.code == 0
    assert said.out.splitlines() == [
        "some: 3 cases in 2 jobs, 1 cases skipped, at most 4 s",
        "mpi.p2: 2 cases on 2 ranks on 1 node",
        "  mpiexec -n 2 hpccoll run --job ...",
        "mpi.p3: 1 cases on 3 ranks on 1 node",
        "  mpiexec -n 3 hpccoll run --job ...",
        "skipped in mpi.p3: all_reduce.picky.mpi.cpu.float32.sum.8B.out: picky needs a power-of-two number of workers",
    ]
    assert not (tmp_path / "results").exists()


def test_plan_as_json_is_the_plan(planned, tmp_path):
    plan = planned()
    assert json.loads(inside("plan", tmp_path / "some.yaml", "--json").out) == json.loads(plan.to_json())


def test_plan_writes_what_the_jobs_read(planned, tmp_path):
    plan = planned()
    assert inside("plan", tmp_path / "some.yaml", "--out", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "jobs" / "mpi.p3.json").read_text() == plan.jobs[1].to_json()


@pytest.mark.parametrize("command", ["plan", "sweep"])
@pytest.mark.parametrize("out", ["/proc/nowhere", "some.yaml/below"])
def test_an_output_that_cannot_be_written_takes_one_line(command, out, planned, tmp_path, monkeypatch):
    planned()
    monkeypatch.chdir(tmp_path)
    assert inside(command, "some.yaml", "--out", out).complains_of("--out", out, "can be written")


def test_an_unknown_profile_takes_one_line(planned, tmp_path):
    planned()
    assert inside("plan", tmp_path / "some.yaml", "--profile", "mars").complains_of("--profile", "'mars'", "local")
