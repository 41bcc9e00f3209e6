"""The work of simulations: messages as they are counted, memory that grows with actions, and the time left."""

import pytest
from predicted_machines import cluster
from simulated_cases import MACHINES_THAT_SHARE, first_case, in_racks

from hpccoll.cases.algorithm_registry import collective
from hpccoll.cases.requested_schedule import requested_schedule
from hpccoll.model import simulation_work
from hpccoll.model.equal_waves import OperationWaves
from hpccoll.model.simulation import AlgorithmSimulation
from hpccoll.model.simulation_work import RemainingTime, ScheduleWork
from hpccoll.model.traffic import Traffic
from hpccoll.model.wave_simulation import CompiledWave, simulate_runs
from hpccoll.schedule import Cut, Layout

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
def test_messages_are_counted_from_a_few_ranks_and_those_without_a_peer_only_add_to_them(
    family, name
):
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
    part = ScheduleWork.of(of, collective("all_reduce").algorithm(name).declared(RANKS).steps)
    assert part.messages == whole.messages
    assert part.waves == whole.waves
    assert part.rank_s == pytest.approx(whole.rank_s, rel=0.1)


def test_longer_schedules_take_longer_and_steps_of_many_messages_more_memory():
    ring, doubling, direct = (
        ScheduleWork.of(schedule("all_reduce", name))
        for name in ("ring", "recursive_doubling", "direct")
    )
    assert ring.seconds(RANKS, 0) > 5 * doubling.seconds(RANKS, 0)
    assert direct.rank_bytes > 10 * ring.rank_bytes
    assert (
        ScheduleWork.of(schedule("all_reduce", "direct", 2 * RANKS)).rank_bytes
        > 1.9 * direct.rank_bytes
    )


@pytest.fixture
def advanced(monkeypatch):
    """Return the list of the ranks of each wave that is simulated."""
    seen, advance = [], CompiledWave.advance

    def counted(self):
        seen.append(len(self.ended))
        advance(self)

    monkeypatch.setattr(CompiledWave, "advance", counted)
    return seen


@pytest.mark.parametrize("machine", ["ports", "nothing"])
@pytest.mark.parametrize("bytes_more", [0, 128, 256 * 128])
@pytest.mark.parametrize("nodes_per_rack", [512, 8, 24])
def test_work_is_of_the_ranks_and_waves_that_are_simulated_for_the_size(
    machine, bytes_more, nodes_per_rack, advanced
):
    """Units may differ by a grain, and the last rack may be smaller."""
    ring = first_case("all_reduce", "ring", in_racks(512, 1, nodes_per_rack))
    cut = Cut(ring.call, (512 * 128 * 80 + bytes_more) // 4, 512, 1, 4)
    waves = OperationWaves(ring.slices, cut)
    simulate_runs(waves, MACHINES_THAT_SHARE[machine], 1, 0.0)
    assert {*advanced} == {waves.block}
    expected = ScheduleWork.of(ring.slices[0]).simulated_waves(waves.block, waves.cycle(0))
    assert len(advanced) / 3 < expected
    if waves.block < 512:  # else they are left out only where latencies do not count
        assert expected < len(advanced) * 3


@pytest.mark.parametrize(
    ("nbytes", "much"), [(2048 * 128 * 80, False), (2048 * 128 * 80 + 128, True)]
)
def test_the_estimate_for_a_size_follows_how_it_is_cut(nbytes, much):
    layout = in_racks(2048, 1, 2048)
    ring = AlgorithmSimulation(
        cluster(),
        "all_reduce",
        "ring",
        {"channels": 1, "window": 1},
        layout.with_aggregators,
        dtype="float32",
    )
    assert (ring.work(nbytes).seconds > 0.5) == much


def test_collectives_without_an_in_place_form_are_estimated_by_the_schedules_that_are_simulated():
    pairwise = AlgorithmSimulation(
        cluster(),
        "all_to_all_v",
        "pairwise",
        {"channels": 1},
        in_racks(64, 1, 64).with_aggregators,
        dtype="float32",
    )
    first, second = (
        pairwise.times(64 * 4096 * times, bounds=["value"]).operation for times in (1, 2)
    )
    assert first.schedules == second.schedules, "what is made of them is made once for all sizes"
    work = pairwise.work(64 * 4096)
    assert work.messages == pytest.approx(len(Traffic.of(first.schedules[0]).source), rel=0.1)
    assert work.pairing_s == 0, "all ranks are paired at once"


def test_the_time_left_is_what_was_expected_until_simulations_have_run_and_then_follows_their_pace(
    monkeypatch,
):
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
