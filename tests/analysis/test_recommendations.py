"""What to use in each setting: one answer for both placements where one is enough, and how sure it is."""

import pytest
from synthetic_timings import KIB, linear_curve, measured_results, merged_results

from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.setting import Choice

SIZES = [KIB << 2 * i for i in range(8)]
LATE = linear_curve(1e-4, 2e-10, SIZES)
SLOWER = {size: 1.5 * seconds for size, seconds in LATE.items()}
RING, NATIVE = Choice("ring", "mpi"), Choice("native", "mpi")


def both_placements(out_of_place, in_place, **more):
    """Return results of both placements, each by one launch."""
    return merged_results(
        *(
            measured_results(curves, number=number, in_place=number == 2, **more)
            for number, curves in enumerate((out_of_place, in_place), 1)
        )
    )


def test_a_gain_within_the_noise_is_no_reason_for_a_second_set_but_a_large_one_is():
    def placements(factor):
        other = {size: factor * seconds for size, seconds in LATE.items()}
        return recommend(both_placements({"ring": LATE, "native": SLOWER}, {"ring": LATE, "native": other}, spread=0.1))

    assert [each.setting.in_place for each in placements(0.995)] == [None]
    assert {each.setting.in_place: each.ranges[0].choice for each in placements(0.5)} == {False: RING, True: NATIVE}


def test_placements_at_other_sizes_or_without_a_common_choice_have_answers_of_their_own():
    fewer = {size: LATE[size] for size in SIZES[1:]}
    for in_place in ({"ring": fewer}, {"star": LATE}):
        found = recommend(both_placements({"ring": LATE}, in_place))
        assert [each.setting.in_place for each in found] == [False, True]


def test_a_call_of_the_library_with_one_buffer_is_compared_in_both_placements():
    curves = {"binomial": LATE}, {"binomial": LATE, "native": SLOWER}
    found = recommend(both_placements(*curves, collective="broadcast", op=None, root=0))
    assert [(each.setting.in_place, each.ranges[0].gain.factor) for each in found] == [(None, pytest.approx(1.5))]


def test_a_placement_in_which_only_such_a_call_was_measured_has_no_answer_of_its_own():
    of_library, binomial = {"native": SLOWER}, {"binomial": LATE}
    (only,) = recommend(both_placements(binomial, of_library, collective="broadcast", op=None, root=0))
    assert only.setting.in_place is False
    assert [of_range.gain.factor for of_range in only.ranges] == [pytest.approx(1.5)]


def test_a_verdict_is_clear_only_where_every_round_is():
    def verdict(native, drift):
        results = measured_results({"ring": {KIB: 1e-5}, "native": {KIB: native}}, spread=0.1, drift=drift)
        (found,) = recommend(results)
        return found.verdicts[KIB].verdict

    assert verdict(2e-5, (1, 3, 2)) == "clear"
    assert verdict(1.01e-5, (1, 3, 2)) == "tie"
    (alone,) = recommend(measured_results({"ring": {KIB: 1e-5}}))
    assert (alone.verdicts[KIB].verdict, alone.verdicts[KIB].lead) == ("alone", None)


def test_a_size_at_which_another_choice_is_clearly_faster_says_so():
    dented = {size: seconds * (0.98 if size == SIZES[3] else 2) for size, seconds in LATE.items()}
    (found,) = recommend(measured_results({"ring": LATE, "star": dented}, spread=0.001, drift=(1, 1, 1)))
    assert [each.choice for each in found.ranges] == [RING]
    assert {size: each.verdict for size, each in found.verdicts.items() if each.verdict != "clear"} == {
        SIZES[3]: "behind"
    }
    assert found.verdicts[SIZES[3]].lead == pytest.approx(0.98, rel=1e-3)


def test_a_gain_is_the_median_of_the_rounds_with_their_ends():
    (found,) = recommend(measured_results({"ring": LATE, "native": SLOWER}, drift=(1, 7, 2)))
    gain = found.ranges[0].gain
    assert (gain.factor, gain.low, gain.high) == pytest.approx((1.5, 1.5, 1.5), rel=1e-3)
    (once,) = recommend(measured_results({"ring": LATE, "native": SLOWER}))
    assert (once.ranges[0].gain.low, once.ranges[0].gain.high) == (None, None)
    assert recommend(measured_results({"ring": LATE}))[0].ranges[0].gain is None
    (kept,) = recommend(measured_results({"ring": SLOWER, "native": LATE}))
    assert (kept.ranges[0].choice, kept.ranges[0].gain) == (NATIVE, None)
