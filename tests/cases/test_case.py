"""A case and a job: the effort of each round, the names of cases, and the valid values of a job file."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases.case import LEAST_ITERATIONS, MAX_ROUNDS, Case, Effort, Job
from hpccoll.cases.catalogue import load_job
from hpccoll.common.errors import BadInputError


@given(st.integers(1, 100), st.integers(0, 1000), st.integers(1, MAX_ROUNDS))
def test_rounds_share_the_effort_of_a_case_and_each_is_enough_for_an_interval(least, more, rounds):
    effort = Effort(min_iterations=least, max_iterations=least + more, rounds=rounds)
    one, share, most = effort.of_a_round, -(-least // rounds), -(-(least + more) // rounds)
    assert one.seconds * rounds == pytest.approx(effort.seconds)
    assert (
        max(share, min(LEAST_ITERATIONS, least))
        <= one.min_iterations
        <= max(LEAST_ITERATIONS, share)
    )
    assert most <= one.max_iterations <= max(one.min_iterations, most)
    assert (one.rounds, one.warmup, one.precision) == (1, effort.warmup, effort.precision)


JOB = Job(
    name="mpi.p2",
    ranks=2,
    environment={"A": "b"},
    communicator={"max_ctas": 4},
    variant="a",
    effort=Effort(seconds=1),
    cases=(
        Case(
            collective="all_reduce",
            algorithm="ring",
            bytes=8,
            params={"channels": 2},
            timing="aggregated",
            transport="nccl",
            device="cuda",
        ),
    ),
)


def test_a_job_file_is_read_as_it_was_written_and_has_one_digest_whether_a_time_is_1_or_1_0(
    tmp_path,
):
    (tmp_path / "a.json").write_text(JOB.to_json())
    assert load_job(tmp_path / "a.json") == JOB
    assert JOB.sha256 == replace(JOB, effort=Effort(seconds=1.0)).sha256


def test_the_id_of_a_case_has_what_differs_between_the_cases_of_a_job():
    assert JOB.cases[0].id == "all_reduce.ring.nccl.cuda.float32.sum.8B.out.channels=2.aggregated"
    assert replace(
        JOB.cases[0], root=1, params={}, in_place=True, ranks=4, nodes=2, mapping="block"
    ).id == ("all_reduce.ring.nccl.cuda.float32.sum.8B.in.root1.p4.n2.block.aggregated")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ranks", 10**12),
        ("ranks", True),
        ("nodes", 0),
        ("aggregators", 99_999_999),
        ("seed", -1),
        ("name", "../a"),
        ("name", "x" * 300),
        ("variant", "\x1b[31m"),
        ("table", 7),
        ("cases", []),
        ("environment", {"A": "\0"}),
        ("communicator", [1]),
        ("rankss", 1),
        ("executor", "c"),
        ("effort.seconds", 1e308),
        ("effort.max_iterations", 10**9),
        ("effort.precision", 7),
        ("effort.warmup", 10**20),
        ("effort.operations", 0),
        ("effort.rounds", 256),
        ("cases.bytes", 1 << 60),
        ("cases.in_place", 1),
        ("cases.root", "x"),
        ("cases.params", {"a": [1]}),
        ("cases.algorithm", "x" * 10_000),
        ("cases.ranks", 1.5),
    ],
)
def test_an_invalid_value_of_a_job_is_bad_input_by_its_key(key, value, tmp_path):
    read = json.loads(JOB.to_json())
    part, _, name = key.rpartition(".")
    {"": read, "effort": read["effort"], "cases": read["cases"][0]}[part][name] = value
    (tmp_path / "a.json").write_text(json.dumps(read))
    with pytest.raises(BadInputError, match=f"--job: .*{part}.*{name}") as caught:
        load_job(tmp_path / "a.json")
    assert len(str(caught.value)) < 1500


def test_a_job_has_each_case_once(tmp_path):
    (tmp_path / "a.json").write_text(replace(JOB, cases=JOB.cases * 2).to_json())
    with pytest.raises(
        BadInputError, match=f"case: '{JOB.cases[0].id}' is not valid: each case once"
    ):
        load_job(tmp_path / "a.json")
