"""Validation of a model: measured next to predicted times, and the sizes from which one algorithm overtakes another."""

from dataclasses import astuple, replace

import pytest
from model_observations import MACHINE, observation, observed

from hpccoll.model.validation import (
    Errors,
    Regret,
    Validated,
    curves_by_algorithm,
    find_crossings,
    validate,
)
from hpccoll.schedule import Layout
from hpccoll.store.schema import IMPORTED


def test_what_takes_what_the_machine_says_is_as_long_as_predicted_and_held_out_unless_it_was_fitted_to():
    trees, ring = (
        observed("all_reduce", "double_binary_tree", channels=8, window=4),
        observed("all_reduce", "ring"),
    )
    validated = validate([*trees, *ring], MACHINE, fitted=ring)
    assert [(one.ratio, one.reason) for one in validated] == [(pytest.approx(1), "")] * len(
        validated
    )
    assert [one.held_out for one in validated] == [True] * len(trees) + [False] * len(ring)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (observation("all_reduce", "native", 1024, 1.0), "the algorithm of the library is unknown"),
        (observation("all_reduce", "ring", 1024, 1.0, Layout.of(1)), "one rank sends no messages"),
        (observation("send_recv", "train", 1024, 1.0, copies=3), "copies"),
        (
            observation("all_reduce", "ring", 1024, 1.0, Layout((0, 1), rack=(0, 1))),
            "no ping-pong between racks",
        ),
        (
            observation(
                "all_reduce",
                "sharp_emulated",
                1024,
                1.0,
                Layout((0, 0, 1), rack=(0, 0, 1), aggregators=1),
            ),
            "no ping-pong between racks",
        ),
    ],
)
def test_without_a_prediction_it_says_why(one, words):
    (validated,) = validate([one], MACHINE)
    assert (validated.seconds, validated.ratio) == (None, None)
    assert words in validated.reason


UNPREDICTED = Validated(observation("all_reduce", "native", 1024, 0.1), None, "unknown")


def test_errors_are_medians_and_percentiles_of_relative_differences():
    ratios = [
        Validated(observation("all_reduce", "ring", 1024, each), 1.0)
        for each in (0.5, 0.9, 1.0, 1.1, 1.4)
    ]
    assert astuple(Errors.of([UNPREDICTED, *ratios])) == pytest.approx(
        (5, 1.0, 0.1, 0.46, 0.58, 1.34, 0.8)
    )
    assert Errors.of([UNPREDICTED]) is None


def of_choice(nbytes, **times):
    """Return what algorithms took at a size, and what is predicted."""
    return [
        Validated(observation("all_reduce", name, nbytes, measured), predicted)
        for name, (measured, predicted) in times.items()
    ]


def test_regret_is_what_the_predicted_choice_takes_over_the_best():
    right = of_choice(1024, ring=(1.0, 5.0), star=(2.0, 6.0))
    wrong = of_choice(4096, ring=(4.0, 1.0), star=(1.0, 2.0))
    assert Regret.of(right) == Regret(1, 1.0, 1.0, 1.0)
    assert Regret.of([*right, *wrong]) == Regret(2, pytest.approx(2.0), 4.0, pytest.approx(2.0))


def test_choices_of_other_programs_are_compared_within_a_launch():
    launches = []
    for run_id, factor in (("first", 1.0), ("slower", 3.0)):
        for case in of_choice(1024, ring=(factor, 5.0), star=(2 * factor, 6.0)):
            imported = replace(case.observation, kind=IMPORTED, key=("import", run_id, ""))
            launches.append(replace(case, observation=imported))
    assert Regret.of(launches) == Regret(2, 1.0, 1.0, 1.0)


def test_a_regret_that_no_other_round_confirms_is_noise():
    rounds = {"ring": (1.0, 1.2, 1.3), "star": (1.1, 1.1, 1.15)}
    predicted = {"ring": 1.0, "star": 2.0}
    luck = [
        Validated(
            replace(observation("all_reduce", name, 1024, sorted(each)[1]), rounds_s=each),
            predicted[name],
        )
        for name, each in rounds.items()
    ]
    regret = Regret.of(luck)
    assert regret.mean == pytest.approx(1.2 / 1.1)
    assert 1.0 <= regret.held_out < regret.mean
    assert "1.091 times the best measured time at most, 1.000 at least" in regret.text


