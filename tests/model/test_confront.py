"""What was measured stands beside what the model says, with the sizes from which one algorithm overtakes another."""

import pytest
from observed import APART, MACHINE, observation, observed

from hpccoll.model.confront import confront, crossings, curves
from hpccoll.model.machine import Machine
from hpccoll.schedule import Layout

ALPHA, BETA = MACHINE.links["rack"].alpha_s, MACHINE.links["rack"].beta_s
NO_FOLDS = Machine(MACHINE.links)


def race(*names, **changes):
    rivals = [one for name in names for one in observed("all_reduce", name, machine=NO_FOLDS)]
    return confront([changes.get(one.name, lambda one: one)(one) for one in rivals], NO_FOLDS)


def test_what_takes_what_it_declares_is_as_long_as_modelled():
    for one in confront(observed("all_reduce", "double_binary_tree", channels=8, window=4), MACHINE):
        assert one.ratio == pytest.approx(1)
        assert one.kind == "modelled"


def test_on_six_ranks_a_ring_overtakes_rabenseifner_where_its_rounds_are_worth_the_bytes():
    (crossing,) = crossings(race("rabenseifner", "ring"))
    assert (crossing.overtaker, crossing.overtaken) == ("ring", "rabenseifner")
    expected = (10 - 6) * ALPHA / ((3.5 - 10 / 6) * BETA)
    assert crossing.modelled == crossing.measured == (pytest.approx(expected, rel=0.05),)  # interpolated


def test_a_crossing_that_was_not_measured_is_said_to_be_nowhere():
    def quick(one):
        return observation("all_reduce", "ring", one.nbytes, one.seconds / 100)

    (crossing,) = crossings(race("ring", "rabenseifner", ring=quick))
    assert len(crossing.modelled) == 1
    assert crossing.measured == ()


def test_algorithms_that_cross_nowhere_are_not_told_of():
    assert list(crossings(race("binomial_tree", "recursive_doubling"))) == []


def test_the_faster_placement_counts():
    slow, quick = (observation("all_reduce", "ring", 1024, seconds) for seconds in (2e-3, 1e-3))
    for both in ((slow, quick), (quick, slow)):
        assert curves(confront(both, MACHINE))["ring"][1024].observed.seconds == 1e-3


def test_what_crosses_tiers_of_two_kinds_is_simulated():
    hierarchical, ring = (
        observation("all_reduce", name, 1 << 20, 1.0, Layout.of(8, 4)) for name in ("hierarchical", "ring")
    )
    said = {one.observed.name: one for one in confront([hierarchical, ring], MACHINE)}
    assert {one.kind for one in said.values()} == {"simulated"}
    assert said["hierarchical"].seconds < said["ring"].seconds
    between = 2 * (1 / 2) * (1 << 20) * BETA  # what the port of a node carries in a ring of two nodes
    assert said["hierarchical"].seconds == pytest.approx(between, rel=0.3)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (observation("all_reduce", "native", 1024, 1.0), "what the library does is not known"),
        (observation("all_reduce", "ring", 1024, 1.0, Layout.of(1)), "one rank sends no messages"),
        (observation("all_reduce", "sharp_emulated", 1024, 1.0, Layout.of(4, 1, aggregators=1)), "aggregators"),
        (observation("all_reduce", "ring", 1024, 1.0, Layout((0, 1), rack=(0, 1))), "no ping-pong between racks"),
        (observation("all_reduce", "hierarchical", 1024, 1.0, Layout.of(66, 2)), "64 are the most to simulate"),
    ],
)
def test_where_the_model_is_silent_it_says_why(one, words):
    (said,) = confront([one], MACHINE)
    assert (said.seconds, said.ratio) == (None, None)
    assert words in said.kind


def test_an_observation_knows_how_far_its_messages_go():
    assert observation("all_reduce", "ring", 8, 1.0, APART).tiers == {"rack"}
    assert observation("all_reduce", "ring", 8, 1.0, Layout.of(4, 2)).tiers == {"node", "rack"}
    assert observation("send_recv", "ping_pong", 8, 1.0, Layout.of(4, 2)).tier == "rack"
    assert observation("send_recv", "ping_pong", 8, 1.0, Layout.of(4, 2), peer=1).tier == "node"
    assert observation("all_reduce", "torus", 8, 1.0, rows=2).name == "torus rows=2"
