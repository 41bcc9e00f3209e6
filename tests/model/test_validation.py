"""Validation of a model: measured next to modelled times, and the sizes from which one algorithm overtakes another."""

from dataclasses import replace

import pytest
from model_observations import APART, MACHINE, observation, observed

from hpccoll.model.machine import MachineModel
from hpccoll.model.validation import Overtaking, Validated, crossings, curves, validate
from hpccoll.schedule import Layout

ALPHA, BETA = MACHINE.links["rack"].alpha_s, MACHINE.links["rack"].beta_s
NO_FOLDS = MachineModel(MACHINE.links)


def race(*names, **changes):
    rivals = [one for name in names for one in observed("all_reduce", name, machine=NO_FOLDS)]
    return validate([changes.get(one.name, lambda one: one)(one) for one in rivals], NO_FOLDS)


def test_what_takes_what_it_declares_is_as_long_as_modelled():
    for one in validate(observed("all_reduce", "double_binary_tree", channels=8, window=4), MACHINE):
        assert one.ratio == pytest.approx(1)
        assert one.kind == "modelled"


def test_on_six_ranks_a_ring_overtakes_rabenseifner_where_its_rounds_are_worth_the_bytes():
    (crossing,) = crossings(race("rabenseifner", "ring"))
    assert crossing.pair == ("rabenseifner", "ring")
    expected = (10 - 6) * ALPHA / ((3.5 - 10 / 6) * BETA)
    assert crossing.modelled == crossing.measured
    assert crossing.modelled == Overtaking("ring", (pytest.approx(expected, rel=0.05),))  # interpolated


def test_where_one_side_has_no_crossing_it_says_which_is_ahead():
    def quick(one):
        return replace(one, seconds=one.seconds / 100)

    (crossing,) = crossings(race("ring", "rabenseifner", ring=quick))
    assert (crossing.modelled.overtaker, len(crossing.modelled.sizes)) == ("ring", 1)
    assert crossing.measured == Overtaking("ring", ())
    (crossing,) = crossings(race("ring", "rabenseifner", rabenseifner=quick))
    assert crossing.measured == Overtaking("rabenseifner", ())


def timed(name, measured, modelled):
    """What took the seconds ``measured`` at 1, 2, 4... KiB, where the model says others."""
    return [
        Validated(observation("all_reduce", name, 1024 << k, seconds), predicted, "modelled")
        for k, (seconds, predicted) in enumerate(zip(measured, modelled, strict=True))
    ]


@pytest.mark.parametrize("names", [("ring", "star"), ("star", "ring")])
def test_each_side_has_its_own_direction(names):
    fast, slow = (1.0, 2.0, 4.0), (2.0, 2.5, 3.0)
    validated = {"ring": timed("ring", fast, slow), "star": timed("star", slow, fast)}
    (crossing,) = crossings(one for name in names for one in validated[name])
    assert crossing.modelled.overtaker == "ring"
    assert crossing.measured.overtaker == "star"
    assert crossing.modelled.sizes == (pytest.approx(crossing.measured.sizes[0]),)


@pytest.mark.parametrize("names", [("ring", "star"), ("star", "ring")])
def test_where_the_model_has_two_alike_it_names_neither(names):
    validated = {
        "ring": timed("ring", (1.0, 2.0, 4.0), (0.3, 0.3, 0.3)),
        "star": timed("star", (2.0, 2.5, 3.0), (0.1 + 0.2, 0.3, 0.3)),
    }
    (crossing,) = crossings(one for name in names for one in validated[name])
    assert crossing.modelled == Overtaking(None, ())
    assert crossing.measured.overtaker == "star"


def test_a_tie_on_the_way_is_where_one_overtakes_and_a_tie_at_the_end_hides_nobody():
    def sizes(*seconds):
        ever = (2.0,) * len(seconds)
        (crossing,) = crossings([*timed("ring", ever, ever), *timed("star", seconds, seconds)])
        assert crossing.modelled == crossing.measured
        assert crossing.measured.overtaker == "ring"
        return crossing.measured.sizes

    assert sizes(1.0, 2.0, 3.0) == sizes(1.0, 2.0, 3.0, 2.0) == (pytest.approx(2048),)
    assert sizes(1.0, 2.0, 2.0, 3.0) == (pytest.approx(4096),)