def test_without_a_choice_there_is_no_regret():
    ring, star = of_choice(1024, ring=(4.0, 1.0)), of_choice(4096, star=(4.0, 1.0))
    other_work = replace(
        star[0], observation=observation("all_reduce", "star", 1024, 1.0, about={"op": "max"})
    )
    placement = of_choice(1024, ring=(1.0, 2.0))[0]
    for other in (star[0], placement, other_work, UNPREDICTED):
        assert Regret.of([*ring, other]) is None


def timed(name, measured, modelled):
    """What took the seconds ``measured`` at 1, 2, 4... KiB, where the model says others."""
    return [
        Validated(observation("all_reduce", name, 1024 << k, seconds), predicted)
        for k, (seconds, predicted) in enumerate(zip(measured, modelled, strict=True))
    ]


FAST, SLOW, ALIKE, NEARLY = (1.0, 2.0, 4.0), (2.0, 2.5, 3.0), (0.3, 0.3, 0.3), (0.1 + 0.2, 0.3, 0.3)


@pytest.mark.parametrize(
    ("ring", "star", "modelled", "measured"),
    [  # measured and modelled seconds of both; at 2 and 4 KiB the ratios are 0.8 and 4/3
        ((FAST, SLOW), (SLOW, FAST), ("ring", 1), ("star", 1)),  # each side has its own direction
        ((FAST, ALIKE), (SLOW, NEARLY), (None, 0), ("star", 1)),  # of two alike, neither is named
        # where nothing crosses, who is ahead is
        ((FAST, FAST), (SLOW, (0.5, 1.0, 2.0)), ("star", 0), ("star", 1)),
    ],
)
def test_each_side_names_who_overtakes_and_where(ring, star, modelled, measured):
    both = [timed("ring", *ring), timed("star", *star)]
    for each in (both, both[::-1]):
        (crossing,) = find_crossings(one for times in each for one in times)
        assert (crossing.modelled.overtaker, len(crossing.modelled.sizes)) == modelled
        assert (crossing.measured.overtaker, len(crossing.measured.sizes)) == measured
    (size,) = crossing.measured.sizes
    assert 2048 < size < 4096


def test_rounds_that_disagree_are_a_tie():
    model = (1.0, 2.0)
    ring, star = timed("ring", (1.0, 2.0), model), timed("star", (2.0, 1.9), model[::-1])
    noisy = replace(ring[1], observation=replace(ring[1].observation, rounds_s=(2.0, 1.0, 3.0)))
    rounds = replace(star[1], observation=replace(star[1].observation, rounds_s=(1.9, 1.5, 2.5)))
    (clear,), (tied,) = (
        find_crossings([*ring, *star]),
        find_crossings([ring[0], noisy, star[0], rounds]),
    )
    assert (clear.measured.overtaker, tied.measured.overtaker, tied.measured.sizes) == (
        "star",
        "ring",
        (),
    )


def test_a_tie_on_the_way_is_where_one_overtakes_and_a_tie_at_the_end_hides_nobody():
    def sizes(*seconds):
        ever = (2.0,) * len(seconds)
        (crossing,) = find_crossings([*timed("ring", ever, ever), *timed("star", seconds, seconds)])
        assert crossing.modelled == crossing.measured
        assert crossing.measured.overtaker == "ring"
        return crossing.measured.sizes

    assert sizes(1.0, 2.0, 3.0) == sizes(1.0, 2.0, 3.0, 2.0) == (pytest.approx(2048),)
    assert sizes(1.0, 2.0, 2.0, 3.0) == (pytest.approx(4096),)


def test_only_what_differs_in_its_placement_alone_is_one_curve_and_the_faster_placement_counts():
    ways = [{}, {"channels": 4}, {"segment": 65536}, {"channels": 4, "window": 2}]
    requested = [observation("all_reduce", "ring", 1024, 1.0, **params) for params in ways]
    renumbered = observation("all_reduce", "ring", 1024, 1.0, about={"mapping": "cyclic"})
    in_place = replace(requested[0], in_place=True, seconds=0.5)
    names = [
        "ring",
        "ring channels=4",
        "ring segment=65536",
        "ring channels=4 window=2",
        "ring mapping=cyclic",
    ]
    for both in ([*requested, renumbered, in_place], [in_place, *requested, renumbered]):
        found = curves_by_algorithm(validate(both, MACHINE))
        assert list(found) == names
        assert found["ring"][1024].observation == in_place
