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
        (
            "all_reduce",
            {"layout": Layout((0, 1, 2), rack=(0, 0, 1))},
            "3 nodes in 2 racks, float32",
        ),
        (
            "all_reduce",
            {"layout": Layout.of(3, 1, aggregators=2)},
            "3 nodes, 2 aggregators, float32",
        ),
        ("broadcast", {}, "float32, root 0"),
        ("send_recv", {"peer": 4}, "float32, ranks 0 and 4"),
        ("all_to_all_v", {"traffic": "uniform"}, "float32, traffic uniform"),
        ("multi_pair", {}, "float32, 3 pairs at once"),
        ("multi_pair", {"concurrent": 1}, "float32, 1 pair at once"),
    ],
)
def test_what_is_compared_is_of_one_call_on_as_many_ranks(collective, more, words):
    assert words in observation(collective, "native", 1024, 1.0, **more).work.text


RACKS, MIXED, AGGREGATED = (
    Layout((0, 1, 2, 3), rack=(0, 0, 1, 1)),
    Layout((0, 0, 0, 1)),
    Layout((0, 0, 1), aggregators=1),
)


@pytest.mark.parametrize(
    ("collective", "algorithm", "layout", "params", "tiers"),
    [
        ("all_reduce", "ring", SIX_NODES, {}, "rack"),
        ("all_reduce", "ring", Layout.of(4, 2), {}, "node rack"),
        ("all_reduce", "ring", RACKS, {}, "rack fabric"),
        ("all_reduce", "ring", Layout.of(1), {}, ""),
        ("send_recv", "ping_pong", Layout.of(4, 2), {}, "rack"),
        ("send_recv", "ping_pong", Layout.of(4, 2), {"peer": 1}, "node"),
        ("multi_pair", "exchange", Layout.of(4, 2), {}, "rack"),
        ("multi_pair", "exchange", Layout.of(4), {}, "node"),
        ("multi_pair", "exchange", RACKS, {}, "fabric"),
        ("multi_pair", "exchange", MIXED, {}, "node rack"),
        ("multi_pair", "exchange", MIXED, {"concurrent": 1}, "node"),
        # aggregators count where they take part
        ("all_reduce", "sharp_emulated", AGGREGATED, {}, "node rack"),
        ("all_reduce", "ring", AGGREGATED, {}, "node"),
    ],
)
def test_an_observation_knows_how_far_its_messages_go(collective, algorithm, layout, params, tiers):
    one = observation(collective, algorithm, 8, 1.0, layout, **params)
    assert one.tiers == set(tiers.split())
    assert one.tier == (tiers if tiers and " " not in tiers else None)


def test_its_name_has_the_parameters_that_were_requested():
    assert observation("all_reduce", "torus", 8, 1.0, rows=2).name == "torus rows=2"


def test_only_single_operations_of_idle_ranks_that_succeeded_are_observed_and_no_training_steps():
    step = case(collective="training_step", in_place=True, params={"model": "gpt2"})
    cases = [*(case(timing=timing, device="cuda", transport="nccl") for timing in TIMINGS), step]
    assert len([*observations(raw(*map(outcome, cases)))]) == 1
    assert [*observations(raw(outcome(case(params={"load": "gemm"}), load="gemm")))] == []
    failed = [outcome(**more) for more in ({"status": "failed"}, {"floor": True}, {"bytes": 0})]
    assert [*observations(raw(*failed))] == []


def test_it_has_the_rounds_and_the_cpus_of_the_first_node():
    places = tuple(
        RankLocation(host=f"n{me}", node=me // 2, clock=0, pid=me, affinity=affinity)
        for me, affinity in enumerate(("0-1,4", "1", "8-15", "8-15"))
    )
    launch = attempt(
        ranks=4, nodes=2, ranks_per_node=2, places=places, oversubscribed=True, kind="measured"
    )
    results = RawResults(
        path=Path("here.h5"),
        job=job(case(), ranks=4),
        attempts=[(launch, [outcome(times=times(ranks=4))])],
    )
    (one,) = observations(results)
    assert (one.cpus, one.oversubscribed, one.kind, one.file) == (3, True, "measured", "here.h5")
    assert one.rounds_s == (one.seconds,)
