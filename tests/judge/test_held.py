"""What every judgement has: a verdict, what a gate makes of it, a ratio, and JSON under the names of its origin."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from hpccoll.judge.held import (
    CURVE,
    SAID,
    Acceptance,
    Expected,
    Held,
    HeldVerdict,
    verdict_between,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPlace(Held):
    KEYS: ClassVar[Mapping[str, str]] = {
        "name": "place.name",
        "time_s": "measured",
        "low_s": "expected.low",
        "from": "expected.sources",
        "verdict": "acceptance",
        "reason": "reason",
    }

    place: Mapping[str, str]


def held(measured=2.0, expected=None, verdict=HeldVerdict.SLOWER, reason="", name="n1"):
    return HeldPlace(
        measured=measured, expected=expected, verdict=verdict, reason=reason, place={"name": name}
    )


@pytest.mark.parametrize("time", [0.9, 1.0, 1.1])
def test_a_time_within_its_range_is_as_expected_and_the_ends_belong_to_it(time):
    assert verdict_between(time, 0.9, 1.1) is HeldVerdict.AS_EXPECTED


def test_a_time_outside_its_range_is_slower_or_faster():
    assert (verdict_between(1.2, 0.9, 1.1), verdict_between(0.8, 0.9, 1.1)) == (
        HeldVerdict.SLOWER,
        HeldVerdict.FASTER,
    )


def test_a_gate_fails_what_is_slower_wrong_missing_or_impossible_and_nothing_else():
    failed = {verdict for verdict in HeldVerdict if verdict.acceptance is Acceptance.FAIL}
    assert failed == {
        HeldVerdict.SLOWER,
        HeldVerdict.WRONG,
        HeldVerdict.MISSING,
        HeldVerdict.IMPOSSIBLE,
    }
    untold = [verdict for verdict in HeldVerdict if verdict.acceptance is Acceptance.CANNOT_TELL]
    assert untold == [*SAID, HeldVerdict.CANNOT_TELL]


def test_without_a_measurement_or_an_expectation_there_is_no_ratio():
    expected = Expected(0.5, 1.0, 1.5, CURVE)
    ratios = [each.ratio for each in (held(2.0, expected), held(None, expected), held(2.0))]
    assert ratios == [2.0, None, None]


def test_json_has_the_names_of_the_origin_and_null_for_what_is_absent():
    whole = held(2.0, Expected(0.5, 1.0, 1.5, CURVE, ("a", "b")), reason="it is slow").to_json()
    assert list(whole) == list(HeldPlace.KEYS)
    assert (whole["time_s"], whole["low_s"], list(whole["from"])) == (2.0, 0.5, ["a", "b"])
    assert (whole["verdict"], type(whole["verdict"]), whole["reason"]) == (
        "fail",
        str,
        "it is slow",
    )
    absent = held(None, name="").to_json()
    assert absent == {
        "name": "",
        "time_s": None,
        "low_s": None,
        "from": None,
        "verdict": "fail",
        "reason": None,
    }
