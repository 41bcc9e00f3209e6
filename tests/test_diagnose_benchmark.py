"""tests/benchmarks/diagnose.py: faults that are drawn, what a verdict is worth, and times that are resampled."""

import json
import sys
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_diagnoses import recorded as recorded_diagnosis
from simulated_machine import Environment, SimulatedMachine, components

sys.path.append(str(Path(__file__).parent / "benchmarks"))

import diagnose as bench
from diagnose import (
    HEALTHY,
    MOST_LAUNCHES,
    ONE,
    TWO,
    Run,
    Score,
    Setting,
    is_missing,
    read_records,
    runs_of,
)
from resampled_times import RecordedRun, ResampledTimes, UsedUpError

from hpccoll.diagnosis.diagnosis_file import write_diagnosis
from hpccoll.diagnosis.procedure import complete, diagnose
from hpccoll.diagnosis.recorded import MeasuredSlots, Recorder
from hpccoll.diagnosis.slot_records import Component, Slots

SETTING = Setting(16, 100, 4, "none")
NODES = 16
SLOW = Component("send", (3,))


def recorded(seed, *faults):
    """Return the times of a diagnosis of a simulated machine, and what it found."""
    machine = SimulatedMachine(NODES, Environment(), faults, np.random.default_rng([1, seed]))
    recorder = Recorder(machine.measure)
    found = complete(diagnose(NODES, seed=seed), recorder)
    return RecordedRun(recorder.measured), components(found)


@pytest.fixture(scope="module")
def healthy():
    return [recorded(seed)[0] for seed in range(12)]


def replay(runs, number):
    return components(
        complete(diagnose(NODES, seed=100 + number), ResampledTimes(runs, number).measure)
    )


def test_replays_of_a_healthy_machine_are_healthy_and_those_of_a_slow_node_name_it(healthy):
    assert [replay(healthy, number) for number in range(5)] == [set()] * 5
    slow = [recorded(seed, (SLOW, 15))[0] for seed in range(12)]
    assert [replay(slow, number) for number in range(5)] == [{SLOW}] * 5


@pytest.mark.parametrize("percent", [8, 15])
def test_noise_that_lasts_a_whole_run_alarms_in_replays_as_often_as_in_runs(percent):
    places = np.random.default_rng(2).integers(NODES, size=60).tolist()
    disturbed = [
        [(Component("node", (place,)), percent)] * (number % 4 == 0)
        for number, place in enumerate(places)
    ]
    runs, found = zip(
        *(recorded(number, *faults) for number, faults in enumerate(disturbed)), strict=True
    )
    assert sum(map(bool, found)) == 15
    assert [replay(runs, number) for number in range(len(runs))] == [*found]


def test_a_pair_has_its_own_transfers_in_both_directions_and_none_of_them_twice(healthy):
    pair, run = (1, NODES - 2), healthy[0]
    count = len(run.transfers[pair])
    partners = np.tile(np.arange(NODES), (count, 1))
    partners[:, pair] = pair[::-1]  # the others rest
    seconds = ResampledTimes(healthy, 0).measure(Slots(partners, "screen"))
    assert np.array_equal(np.isnan(seconds), partners == np.arange(NODES))
    deviations = np.log(seconds[:, pair]) - run.levels[:count, None]
    known = np.array([both for _, both in run.transfers[pair]])
    assert np.sort(deviations, axis=0) == pytest.approx(np.sort(known, axis=0))
    assert np.sort(np.diff(deviations), axis=0) == pytest.approx(np.sort(np.diff(known), axis=0))


def test_a_pair_without_further_transfers_is_an_error(healthy):
    recorded = sum(len(run.transfers[0, NODES - 1]) for run in healthy)
    many = np.tile(np.arange(NODES)[::-1], (1 + recorded, 1))
    with pytest.raises(UsedUpError, match="used up"):
        ResampledTimes(healthy, 3).measure(Slots(many, "screen"))
    with pytest.raises(UsedUpError, match="no run"):
        ResampledTimes([], 3)


