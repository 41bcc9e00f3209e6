"""tests/benchmarks/diagnose.py: faults that are drawn, what a verdict is worth, and times that are resampled."""

import json
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from simulated_machine import Environment, SimulatedMachine, components

sys.path.append(str(Path(__file__).parent / "benchmarks"))

from diagnose import HEALTHY, ONE, TWO, Run, Score, Setting, read_records, runs_of
from resampled_times import BLOCK, RecordedTimes, ResampledTimes, UsedUpError

from hpccoll.analysis.diagnosis.procedure import complete, diagnose
from hpccoll.analysis.diagnosis.recorded import MeasuredSlots, Recorder
from hpccoll.analysis.diagnosis.records import Component, Slots

SETTING = Setting(16, 100, 4, "none")
NODES = 16
SLOW = Component("send", (3,))


def recorded(faults=(), runs=12):
    """Return the times of diagnoses of one simulated machine."""
    machine = SimulatedMachine(NODES, Environment(), faults, np.random.default_rng(1))
    recorders = [Recorder(machine.measure) for _ in range(runs)]
    for seed, recorder in enumerate(recorders):
        complete(diagnose(NODES, seed=seed), recorder)
    return RecordedTimes(recorder.measured for recorder in recorders)


@pytest.fixture(scope="module")
def healthy():
    return recorded()


def replay(times, seed):
    return complete(diagnose(NODES, seed=100 + seed), ResampledTimes(times, np.random.default_rng(seed)).measure)


def test_replays_of_a_healthy_machine_are_healthy_and_those_of_a_slow_node_name_it(healthy):
    assert [components(replay(healthy, seed)) for seed in range(5)] == [set()] * 5
    slow = recorded([(SLOW, 15)])
    assert [components(replay(slow, seed)) for seed in range(5)] == [{SLOW}] * 5


def test_a_pair_has_its_own_transfers_in_both_directions_and_none_of_them_twice(healthy):
    partners = np.tile(np.arange(NODES)[::-1], (15, 1))
    partners[:, [0, NODES - 1]] = [0, NODES - 1]  # they rest
    seconds = ResampledTimes(healthy, np.random.default_rng(2)).measure(Slots(partners, "screen"))
    assert np.array_equal(np.isnan(seconds), partners == np.arange(NODES))
    one, other = np.log(seconds[:, [1, NODES - 2]]).T
    known = healthy.pairs[1, NODES - 2].deviations
    transfers = [np.flatnonzero(np.isclose(known[:, 1] - known[:, 0], gap)).tolist() for gap in other - one]
    assert len({index for (index,) in transfers}) == 15


def test_a_pair_without_further_transfers_is_an_error(healthy):
    many = np.tile(np.arange(NODES)[::-1], (1 + len(healthy.pairs[0, NODES - 1].times), 1))
    with pytest.raises(UsedUpError, match="record more runs"):
        ResampledTimes(healthy, np.random.default_rng(3)).measure(Slots(many, "screen"))


def test_slots_follow_one_another_in_blocks_of_one_run():
    length = BLOCK + 4
    swapped = Slots(np.tile([1, 0], (length, 1)), "screen")
    runs = [[MeasuredSlots(swapped, np.exp(np.tile(run + np.arange(length), (2, 1)).T))] for run in (0.0, 100.0, 200.0)]
    asked = Slots(np.tile([1, 0], (2 * BLOCK, 1)), "screen")
    seconds = ResampledTimes(RecordedTimes(runs), np.random.default_rng(4)).measure(asked)
    for block in np.split(np.log(seconds[:, 0]), 2):
        assert np.diff(block) == pytest.approx(np.ones(BLOCK - 1))


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
    assert {fault.component.kind for (fault,) in drawn(few, 1)} == {"node", "send", "receive", "link"}
    assert {fault.component.kind for pair in drawn(few, 2) for fault in pair} == {"node"}


def named(kind, *hosts, rack=None, candidates=()):
    return {"kind": kind, "where": hosts, "rack": rack, "rail": None, "candidates": candidates}


NODE = [("node", [2], 12.5)]
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
        ([("link", [1, 11], 15)], [named("link", "n2", "n12")], (True, False, False)),
        ([("rack", [1], 15)], [named("rack", "n5", "n6", "n7", "n8", rack="rack2")], (True, False, False)),
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
    runs = runs_of(Namespace(faults=4, two=2, healthy=3, seed=43))
    assert Counter(run.sort for run in runs) == {ONE: 4, TWO: 2, HEALTHY: 3}
    for shard in (1, 2):
        records = [json.dumps(run._asdict()) + "\n" for run in runs[shard - 1 :: 2]]
        records[-1] = records[-1][: -10 * shard]
        (tmp_path / f"{shard}-of-2.jsonl").write_text("".join(records))
    missing = {*runs} - read_records(tmp_path, runs).keys()
    assert missing == {runs[-1], runs[-2]}
    assert not read_records(tmp_path, [Run(HEALTHY, 0, 44)])
