"""A case and a job: the effort of each round, and the valid values of a job file."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases.case import LEAST_ITERATIONS, MAX_ROUNDS, Case, Effort, Job
from hpccoll.cases.catalogue import load_job
from hpccoll.common.errors import BadInputError

efforts = st.builds(
    lambda least, more, rounds: Effort(min_iterations=least, max_iterations=least + more, rounds=rounds),
    st.integers(1, 100), st.integers(0, 1000), st.integers(1, MAX_ROUNDS),
)  # fmt: skip


@given(efforts)
def test_rounds_share_the_effort_of_the_case_and_each_is_enough_for_an_interval(effort):
    one = effort.of_a_round
    assert one.rounds == 1
    assert one.seconds * effort.rounds == pytest.approx(effort.seconds)
    assert one.min_iterations * effort.rounds >= effort.min_iterations
    assert one.max_iterations * effort.rounds >= effort.max_iterations
    assert one.min_iterations >= min(LEAST_ITERATIONS, effort.min_iterations)
    assert (one.warmup, one.precision, one.timeout) == (effort.warmup, effort.precision, effort.timeout)


@given(efforts)
def test_a_round_has_no_more_iterations_than_its_share_unless_its_interval_needs_them(effort):
    one = effort.of_a_round
    assert one.min_iterations <= max(LEAST_ITERATIONS, -(-effort.min_iterations // effort.rounds))
    assert one.max_iterations <= max(one.min_iterations, -(-effort.max_iterations // effort.rounds))


JOB = Job(
    name="mpi.p2", ranks=2, environment={"A": "b"}, communicator={"max_ctas": 4}, variant="a",
    cases=(Case(collective="all_reduce", algorithm="ring", bytes=8, params={"channels": 2}),),
)  # fmt: skip


AGGREGATED = replace(
    JOB, effort=Effort(operations=7),
    cases=(replace(JOB.cases[0], transport="nccl", device="cuda", timing="aggregated"),),
)  # fmt: skip


@pytest.mark.parametrize("job", [JOB, AGGREGATED])
def test_a_job_file_is_read_as_it_was_written(job, tmp_path):
    (tmp_path / "a.json").write_text(job.to_json())
    assert load_job(tmp_path / "a.json") == job


def test_a_job_that_is_read_has_the_digest_of_the_written_one_whether_a_time_is_1_or_1_0(tmp_path):
    job = replace(JOB, effort=Effort(seconds=1))
    (tmp_path / "a.json").write_text(job.to_json())
    assert load_job(tmp_path / "a.json").sha256 == job.sha256 == replace(JOB, effort=Effort(seconds=1.0)).sha256


def test_the_id_of_a_case_has_what_differs_between_the_cases_of_a_job():
    assert JOB.cases[0].id == "all_reduce.ring.mpi.cpu.float32.sum.8B.out.channels=2"
    assert AGGREGATED.cases[0].id == "all_reduce.ring.nccl.cuda.float32.sum.8B.out.channels=2.aggregated"


@pytest.mark.parametrize(
    ("key", "word", "near"),
    [
        ("device", "gpu", "choose from cpu, cuda"), ("collective", "all_reducd", "did you mean all_reduce"),
        ("algorithm", "rinf", "did you mean ring"), ("dtype", "floau32", "did you mean float32"),
        ("transport", "mpj", "choose from mpi"), ("op", "sul", "choose from sum"),
    ],
)  # fmt: skip
def test_a_word_of_a_case_that_is_none_is_refused_with_the_valid_ones(tmp_path, key, word, near):
    (tmp_path / "a.json").write_text(replace(JOB, cases=(replace(JOB.cases[0], **{key: word}),)).to_json())
    with pytest.raises(BadInputError, match=near):
        load_job(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ranks", 10**12), ("ranks", True), ("ranks", "2"), ("nodes", 0), ("aggregators", 99_999_999), ("seed", -1),
        ("name", "../a"), ("name", "a\0"), ("name", "x" * 300), ("variant", "\x1b[31m"), ("table", 7), ("cases", []),
        ("environment", {"A": 7}), ("environment", {"A": "\0"}), ("communicator", [1]), ("rankss", 1),
        ("dedicated_aggregators", 1),
    ],
)  # fmt: skip
def test_an_invalid_value_of_a_job_is_bad_input_by_its_key(key, value, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(json.loads(JOB.to_json()) | {key: value}))
    with pytest.raises(BadInputError, match=f"--job: .*{key}"):
        load_job(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("effort", "seconds", 1e308), ("effort", "max_iterations", 10**9), ("effort", "timeout", "x"),
        ("effort", "precision", 7), ("effort", "warmup", 10**20), ("cases", "bytes", 1 << 60), ("cases", "bytes", -1),
        ("cases", "in_place", 1), ("cases", "root", "x"), ("cases", "params", {"a": [1]}), ("cases", "op", 7),
        ("cases", "algorithm", "x" * 10_000), ("cases", "ranks", 1.5), ("cases", "timing", 7),
        ("effort", "operations", 10**9), ("effort", "operations", 0), ("effort", "rounds", 256),
    ],
)  # fmt: skip
def test_an_invalid_value_of_a_case_or_an_effort_is_bad_input_by_its_key(part, key, value, tmp_path):
    read = json.loads(JOB.to_json())
    (read["cases"][0] if part == "cases" else read[part])[key] = value
    (tmp_path / "a.json").write_text(json.dumps(read))
    with pytest.raises(BadInputError, match=f"--job: .*{part}.*{key}") as caught:
        load_job(tmp_path / "a.json")
    assert len(str(caught.value)) < 1500


def test_a_job_has_each_case_once(tmp_path):
    (tmp_path / "a.json").write_text(replace(JOB, cases=JOB.cases * 2).to_json())
    with pytest.raises(BadInputError, match=f"case: '{JOB.cases[0].id}' is not valid: each case once"):
        load_job(tmp_path / "a.json")


def test_a_job_of_schema_1_is_refused_with_the_version_that_reads_it(tmp_path):
    read = {name: value for name, value in json.loads(JOB.to_json()).items() if name != "schema"}
    (tmp_path / "a.json").write_text(json.dumps(read))
    with pytest.raises(BadInputError, match=r"is of schema 1, .* pip install git"):
        load_job(tmp_path / "a.json")