def test_slots_follow_those_of_one_run_in_their_order_from_the_first_again_after_the_last():
    length = 20
    swapped = Slots(np.tile([1, 0], (length, 1)), "screen")
    runs = [
        RecordedRun([MeasuredSlots(swapped, np.exp(np.tile(run + np.arange(length), (2, 1)).T))])
        for run in (0.0, 100.0, 200.0)
    ]
    asked = Slots(np.tile([1, 0], (length + 4, 1)), "screen")
    seconds = ResampledTimes(runs, 1).measure(asked)
    assert np.log(seconds[:, 0]) == pytest.approx(100 + np.arange(length + 4) % length)


def drawn(setting, faults, numbers=range(40)):
    return [setting.draw(number, faults, np.random.default_rng(number)) for number in numbers]


def test_faults_are_of_all_kinds_on_different_hosts_and_follow_from_the_seed():
    assert drawn(SETTING, 1) == drawn(SETTING, 1)
    kinds = Counter(fault.component.kind for (fault,) in drawn(SETTING, 1, range(60)))
    assert kinds == dict.fromkeys(("node", "send", "receive", "link", "uplink", "rack"), 10)
    assert all(10 <= fault.percent <= 20 for (fault,) in drawn(SETTING, 1))
    for one, other in drawn(SETTING, 2):
        assert not SETTING.members(one.component) & SETTING.members(other.component)
    few = Setting(6, 1000, 0, "none")
    assert {fault.component.kind for (fault,) in drawn(few, 1)} == {
        "node",
        "send",
        "receive",
        "link",
    }
    assert {fault.component.kind for pair in drawn(few, 2) for fault in pair} == {"node"}


def test_rank_0_is_on_each_host_in_turn_and_a_given_loss_of_rate_is_that_of_a_wire():
    setting = Setting(6, 1000, 0, "none", busy=8, slow=40)
    assert [setting.ranks(number)[0] for number in range(7)] == [
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
        "n6",
        "n1",
    ]
    assert all(sorted(setting.ranks(number)) == sorted(setting.ranks(0)) for number in range(7))
    assert {(fault.component.kind, fault.percent) for (fault,) in drawn(setting, 1)} == {
        ("node", 40)
    }
    assert setting.directory != replace(setting, busy=0).directory


def named(kind, *hosts, rack=None, candidates=()):
    return {"kind": kind, "where": hosts, "rack": rack, "rail": None, "candidates": candidates}


NODE = [("node", [2], 12.5)]
LOADED = named("node", "n9") | {"waited_for_core": 0.8}
SEVERAL = named("node", "n3", "n4", candidates=[[named("node", "n3")], [named("node", "n4")]])


@pytest.mark.parametrize(
    ("planted", "verdicts", "score"),
    [
        ([], [], (True, False, False)),
        (NODE, [], (False, False, False)),
        (NODE, [named("node", "n3")], (True, False, False)),
        (NODE, [named("send", "n3")], (False, False, False)),
        (NODE, [named("link", "n3", "n4")], (False, False, True)),
        (NODE, [named("node", "n3"), named("send", "n9")], (False, False, True)),
        (NODE, [SEVERAL], (False, True, False)),
        ([("node", [8], 12.5)], [SEVERAL], (False, False, True)),
        ([], [SEVERAL], (False, False, True)),
        ([], [LOADED], (False, True, False)),
        (NODE, [named("node", "n3"), LOADED], (False, True, False)),
        (NODE, [named("send", "n5"), LOADED], (False, False, True)),
        ([("link", [1, 11], 15)], [named("link", "n2", "n12")], (True, False, False)),
        (
            [("rack", [1], 15)],
            [named("rack", "n5", "n6", "n7", "n8", rack="rack2")],
            (True, False, False),
        ),
        ([("rack", [1], 15)], [named("node", "n5"), named("node", "n7")], (False, False, False)),
        ([("uplink", [1], 15)], [named("node", "n5")], (False, False, True)),
    ],
)
def test_a_verdict_is_exact_or_undecided_or_accuses_something_healthy(planted, verdicts, score):
    found = {"verdicts": verdicts, "complete": True, "too_many": False}
    assert Score.of({"planted": planted, "verdict": found}, SETTING) == score
    assert not Score.of({"planted": planted, "verdict": found | {"complete": False}}, SETTING).exact


