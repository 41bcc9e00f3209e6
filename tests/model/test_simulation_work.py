"""The work of simulations: messages as they are counted, memory that grows with actions, and the time left."""

import pytest

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.requested_schedule import requested_schedule
from hpccoll.model import simulation_work
from hpccoll.model.simulation_work import RemainingTime, ScheduleWork
from hpccoll.model.traffic import Traffic
from hpccoll.schedule import Layout

RANKS = 64
ALGORITHMS = [
    (family, name)
    for family in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")
    for name, algorithm in collective(family).components.items()
    if not algorithm.aggregates
]


def schedule(family, name, ranks=RANKS):
    return requested_schedule(name, family, Layout.of(ranks, 4), parameters={}).slices[0]


@pytest.mark.parametrize(("family", "name"), ALGORITHMS)
def test_messages_are_counted_from_a_few_ranks_and_those_without_a_peer_only_add_to_them(family, name):
    of = schedule(family, name)
    counted, work = len(Traffic.of(of).source), ScheduleWork.of(of)
    if of.vectorised:
        assert work.messages >= counted
    else:
        assert work.messages == pytest.approx(counted, rel=0.3)


@pytest.mark.parametrize("name", ["ring", "recursive_doubling", "rabenseifner", "direct", "torus"])
def test_messages_are_exact_where_all_ranks_do_the_same(name):
    of = schedule("all_reduce", name)
    assert ScheduleWork.of(of).messages == len(Traffic.of(of).source)


@pytest.mark.parametrize("name", ["ring", "recursive_doubling"])
def test_the_first_of_many_steps_stand_for_as_many_as_are_declared(name, monkeypatch):
    of = schedule("all_reduce", name)
    whole = ScheduleWork.of(of)
    monkeypatch.setattr(simulation_work, "SAMPLED_STEPS", 3)
    part = ScheduleWork.of(of, collective("all_reduce").algorithm(name).declared(RANKS).rounds)
    assert part.messages == whole.messages
    assert part.wave_s == pytest.approx(whole.wave_s, rel=0.1)


def test_longer_schedules_take_longer_and_steps_of_many_messages_more_memory():
    ring, doubling, direct = (ScheduleWork.of(schedule("all_reduce", name)) for name in
                              ("ring", "recursive_doubling", "direct"))  # fmt: skip
    assert ring.wave_s > 5 * doubling.wave_s
    assert direct.nbytes > 10 * ring.nbytes
    assert ScheduleWork.of(schedule("all_reduce", "direct", 2 * RANKS)).nbytes > 3.9 * direct.nbytes


def test_the_time_left_is_what_was_expected_until_simulations_have_run_and_then_follows_their_pace(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(simulation_work, "monotonic", lambda: now[0])
    left = RemainingTime([1000.0, 3000.0])
    left.begin()
    assert left.seconds() == pytest.approx(4000)
    now[0] = 2000.0  # half as fast as expected
    assert left.seconds(1.0) == pytest.approx(6000, rel=0.02)
    left.begin()
    now[0] += 3000.0
    assert left.seconds(0.5) == pytest.approx(3000, rel=0.02)
    now[0] += 3000.0
    assert left.seconds(1.0) == 0
