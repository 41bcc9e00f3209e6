"""Observations: what was done, of which work, and how far its messages go."""

from pathlib import Path

import pytest
from model_observations import SIX_NODES, observation
from raw_examples import attempt, case, job, outcome, raw, times

from hpccoll.cases.case import TIMINGS
from hpccoll.model.observations import observations
from hpccoll.schedule import Layout
from hpccoll.store.raw_results import RankLocation, RawResults


@pytest.mark.parametrize(
    ("collective", "more", "words"),
    [
        ("all_reduce", {}, "all_reduce of 6 ranks on 6 nodes, float32 sum"),
        ("all_reduce", {"about": {"op": "max", "dtype": "float16"}}, "6 nodes, float16 max"),
        ("all_gather", {"about": {"dtype": "int64"}}, "all_gather of 6 ranks on 6 nodes, int64"),
        ("all_reduce", {"layout": Layout((0, 1, 2), rack=(0, 0, 1))}, "3 nodes in 2 racks, float32"),
        ("all_reduce", {"layout": Layout.of(3, 1, aggregators=2)}, "3 nodes, 2 aggregators, float32"),
        ("broadcast", {}, "float32, root 0"),
        ("send_recv", {"peer": 4}, "float32, ranks 0 and 4"),
        ("all_to_all_v", {"traffic": "uniform"}, "float32, traffic uniform"),
        ("multi_pair", {}, "float32, 3 pairs at once"),
        ("multi_pair", {"concurrent": 1}, "float32, 1 pair at once"),
    ],
)
def test_what_is_compared_is_of_one_call_on_as_many_ranks(collective, more, words):
    assert words in observation(collective, "native", 1024, 1.0, **more).work.text


def test_an_observation_knows_how_far_its_messages_go():
    pairs = Layout.of(4, 2)
    racks = Layout((0, 1, 2, 3), rack=(0, 0, 1, 1))
    assert observation("all_reduce", "ring", 8, 1.0, SIX_NODES).tiers == {"rack"}
    assert observation("all_reduce", "ring", 8, 1.0, pairs).tiers == {"node", "rack"}
    assert observation("all_reduce", "ring", 8, 1.0, racks).tiers == {"rack", "fabric"}
    assert observation("all_reduce", "ring", 8, 1.0, Layout.of(1)).tiers == frozenset()
    assert observation("send_recv", "ping_pong", 8, 1.0, pairs).tier == "rack"
    assert observation("send_recv", "ping_pong", 8, 1.0, pairs, peer=1).tier == "node"
    assert observation("multi_pair", "exchange", 8, 1.0, pairs).tier == "rack"
    assert observation("multi_pair", "exchange", 8, 1.0, Layout.of(4)).tier == "node"
    assert observation("multi_pair", "exchange", 8, 1.0, racks).tier == "fabric"
    mixed = Layout((0, 0, 0, 1))
    assert observation("multi_pair", "exchange", 8, 1.0, mixed).tiers == {"node", "rack"}
    assert observation("multi_pair", "exchange", 8, 1.0, mixed, concurrent=1).tier == "node"


def test_aggregators_count_where_they_take_part():
    layout = Layout((0, 0, 1), aggregators=1)
    assert observation("all_reduce", "sharp_emulated", 8, 1.0, layout).tiers == {"node", "rack"}
    assert observation("all_reduce", "ring", 8, 1.0, layout).tiers == {"node"}


def test_its_name_has_the_parameters_that_were_requested():
    assert observation("all_reduce", "torus", 8, 1.0, rows=2).name == "torus rows=2"


def test_only_single_operations_are_observed():
    cases = [case(timing=timing, device="cuda", transport="nccl") for timing in TIMINGS]
    several = raw(*(outcome(one) for one in cases))
    assert len([*observations(several)]) == 1


def test_training_steps_are_not_observed():
    step = case(collective="training_step", in_place=True, params={"model": "gpt2"})
    assert len([*observations(raw(outcome(step), outcome(case())))]) == 1


@pytest.mark.parametrize("more", [{"status": "failed"}, {"floor": True}, {"bytes": 0}])
def test_failed_and_empty_ones_are_not_observed(more):
    assert [*observations(raw(outcome(**more)))] == []


def test_it_has_the_rounds_and_the_cpus_of_the_first_node():
    places = tuple(
        RankLocation(host=f"n{me}", node=me // 2, clock=0, pid=me, affinity=affinity)
        for me, affinity in enumerate(("0-1,4", "1", "8-15", "8-15"))
    )
    launch = attempt(ranks=4, nodes=2, ranks_per_node=2, places=places, oversubscribed=True, kind="measured")
    results = RawResults(
        path=Path("here.h5"), job=job(case(), ranks=4), attempts=[(launch, [outcome(times=times(ranks=4))])]
    )
    (one,) = observations(results)
    assert (one.cpus, one.oversubscribed, one.kind, one.file) == (3, True, "measured", "here.h5")
    assert one.rounds_s == (one.seconds,)
