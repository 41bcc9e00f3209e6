"""How strong evidence is: what more of it may change, and what strong, fair and weak evidence is made of."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from synthetic_timings import KIB, linear_curve, measured_results

from hpccoll.analysis.recommendations import ranges_by_setting, recommend
from hpccoll.analysis.strength import CONDITIONS, STRENGTHS, Evidence, Gain, requirements
from hpccoll.store.schema import HOST_LOAD as KEY
from hpccoll.store.statistics import median_ratio

FACTORS = st.floats(0.2, 5)
SURE = Evidence(compared=6, clear=6, rounds=3, gain=Gain(1.5, 1.4, 1.6))


def rank(evidence):
    return STRENGTHS.index(evidence.strength)


@st.composite
def gains(draw):
    low, factor, high = sorted(draw(st.lists(FACTORS, min_size=3, max_size=3)))
    return draw(st.sampled_from([None, Gain(factor, None, None), Gain(factor, low, high)]))


@st.composite
def evidences(draw):
    compared = draw(st.integers(0, 9))
    return Evidence(
        compared=compared,
        clear=draw(st.integers(0, compared)),
        rounds=draw(st.integers(0, 9)),
        gain=draw(gains()),
        has_intervals=draw(st.booleans()),
        oversubscribed=draw(st.booleans()),
        busy=draw(st.booleans()),
    )


@given(evidences())
def test_more_clear_sizes_and_more_rounds_never_weaken(evidence):
    more_sizes = replace(evidence, clear=min(evidence.clear + 1, evidence.compared))
    assert rank(more_sizes) >= rank(evidence)
    assert rank(replace(evidence, rounds=evidence.rounds + 1)) >= rank(evidence)


@given(evidences(), st.floats(1, 3))
def test_noise_never_strengthens(evidence, spread):
    noisy = evidence
    if evidence.gain and evidence.gain.low:
        gain = replace(
            evidence.gain, low=evidence.gain.low / spread, high=evidence.gain.high * spread
        )
        noisy = replace(evidence, gain=gain)
    for worse in (noisy, replace(noisy, busy=True), replace(noisy, oversubscribed=True)):
        assert rank(worse) <= rank(evidence)


@given(evidences())
def test_what_evidence_lacks_belongs_to_the_next_strength_and_is_nothing_if_it_is_strong(evidence):
    assert bool(evidence.missing) == (evidence.strength != "strong")
    assert {*evidence.missing} <= {*requirements(evidence.next_strength)}


@example(
    [
        {("a", number): 2.0 if number == disturbed else 1.0 for number in (1, 2, 3)}
        for disturbed in (1, 2, 3)
    ]
)
@given(
    st.lists(
        st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), FACTORS),
        min_size=1,
        max_size=4,
    )
)
def test_the_factor_of_a_gain_lies_between_its_ends(sizes):
    gain = Gain.of([(median_ratio(ratios.values() or [2]), ratios.items()) for ratios in sizes])
    several = len({key for ratios in sizes for key in ratios}) > 1
    assert (gain.low is not None) == several == (gain.high is not None)
    assert not several or gain.low <= gain.factor <= gain.high


def test_the_ends_of_a_gain_are_its_rounds_and_sizes_that_a_round_lacks_do_not_count():
    rounds = [("a", number) for number in (1, 2, 3)]
    small, large = (
        dict(zip(rounds, (1.1, 1.2, 1.3), strict=True)),
        dict(zip(rounds, (4.0, 4.4, 4.2), strict=True)),
    )
    for of_large in (large, {rounds[2]: 4.2}):
        of_sizes = small, of_large
        gain = Gain.of([(median_ratio(ratios.values()), ratios.items()) for ratios in of_sizes])
        assert gain.factor == pytest.approx((1.2 * 4.2) ** 0.5)
        assert gain.low / gain.factor == pytest.approx(
            (1.1 / 1.2 * 4.0 / 4.2) ** 0.5 if of_large is large else 1.1 / 1.2
        )


@pytest.mark.parametrize(
    ("change", "strength"),
    [
        ({}, "strong"),
        ({"gain": None}, "strong"),
        ({"compared": 2, "clear": 2}, "strong"),
        ({"compared": 1, "clear": 1}, "fair"),
        ({"compared": 1, "clear": 1, "rounds": 5}, "strong"),
        ({"clear": 5}, "fair"),
        ({"clear": 3}, "fair"),
        ({"gain": Gain(1.5, 1.04, 1.6)}, "fair"),
        ({"busy": True}, "fair"),
        ({"clear": 2}, "weak"),
        ({"rounds": 2}, "weak"),
        ({"oversubscribed": True}, "weak"),
        ({"gain": Gain(1.05, 1.01, 1.5)}, "weak"),
        ({"gain": Gain(1.05, 0.99, 1.06)}, "weak"),
        ({"gain": Gain(1.0, 0.9, 1.1)}, "none"),
        ({"clear": 0}, "none"),
        ({"compared": 0, "clear": 0}, "none"),
        ({"has_intervals": False}, "none"),
    ],
)
def test_the_strength_of_evidence(change, strength):
    assert replace(SURE, **change).strength == strength


def test_every_strength_but_none_takes_something_of_its_own():
    assert [bool(requirements(strength)) for strength in STRENGTHS] == [False, True, True, True]
    assert {each.strength for each in CONDITIONS} == {*STRENGTHS[1:]}


SIZES = [KIB << 2 * i for i in range(4)]
FAST, SLOW = linear_curve(1e-5, 1e-10, SIZES), linear_curve(2e-5, 2e-10, SIZES)
BUSY = {"provenance": {KEY: [{"host": "n0", "other_cores": 1.25, "stolen": 0.0, "busiest": []}]}}


@pytest.mark.parametrize(
    ("drift", "about", "strength"),
    [((1, 1, 1), {}, "strong"), ((1, 1), {}, "weak"), ((1, 1, 1), BUSY, "fair")],
)
def test_rounds_and_load_of_results_decide(drift, about, strength):
    results = measured_results(
        {"ring": FAST, "native": SLOW}, drift=drift, spread=0.01, about=about
    )
    (found,) = recommend(results)
    assert [(each.choice.algorithm, each.strength) for each in found.ranges] == [("ring", strength)]
    assert {of.strength for of in ranges_by_setting([found]).values()} == {strength}


def test_ranks_without_cores_are_weak_evidence():
    results = measured_results({"ring": FAST, "native": SLOW}, drift=(1, 1, 1), spread=0.01)
    crowded = replace(
        results, rows=tuple(replace(row, oversubscribed=True) for row in results.rows)
    )
    assert [of.strength for found in recommend(crowded) for of in found.ranges] == ["weak"]


@pytest.mark.parametrize(("busy", "strength"), [("first", "fair"), ("unrelated", "strong")])
@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_every_run_that_measured_a_compared_round_may_have_been_busy(algorithm, busy, strength):
    results = measured_results({algorithm: FAST, "native": SLOW}, drift=(1, 1, 1), spread=0.01)
    (last,) = results.runs
    resumed = ("first", last.run_id, last.run_id)
    rows = tuple(replace(row, round_run_ids=resumed) for row in results.rows)
    (found,) = recommend(
        replace(results, rows=rows, runs=(replace(last, run_id=busy, **BUSY), last))
    )
    of = found.auto.evidence if found.auto and algorithm == "auto" else found.ranges[0].evidence
    assert of.strength == strength


def test_a_size_at_which_another_choice_is_clearly_faster_is_not_clear():
    star = {size: seconds * (0.98 if size == SIZES[1] else 2) for size, seconds in FAST.items()}
    curves = {"ring": FAST, "star": star, "native": SLOW}
    (found,) = recommend(measured_results(curves, drift=(1, 1, 1), spread=0.001))
    (of_range,) = found.ranges
    verdicts = [(each.verdict, each.is_clear, each.beats_native) for each in of_range.verdicts]
    assert verdicts == [
        ("behind" if size == SIZES[1] else "clear", size != SIZES[1], True) for size in SIZES
    ]
    assert of_range.strength == "fair"