def test_algorithms_that_never_cross_have_no_crossings():
    assert list(crossings(race("binomial_tree", "recursive_doubling"))) == []


def test_the_faster_placement_counts():
    slow, quick = (observation("all_reduce", "ring", 1024, seconds) for seconds in (2e-3, 1e-3))
    for both in ((slow, quick), (quick, slow)):
        assert curves(validate(both, MACHINE))["ring"][1024].observation.seconds == 1e-3


def test_only_what_differs_in_its_placement_alone_is_one_curve():
    ways = [{}, {"channels": 4}, {"segment": 65536}, {"channels": 4, "window": 2}]
    requested = [observation("all_reduce", "ring", 1024, 1.0, **params) for params in ways]
    renumbered = [observation("all_reduce", "ring", 1024, 1.0, about={"mapping": "cyclic"})]
    names = ["ring", "ring channels=4", "ring segment=65536", "ring channels=4 window=2", "ring mapping=cyclic"]
    assert list(curves(validate([*requested, *renumbered], MACHINE))) == names
    in_place = observation("all_reduce", "ring", 1024, 1.0, about={"in_place": True})
    assert (in_place.name, in_place.work) == (requested[0].name, requested[0].work)


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


def test_nodes_of_a_rack_share_an_uplink_where_there_is_another_rack():
    def shared(*racks, **params):
        layout = Layout(tuple(range(len(racks))), rack=racks)
        return observation("send_recv" if params else "all_reduce", "ring", 8, 1.0, layout, **params).shares_uplinks

    assert shared(0, 0, 1)
    assert not shared(0, 0, 0)
    assert not shared(0, 1, 2)
    assert not shared(0, 0, 1, peer=2), "two ranks have the uplink to themselves"


def test_what_crosses_tiers_of_two_kinds_is_simulated():
    hierarchical, ring = (
        observation("all_reduce", name, 1 << 20, 1.0, Layout.of(8, 4)) for name in ("hierarchical", "ring")
    )
    predictions = {one.observation.name: one for one in validate([hierarchical, ring], MACHINE)}
    assert {one.kind for one in predictions.values()} == {"simulated"}
    assert predictions["hierarchical"].seconds < predictions["ring"].seconds
    between = 2 * (1 / 2) * (1 << 20) * BETA  # what the port of a node carries in a ring of two nodes
    assert predictions["hierarchical"].seconds == pytest.approx(between, rel=0.3)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (observation("all_reduce", "native", 1024, 1.0), "the algorithm of the library is unknown"),
        (observation("all_reduce", "ring", 1024, 1.0, Layout.of(1)), "one rank sends no messages"),
        (observation("all_reduce", "sharp_emulated", 1024, 1.0, Layout.of(4, 1, aggregators=1)), "aggregators"),
        (observation("all_reduce", "ring", 1024, 1.0, Layout((0, 1), rack=(0, 1))), "no ping-pong between racks"),
        (observation("all_reduce", "hierarchical", 1024, 1.0, Layout.of(66, 2)), "at most 64 ranks are simulated"),
    ],
)
def test_where_the_model_is_silent_it_says_why(one, words):
    (prediction,) = validate([one], MACHINE)
    assert (prediction.seconds, prediction.ratio) == (None, None)
    assert words in prediction.kind


def test_an_observation_knows_how_far_its_messages_go():
    assert observation("all_reduce", "ring", 8, 1.0, APART).tiers == {"rack"}
    assert observation("all_reduce", "ring", 8, 1.0, Layout.of(4, 2)).tiers == {"node", "rack"}
    assert observation("send_recv", "ping_pong", 8, 1.0, Layout.of(4, 2)).tier == "rack"
    assert observation("send_recv", "ping_pong", 8, 1.0, Layout.of(4, 2), peer=1).tier == "node"
    assert observation("all_reduce", "torus", 8, 1.0, rows=2).name == "torus rows=2"
