"""``hpccoll accept --log``: causes that the log proves or excludes, and logs of other runs."""

import json

import pytest
from cli_runner import invoke
from imported_outputs import OUTPUTS
from published_outputs import Call, printed

GIB = 1 << 30
LOW = [Call(size * GIB, 180) for size in (1, 2, 4, 8)]
HEAD = "node-0:31000:31000 [0] NCCL INFO"


@pytest.fixture
def accept(tmp_path):
    """Hold an output of low numbers against its class, with a log."""

    def accepted(*lines, ranks=16, logs=1, calls=LOW):
        (tmp_path / "out.txt").write_text(printed(calls))
        size = f"comm 0x1 rank 0 nRanks {ranks} nNodes 2 localRanks {ranks // 2} localRank 0"
        text = "".join(f"{HEAD} {line}\n" for line in (size, *lines))
        for number in range(logs):
            process = text.replace("31000:31000", f"{number}:{number}")
            (tmp_path / f"{number}.log").write_text(process)
        words = [word for number in range(logs) for word in ("--log", tmp_path / f"{number}.log")]
        return invoke("accept", tmp_path / "out.txt", "--cluster", "8xh100-400g", *words, "--json")

    return accepted


def causes(ended):
    """Return the causes of the largest size."""
    assert ended.code == 3
    return json.loads(ended.out)[-1]["causes"]


def test_without_facts_the_causes_are_those_of_the_symptom(accept):
    first, *_ = causes(accept())
    assert ("ACS" in first["what"], "of what is expected" in first["because"], first["proven"]) == (
        True,
        True,
        False,
    )


def test_what_the_log_proves_comes_first_with_the_fact(accept):
    first, *_ = causes(accept("Using network Socket"))
    assert ("sockets" in first["what"], "Socket" in first["because"], first["proven"]) == (
        True,
        True,
        True,
    )


def test_a_log_of_other_ranks_or_of_several_runs_is_refused_in_one_line(accept):
    assert accept(ranks=8).is_bad_input("--log", "16 ranks", "8 ranks")
    assert accept(logs=2).is_bad_input("--log", "one run")


@pytest.mark.parametrize(
    ("variable", "verdict"), [("DEBUG_SUBSYS", "cannot_tell"), ("ALGO", "pass")]
)
def test_a_ring_that_no_variable_asks_for_is_a_doubt_where_nvls_is_usual(variable, verdict, accept):
    ran = f"AllReduce: {GIB} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..7}}"
    ended = accept(ran, f"NCCL_{variable} set by environment to Ring", calls=[Call(GIB, 360)])
    (row,) = json.loads(ended.out)
    assert (ended.code, row["verdict"], row["expected_from"]) == (
        3 if verdict == "cannot_tell" else 0,
        verdict,
        "model",
    )
    assert ("NCCL_ALGO" in (row["reason"] or "")) == (verdict == "cannot_tell")


def test_calls_of_mpi_are_not_held_against_the_costs_of_nccl():
    ended = invoke(
        "accept", OUTPUTS / "imb_mpi1.txt", "--nodes", 2, "--cluster", "8xh100-400g", "--json"
    )
    rows = json.loads(ended.out)
    assert (ended.code, {row["verdict"] for row in rows}) == (3, {"cannot_tell"})
    assert {row["collective"] for row in rows} >= {"send_recv", "all_reduce"}
    assert all("one of mpi" in row["reason"] for row in rows)
