"""How fast a variant is beside the default one, where only the library's own call was measured."""

import pytest
from report_fixtures import of_rows  # noqa: F401  a fixture
from row_examples import make_row

from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.variant_gains import variant_gain
from hpccoll.render.answer_lines import WITHIN_NOISE
from hpccoll.render.answers import Answers


def gains(results):
    recommendations = recommend(results)
    return {
        advice.setting.variant: variant_gain(advice, recommendations) for advice in recommendations
    }


def native(variant, seconds, **changes):
    return [
        make_row("native", nbytes=size, seconds=seconds * factor, variant=variant, **changes)
        for size, factor in ((8, 1), (64, 2))
    ]


def test_a_variant_is_held_against_the_default_one_at_the_sizes_of_both(of_rows):  # noqa: F811
    gain_of = gains(
        of_rows(*native("default", 4e-6), *native("quick", 2e-6), *native("slow", 8e-6))
    )
    assert gain_of["default"] is None
    assert gain_of["quick"].factor == pytest.approx(2)
    assert (gain_of["slow"].low, gain_of["slow"].high) == pytest.approx((0.5, 0.5))


def test_a_gain_that_launches_easily_differ_by_is_within_the_noise_and_the_sentence_says_so(
    of_rows,  # noqa: F811
):
    results = of_rows(*native("default", 4e-6), *native("quick", 2e-6), *native("alike", 3.9e-6))
    gain_of = gains(results)
    assert (gain_of["quick"].within_noise, gain_of["alike"].within_noise) == (False, True)
    shown, folded = Answers(recommend(results)).split("all_reduce")
    sentences = [line.text for answer in (*shown, *folded) for line in answer.lines]
    assert [WITHIN_NOISE in text for text in sentences if "default variant" in text] == [
        False,
        True,
    ]


def test_of_variants_no_line_says_that_only_native_was_measured_and_of_one_alone_it_does(of_rows):  # noqa: F811
    def sentences(*rows):
        shown, folded = Answers(recommend(of_rows(*rows))).split("all_reduce")
        return [line.text for answer in (*shown, *folded) for line in answer.lines]

    of_variants = sentences(*native("default", 4e-6), *native("quick", 2e-6))
    assert len(of_variants) == 2
    assert not any("only" in text for text in of_variants)
    assert any("2.00x as fast as the default" in text for text in of_variants)
    (alone,) = sentences(*native("default", 4e-6))
    assert "only" in alone


def test_a_slower_variant_and_one_that_is_faster_at_one_size_alone_are_not_within_the_noise(
    of_rows,  # noqa: F811
):
    alike, quick = native("at one size", 4e-6)[:1], native("at one size", 2e-6)[1:]
    results = of_rows(*native("default", 4e-6), *native("slow", 8e-6), *alike, *quick)
    gain_of = gains(results)
    assert (gain_of["slow"].within_noise, gain_of["at one size"].within_noise) == (False, False)


def test_without_intervals_nothing_says_whether_a_gain_is_noise(of_rows):  # noqa: F811
    about = {"ci_low_s": None, "ci_high_s": None}
    results = of_rows(*native("default", 4e-6, **about), *native("quick", 2e-6, **about))
    assert gains(results)["quick"].within_noise is None


def test_other_ranks_and_variants_with_algorithms_of_ours_have_no_gain(of_rows):  # noqa: F811
    rows = [
        *native("default", 4e-6),
        *native("wide", 2e-6, ranks=4, oversubscribed=False),
        *native("ours", 2e-6),
        make_row("ring", nbytes=8, variant="ours"),
    ]
    assert set(gains(of_rows(*rows)).values()) == {None}