def test_a_run_without_a_verdict_is_not_exact():
    assert not Score.of({"planted": [], "verdict": None}, SETTING).exact


def test_shards_share_all_runs_and_a_line_that_was_cut_off_is_measured_again(tmp_path):
    runs = runs_of(Namespace(faults=4, two=2, healthy=3, seed=43, slow=None))
    assert Counter(run.sort for run in runs) == {ONE: 4, TWO: 2, HEALTHY: 3}
    for shard in (1, 2):
        records = [json.dumps(run._asdict()) + "\n" for run in runs[shard - 1 :: 2]]
        records[-1] = records[-1][: -10 * shard]
        (tmp_path / f"{shard}-of-2.jsonl").write_text("".join(records))
    missing = {*runs} - read_records(tmp_path, runs).keys()
    assert missing == {runs[-1], runs[-2]}
    assert not read_records(tmp_path, [Run(HEALTHY, 0, 44)])


CRASHED, ENDED, JUDGED = (
    {"verdict": None, "code": 137},
    {"verdict": None, "code": 3},
    {"verdict": {}, "code": 137},
)


@pytest.mark.parametrize(
    ("records", "missing"),
    [
        ([], True),
        ([JUDGED], False),
        ([ENDED], False),
        ([CRASHED], True),
        ([CRASHED, JUDGED], False),
        ([CRASHED] * (MOST_LAUNCHES - 1), True),
        ([CRASHED] * MOST_LAUNCHES, False),
    ],
)
def test_a_run_whose_launch_failed_is_measured_again_a_few_times(records, missing):
    assert is_missing(records) == missing


@pytest.fixture
def read(tmp_path, monkeypatch, capsys):
    """Write the records of some healthy runs of four, and return the exit code and the lines of what is asked."""
    directory = tmp_path / "8-100mbit"

    def read(*numbers, files=()):
        directory.mkdir()
        verdict = {"verdicts": [], "complete": True, "too_many": False}
        records = [
            {
                **Run(HEALTHY, number, 43)._asdict(),
                "code": 0,
                "seconds": 1.0,
                "planted": [],
                "verdict": verdict,
            }
            for number in numbers
        ]
        (directory / "1-of-1.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in records)
        )
        for number in files:
            write_diagnosis(
                recorded_diagnosis(8, seed=number),
                directory / f"{Run(HEALTHY, number, 43).name}.h5",
            )
        words = [
            "--hosts",
            "8",
            "--faults",
            "0",
            "--two",
            "0",
            "--healthy",
            "4",
            "--bootstrap",
            "6",
        ]
        monkeypatch.setattr(sys, "argv", ["diagnose.py", *words, "--keep", str(tmp_path), "--read"])
        code = bench.main()
        asked = [line for line in capsys.readouterr().out.splitlines() if line.startswith("- ")]
        return code, ["missed" not in line for line in asked]

    return read


def test_what_is_asked_is_reached_only_if_all_runs_are_recorded_and_all_healthy_ones_have_files(
    read,
):
    assert read(0, 1, 2, 3, files=(0, 1, 2, 3)) == (0, [True] * 4)


@pytest.mark.parametrize(
    ("numbers", "files", "reached"),
    [
        ((), (), [False]),
        ((0, 1, 2), (0, 1, 2), [False, True, True, True]),
        ((0, 1, 2, 3), (0, 2, 3), [True, True, False, True]),
        ((0, 1, 2, 3), (), [True, True, False, False]),
    ],
)
def test_records_or_files_that_are_absent_are_counted(read, numbers, files, reached):
    assert read(*numbers, files=files) == (1, reached)
