"""Nodes whose ranks waited for cores: when that may explain an effect."""

import json
from dataclasses import replace

import pytest
from recorded_diagnoses import recorded

from hpccoll.analysis.diagnosis.core_waits import CORE_WAITS, explaining_wait
from hpccoll.analysis.diagnosis.records import Component
from hpccoll.analysis.diagnosis.verdict import verdict_of
from hpccoll.render.diagnosis_text import diagnosis_lines

HOSTS = [f"n{number}" for number in range(6)]


@pytest.mark.parametrize(
    ("share", "of_others", "effect", "is_explained"),
    [
        (0.30, 0.02, 1.4, True),
        (0.30, 0.02, 3.0, False),  # by so much no rank was held up
        (0.02, 0.00, 1.03, False),  # what a node with free cores waits
        (0.35, 0.30, 1.2, False),  # all wait
        (0.55, 0.30, 1.2, True),
        (0.055, 0.005, 1.1, False),  # half of it: a wire is slow as well
        (0.01, 0.20, 1.2, False),  # a rank behind a slow wire has less to do
    ],
)
def test_a_wait_explains_an_effect_that_the_time_without_a_core_may_cause(share, of_others, effect, is_explained):
    waits = dict.fromkeys(HOSTS, of_others) | {"n1": share, "n5": 0.9}
    found = explaining_wait(waits, ["n1"], ["n1", "n5"], effect)
    assert (found is not None) == is_explained
    assert found is None or found == ("n1", share, of_others)


def test_what_is_not_known_explains_nothing():
    assert explaining_wait({}, ["n1"], ["n1"], 1.2) is None
    assert explaining_wait({"n1": 0.5}, ["n1"], ["n1"], 1.2) is None
    assert explaining_wait({"n2": 0.0}, ["n1"], ["n1"], 1.2) is None
    assert explaining_wait({"n1": 1.0, "n2": 0.0}, ["n1"], ["n1"], float("inf")) is None


@pytest.mark.parametrize(("share", "is_explained"), [(0.3, True), (0.01, False)])
def test_a_node_whose_load_may_be_what_is_slow_is_accused_with_less_certainty_and_not_excluded(share, is_explained):
    diagnosis = recorded(16, (Component("node", (5,)), 20))
    waits = {f"n{number}": 0.01 for number in range(16)} | {"n5": share}
    verdict = verdict_of(replace(diagnosis, provenance={**diagnosis.provenance, CORE_WAITS: waits}))
    (fault,) = json.loads(json.dumps(verdict.to_json()))["verdicts"]
    assert (fault["kind"], fault["where"]) == ("node", ["n5"])
    assert fault["waited_for_core"] == (share if is_explained else None)
    assert (fault["confidence"] <= 0.5) == is_explained
    assert verdict.exclude == (() if is_explained else ("n5",))
    assert not verdict.is_healthy
    text = "\n".join(diagnosis_lines(verdict))
    assert ("n5 waited for a core 30" in text) == is_explained
