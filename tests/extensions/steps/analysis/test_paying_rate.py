"""The rate of the network below which compression pays: the crossing of two times, and its words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.extensions.steps.analysis.paying_rate import NETWORKS, PayingRate, paying_factor

BYTES_S = st.floats(1e-3, 1e3)


@given(dense=BYTES_S, part=st.floats(0.01, 0.95), codec=BYTES_S)
def test_without_overlap_it_is_what_the_wire_saves_over_what_the_codec_takes(dense, part, codec):
    exact = dense * (1 - part) / codec
    found = paying_factor(lambda x: codec + part * dense / x - dense / x)
    expected = 0.0 if exact <= NETWORKS[0] else min(exact, NETWORKS[1])
    assert found == pytest.approx(expected, rel=2e-3)


def test_a_codec_without_cost_always_pays_and_one_that_saves_nothing_never_does():
    assert paying_factor(lambda x: -1 / x) == NETWORKS[1]
    assert paying_factor(lambda x: 1 / x) == paying_factor(lambda x: 0 / x) == 0


@pytest.mark.parametrize(
    ("factors", "text"),
    [
        ((3.1, (2.7, 3.6)), "pays below 3.1 Gbit/s (2.7 Gbit/s to 3.6 Gbit/s)"),
        ((3.1, (3.1, 3.1)), "pays below 3.1 Gbit/s"),
        ((0.0, (0.0, 0.0)), "pays at no rate"),
        ((0.0, (0.0, 0.2)), "pays at no rate (at no rate to 200 Mbit/s)"),
        ((NETWORKS[1], (NETWORKS[1], NETWORKS[1])), "pays at any rate up to 100 Gbit/s"),
        (
            (5.0, (NETWORKS[1], 2.0)),
            "pays below 5 Gbit/s (2 Gbit/s to at any rate up to 100 Gbit/s)",
        ),
    ],
)
def test_the_words_name_the_rate_and_its_interval(factors, text):
    found = PayingRate.of(1e9 / 8, *factors)
    assert found.low <= found.likely <= found.high <= found.most
    assert found.text == text
