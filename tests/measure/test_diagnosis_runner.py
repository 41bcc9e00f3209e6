"""A diagnosis by ranks over MPI: each rank is a node of its own, or a rail of one."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from patience import wait

from hpccoll.diagnosis.procedure import ask
from hpccoll.diagnosis.recorded import Question
from hpccoll.measure.diagnose.pair_transfers import BY_RATE, UNKNOWN_RATE, stream_at, timing_of

RANKS = Path(__file__).with_name("diagnosis_ranks.py")
SHORT = {"slot_s": 0.01}
"""Slots of a test: what they measure is noise, but all of it."""


@pytest.fixture
def diagnose(mpiexec, tmp_path):
    """Run a diagnosis by ranks; return the process, and what it left."""

    def diagnose(nodes, **options):
        out = tmp_path / "out.json"
        ended = mpiexec(len(nodes), RANKS, out, json.dumps({"nodes": nodes, **SHORT, **options}))
        return ended, json.loads(out.read_text()) if out.exists() else None

    return diagnose


def rows(result):
    """Yield the purpose, the partners and the seconds of each slot that was measured."""
    for purpose, partners, seconds in result["measured"]:
        yield from zip(
            [purpose] * len(seconds), np.array(partners), np.array(seconds), strict=False
        )


def question_of(result):
    asked = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in result["question"].items()
    }
    return Question(**asked)


@pytest.mark.mpi
def test_the_slots_are_those_that_the_procedure_asks_for_and_their_times_give_the_diagnosis(
    diagnose,
):
    ended, result = diagnose([*"abcdefgh"])
    assert ended.returncode == 0, ended.stderr
    for _, partners, seconds in rows(result):
        rests = partners == np.arange(8)
        assert np.isnan(seconds[rests]).all()
        assert (seconds[~rests] > 0).all()
    recorded = iter(result["measured"])

    def replay(slots):
        purpose, partners, seconds = next(recorded)
        assert (slots.purpose, slots.partners.tolist()) == (purpose, partners)
        return np.array(seconds)

    found = ask(question_of(result), replay)
    assert next(recorded, None) is None
    assert found.slots == result["diagnosis"]["slots"] == sum(1 for _ in rows(result))
    assert found.noise == result["diagnosis"]["noise"]
    assert {*result["provenance"]["core_waits"]} == {*"abcdefgh"}
    assert all(0 <= share <= 1 for share in result["provenance"]["core_waits"].values())


@pytest.mark.mpi
def test_rank_0_does_in_its_transfers_what_all_others_do_and_nothing_else(diagnose):
    ended, _ = diagnose([*"abcd"], polls=True, links=False)
    assert ended.returncode == 0, ended.stderr
    polls = re.findall(r"polls of rank (\d): (.*)", ended.stdout)
    assert sorted(rank for rank, _ in polls) == [*"0123"]
    assert {of_rank for _, of_rank in polls} == {'[["arrived_order", "advance"]]'}


@pytest.mark.mpi
def test_ranks_of_a_node_are_rails_which_transfer_among_themselves(diagnose):
    racks = {"a": "one", "b": "one", "c": "two", "elsewhere": "two"}
    _, result = diagnose([*"aabbcc"], racks=racks, expected_bytes_per_s=1e9, together=True)
    question = question_of(result)
    assert (question.hosts, question.rails, question.racks) == (
        ("a", "b", "c"),
        2,
        ("one", "one", "two"),
    )
    assert question.expected_s == result["load"]["bytes"] / 1e9
    assert result["load"]["together"]
    for _, partners, seconds in rows(result):
        assert (partners // 3 == np.arange(6) // 3).all()
        assert (np.isfinite(seconds) == (partners != np.arange(6))).all()


@pytest.mark.mpi
def test_the_time_of_a_direction_is_that_of_its_messages(diagnose):
    _, result = diagnose([*"ab"], fault=[0, 0, "sends slowly"])
    slow, fast = np.median([seconds for *_, seconds in rows(result)], axis=0)
    assert slow > 2 * fast  # 10 ms more
    (fault,) = result["diagnosis"]["faults"]
    suspects = [
        (part["kind"], *part["where"])
        for explanation in fault["candidates"]
        for part in explanation
    ]
    assert ("send", 0) in suspects
    assert ("send", 1) not in suspects


@pytest.mark.mpi
def test_a_rank_that_stops_is_named_and_nothing_is_left_of_the_launch(diagnose):
    ended, result = diagnose([*"abcd"], fault=[2, 5, "stops"])
    assert ended.returncode == 3
    found = [fault["component"] for fault in result["diagnosis"]["faults"]]
    assert [each["where"] for each in found if each["kind"] == "hung"] == [[2]]
    assert "c" in result["provenance"]["unfinished"]
    missed = [
        {"abcd"[k] for k in np.flatnonzero(np.isinf(seconds))} for _, _, seconds in rows(result)
    ]
    assert result["sent"][2] == 6  # none to a rank that may have died: some libraries die of it
    first, second, *others = filter(None, missed)
    assert (first & second, others) == ({"c"}, [])  # it misses twice, and is not asked again
    assert f"{' and '.join(sorted(first))} have not answered" in ended.stderr
    wait(
        lambda: not [pid for pid in result["pids"] if Path(f"/proc/{pid}").exists()],
        "a rank is left",
    )


@pytest.mark.mpi
def test_slots_that_last_longer_than_a_deadline_of_short_ones_are_waited_for(diagnose):
    ended, result = diagnose(
        [*"ab"], slot_s=3.0, leader_limit_s=1.0, fault=[1, 6, "is interrupted"]
    )
    assert ended.returncode == 0, ended.stderr
    seconds = np.array([seconds for *_, seconds in rows(result)])
    assert seconds.size
    assert np.isfinite(seconds).all()


@pytest.mark.mpi
def test_an_answer_after_its_slot_is_not_taken_for_one_of_another_slot(diagnose):
    ended, result = diagnose([*"abcd"], fault=[2, 5, "answers late"])
    assert ended.returncode == 0, ended.stderr
    seconds = np.array([seconds for *_, seconds in rows(result)])
    assert np.isinf(seconds).sum() == 2
    assert not (seconds[np.isfinite(seconds)] > 1e5).any()
    assert result["provenance"]["unfinished"] == []
    assert "hung" not in [fault["component"]["kind"] for fault in result["diagnosis"]["faults"]]


@pytest.mark.mpi
def test_a_rank_that_is_only_late_ends_its_transfer_and_the_launch_ends_as_others(diagnose):
    ended, result = diagnose([*"abcd"], fault=[2, 5, "pauses"])
    assert ended.returncode == 0, ended.stderr
    assert np.isinf([seconds for *_, seconds in rows(result)]).sum() == 2
    assert result["provenance"]["unfinished"] == []
    assert "hung" not in [fault["component"]["kind"] for fault in result["diagnosis"]["faults"]]


@pytest.mark.mpi
def test_rank_0_that_stops_at_the_end_is_waited_for_no_longer_than_in_a_slot(diagnose):
    ended, result = diagnose(
        [*"abc"], leader_stops=True, leader_limit_s=5.0, fault=[1, 5, "is interrupted"]
    )
    assert ended.returncode
    assert "rank 0 on a, which leads the diagnosis, does not answer" in ended.stderr
    assert result["measured"]  # it was kept


@pytest.mark.mpi
@pytest.mark.parametrize("report", ["large", "unreadable"])
def test_no_report_of_a_rank_costs_the_verdict(diagnose, report):
    ended, result = diagnose([*"abc"], report=report)
    assert ended.returncode == 0, ended.stderr
    assert result["diagnosis"]
    assert result["provenance"]["unfinished"] == []
    assert ("the report of rank 1 is unreadable" in ended.stderr) == (report == "unreadable")


@pytest.mark.mpi
def test_a_rank_that_dies_costs_none_of_the_slots_that_were_measured(diagnose):
    ended, result = diagnose([*"abcd"], fault=[2, 12, "dies"])
    assert ended.returncode
    assert result["diagnosis"] is None
    assert sum(1 for _ in rows(result)) >= 5  # without those that choose the stream


@pytest.mark.mpi
def test_a_transfer_that_fails_in_mpi_is_one_that_is_not_answered(diagnose):
    ended, result = diagnose([*"abcd"], fault=[2, 5, "fails"])
    assert ended.returncode == 3, ended.stderr
    assert np.isinf([seconds for *_, seconds in rows(result)]).sum() == 2
    assert "c" in result["provenance"]["unfinished"]
    assert "a transfer failed" in ended.stderr


@pytest.mark.mpi
def test_an_answer_that_is_not_waited_for_is_still_received(diagnose):
    ended, _ = diagnose([*"abcd"], fault=[2, 5, "reports an error", 3])
    assert "c with d: the GPU is lost" in ended.stderr
    assert "an answer is forgotten" not in ended.stdout


@pytest.mark.mpi
def test_a_rank_that_stops_while_it_measures_alone_is_named_and_the_others_have_their_rates(
    diagnose,
):
    ended, result = diagnose([*"abcd"], machines=True, stops_alone=2)
    assert ended.returncode == 3, ended.stderr
    found = [fault["component"] for fault in result["diagnosis"]["faults"]]
    assert [each["where"] for each in found if each["kind"] == "hung"] == [[2]]
    assert result["rates"]
    for seconds in result["rates"].values():
        assert np.isnan(seconds).all(axis=0).tolist() == [False, False, True, False]


@pytest.mark.mpi
@pytest.mark.parametrize("who", [0, 2])
def test_a_rank_that_stops_before_the_first_order_is_named(diagnose, who):
    ended, result = diagnose([*"abc"], stops_early=who)
    assert ended.returncode
    assert result is None
    assert f"rank {who} does not answer 1 s after the others" in ended.stderr
    assert "the launch ends by MPI_Abort" in ended.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("who", [0, 2])
def test_an_error_of_a_rank_alone_is_kept_with_its_text_and_the_others_have_their_rates(
    diagnose, who
):
    ended, result = diagnose([*"abc"], machines=True, fails_alone=who, device="cpu")
    assert ended.returncode == 0, ended.stderr
    assert result["provenance"]["transfer_errors"] == [
        {"hosts": ["abc"[who]], "why": "MemoryError: the GPU is full"}
    ]
    for seconds in result["rates"].values():
        assert np.flatnonzero(np.isnan(seconds).all(axis=0)).tolist() == [who]
    assert "the driver of GPUs is asked" not in ended.stdout  # a sick one may hang


@pytest.mark.mpi
def test_a_host_whose_gpu_does_not_answer_is_named_and_diagnosed_over_mpi(diagnose):
    ended, result = diagnose([*"abc"], gpu_hangs=2)
    assert ended.returncode == 0, ended.stderr
    assert result["provenance"]["transfer_errors"] == [
        {"hosts": ["c"], "why": "it does not answer"}
    ]
    assert result["load"]["program"] == "MPI"
    assert result["diagnosis"]


@pytest.mark.mpi
def test_a_signal_to_any_rank_ends_a_diagnosis_with_the_slots_that_it_has(diagnose):
    ended, result = diagnose([*"abcd"], fault=[2, 5, "is interrupted"])
    assert ended.returncode == 0, ended.stderr
    assert result["diagnosis"] is None
    ((_, partners, seconds),) = result["measured"]
    assert 0 < len(seconds) < len(partners)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("nodes", "boots", "line"),
    [
        ("aaa", False, "launch: a diagnosis takes two nodes at least; the ranks: 3 on a"),
        (
            "aab",
            False,
            "launch: a diagnosis takes as many ranks on each node; the ranks: 2 on a, 1 on b",
        ),
        ("aba", True, "launch: several nodes are called a; a diagnosis names nodes"),
    ],
)
def test_ranks_that_cannot_be_diagnosed_are_refused_on_all_of_them_in_one_line(
    diagnose, nodes, boots, line
):
    ended, result = diagnose([*nodes], boots=boots)
    assert result is None
    assert sorted(ended.stdout.splitlines()) == [f"rank {k}: {line}" for k in range(3)]


def test_pauses_of_the_receiver_hardly_change_the_time_of_a_message():
    arrivals = np.arange(40) * 0.01
    assert timing_of([*arrivals]).seconds == pytest.approx(0.01)
    late = np.where((arrivals > 0.3) & (arrivals < 0.35), 0.35, arrivals)  # five come at once
    assert timing_of([*late]).seconds == pytest.approx(0.01, rel=1e-3)
    # connecting took 5 s
    assert timing_of([0.0, 5.0, *(arrivals[2:] + 5)]).seconds == pytest.approx(0.01)


def test_a_time_takes_enough_messages():
    assert math.isnan(timing_of([0.0, 0.1, 0.2]).seconds)


def test_what_changes_within_a_stream_is_half_of_the_logarithm_of_the_change():
    arrivals = [*np.arange(40) * 0.01]
    arrivals += [arrivals[-1] + 0.02 * k for k in range(1, 31)]
    timing = timing_of(arrivals)
    assert timing.change == pytest.approx(math.log(2) / 2, rel=0.1)
    assert 0.01 < timing.seconds < 0.02


def test_pairs_send_more_where_the_network_is_faster():
    assert stream_at(math.nan) == UNKNOWN_RATE
    assert [stream_at(rate) for rate in (50e9, 12.5e9, 1.25e9, 125e6, 12.5e6)] == [
        stream for _, stream in BY_RATE
    ]
