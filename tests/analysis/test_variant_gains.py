"""How fast a variant is beside the default one, where only the library's own call was measured."""

import pytest
from report_fixtures import of_rows  # noqa: F401  a fixture
from row_examples import make_row

from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.variant_gains import variant_gain


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


def test_other_ranks_and_variants_with_algorithms_of_ours_have_no_gain(of_rows):  # noqa: F811
    rows = [
        *native("default", 4e-6),
        *native("wide", 2e-6, ranks=4, oversubscribed=False),
        *native("ours", 2e-6),
        make_row("ring", nbytes=8, variant="ours"),
    ]
    assert set(gains(of_rows(*rows)).values()) == {None}
