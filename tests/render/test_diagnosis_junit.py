"""A diagnosis as JUnit XML, read back by junitparser and ElementTree: failures and exit codes agree."""

from xml.etree import ElementTree as ET

import pytest
from cli_runner import invoke
from recorded_diagnoses import interrupted, recorded

from hpccoll.common.text import warning
from hpccoll.diagnosis.diagnosis_file import write_diagnosis
from hpccoll.diagnosis.node_health import NodeState
from hpccoll.diagnosis.slot_records import Component
from hpccoll.sweep import health

SLOW = Component("node", (2,)), 40
SLOW_LINK = Component("link", (1, 5)), 60
LATER = {"begun": "2026-11-27T08:00:00+00:00", "seed": 1}


@pytest.fixture
def junit(tmp_path):
    """Return a function that reports diagnoses, and returns the exit code, and the results of tests by name."""

    def junit(*diagnoses):
        for number, diagnosis in enumerate(diagnoses):
            write_diagnosis(diagnosis, tmp_path / "files" / f"{number}.h5")
        (tmp_path / "files").mkdir(exist_ok=True)
        path = tmp_path / "diagnosis.xml"
        ended = invoke("diagnose", "--report", tmp_path / "files", "--junit", path)
        return ended.code, read_results(path)

    (tmp_path / "files").mkdir()
    return junit


def read_results(path):
    """Return failure, skipped or pass for each test by its name, as both readers see them."""
    results = {}
    for test in ET.parse(path).getroot().iter("testcase"):  # noqa: S314 - of ours
        assert test.get("name") not in results
        results[test.get("name")] = next((part.tag for part in test), "pass")
    junitparser = pytest.importorskip("junitparser")
    (suite,) = junitparser.JUnitXml.fromfile(str(path))
    counted = [*results.values()]
    assert (suite.failures, suite.skipped) == (counted.count("failure"), counted.count("skipped"))
    assert suite.tests == len(results)
    return results


def test_healthy_nodes_pass(junit):
    code, results = junit(recorded(8))
    assert (code, {*results.values()}) == (0, {"pass"})
    assert {f"n{node}" for node in range(8)} < {*results}


def test_a_slow_node_fails_and_the_others_pass(junit):
    code, results = junit(recorded(8, SLOW))
    assert (code, results.pop("n2"), {*results.values()}) == (3, "failure", {"pass"})


def test_a_slow_link_is_a_test_of_its_own_that_fails(junit):
    code, results = junit(recorded(16, SLOW_LINK, links=True))
    failed = [name for name, result in results.items() if result == "failure"]
    assert (code, failed) == (3, ["the link between n1 and n5"])


def test_nodes_that_were_not_judged_are_skipped_and_the_diagnosis_fails_as_a_whole(junit):
    code, results = junit(recorded(8, failing=[3]))
    assert (code, results["n3"], results["n4"]) == (3, "skipped", "pass")
    assert results["as a whole"] == "failure"


def test_of_an_interrupted_diagnosis_all_nodes_are_skipped(junit):
    code, results = junit(interrupted(recorded(8)))
    assert (code, results.pop("as a whole"), {*results.values()}) == (3, "failure", {"skipped"})


def test_nodes_are_skipped_if_the_diagnosis_cannot_tell_which_one_is_slow(junit):
    code, results = junit(recorded(2, (Component("send", (1,)), 60)))
    assert (code, results) == (3, {"n0": "skipped", "n1": "skipped", "as a whole": "failure"})


def test_over_time_what_is_slow_again_and_again_fails_and_is_named(junit):
    code, results = junit(recorded(8, SLOW), recorded(8, SLOW, **LATER))
    failed = [name for name, result in results.items() if result == "failure"]
    assert (code, failed) == (3, ["n2", "n2, over time"])


@pytest.mark.parametrize(
    ("states", "code", "result"),
    [
        ({}, 0, "pass"),
        ({"findings": (warning("check_failed", "nvidia-smi hangs"),)}, 0, "skipped"),
    ],
)
def test_the_health_of_a_node_is_one_test(tmp_path, monkeypatch, states, code, result):
    state = NodeState(rates={"memory": 1e9}, **states)
    monkeypatch.setattr(health, "check_node", lambda _seconds: state)
    ended = invoke("diagnose", "--here", "--junit", tmp_path / "here.xml")
    assert (ended.code, [*read_results(tmp_path / "here.xml").values()]) == (code, [result])
