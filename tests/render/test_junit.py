"""Checks as JUnit XML, read back by junitparser and by ElementTree, and the commands that write it."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from cli_runner import invoke
from written_runs import SIZES, write_run

from hpccoll.common.units import format_factor
from hpccoll.judge.held import Acceptance
from hpccoll.render.junit import CheckedCase, write_junit

CASES = (
    CheckedCase("ring 8 B", "all_reduce", Acceptance.PASS, seconds=1e-5),
    CheckedCase(
        'ring 64 B, "<slow>" & \x1b[31m', "all_reduce", Acceptance.FAIL, "1.50 times as long"
    ),
    CheckedCase("ring 64 B", "broadcast", Acceptance.CANNOT_TELL, "too noisy"),
)


@pytest.fixture
def written(tmp_path):
    write_junit(tmp_path / "a.xml", "hpccoll compare", CASES)
    return tmp_path / "a.xml"


def test_junitparser_reads_back_what_failed_and_what_could_not_be_told(written):
    junitparser = pytest.importorskip("junitparser")
    (suite,) = junitparser.JUnitXml.fromfile(str(written))
    assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (3, 1, 1, 0)
    results = [[type(result).__name__ for result in test.result] for test in suite]
    assert results == [[], ["Failure"], ["Skipped"]]


def test_any_xml_parser_finds_a_test_for_each_case_with_its_message(written):
    tests = list(ET.parse(written).getroot().iter("testcase"))  # noqa: S314 - of ours
    assert [test.get("classname") for test in tests] == [
        f"hpccoll compare.{case.group}" for case in CASES
    ]
    assert tests[1].find("failure").get("message") == "1.50 times as long"
    assert "\\x1b" in tests[1].get("name")


def test_doctor_writes_a_test_for_each_line(tmp_path):
    ran = invoke("doctor", "--junit", tmp_path / "doctor.xml")
    root = ET.parse(tmp_path / "doctor.xml").getroot()  # noqa: S314 - of ours
    tests = list(root.iter("testcase"))
    assert len(tests) == len(ran.out.splitlines())
    assert len({test.get("name") for test in tests}) == len(tests)


def test_accept_writes_a_test_for_each_row_with_its_verdict(tmp_path):
    output = Path(__file__).parents[1] / "inputs" / "nccl-two-nodes-of-8-h100.txt"
    words = ("accept", output, "--cluster", "8xh100-400g", "--json", "--junit", tmp_path / "a.xml")
    rows = json.loads(invoke(*words).out)
    tests = list(ET.parse(tmp_path / "a.xml").getroot().iter("testcase"))  # noqa: S314 - of ours
    skipped = [test for test in tests if test.find("skipped") is not None]
    assert len(tests) == len(rows) + 1  # and the check as a whole
    assert len(skipped) == sum(row["verdict"] == "cannot_tell" for row in rows)


@pytest.mark.parametrize(
    ("noise", "options", "code"), [(0.005, (), 0), (0.2, (), 3), (0.2, ("--require", 0), 0)]
)
def test_a_suite_has_a_failure_when_compare_ends_with_3_because_too_little_can_be_told(
    tmp_path, noise, options, code
):
    old = write_run(tmp_path / "old.h5", seed=1, rounds=3, noise=noise)
    new = write_run(tmp_path / "new.h5", seed=2, rounds=3, noise=noise)
    ended = invoke("compare", old, new, *options, "--junit", tmp_path / "c.xml")
    tests = list(ET.parse(tmp_path / "c.xml").getroot().iter("testcase"))  # noqa: S314 - of ours
    failed = [test.get("name") for test in tests if test.find("failure") is not None]
    assert (ended.code, failed) == (code, ["as a whole"] if code else [])


def test_a_slower_case_has_the_factor_that_compare_prints(tmp_path):
    """Medians over rounds do not divide to the factor by round if a round was disturbed."""
    old = write_run(tmp_path / "old.h5", seed=1, noise=0.1)
    slower = write_run(tmp_path / "new.h5", {("ring", SIZES[0]): 3.0}, seed=2, noise=0.1)
    words = ("compare", old, slower, "--json", "--junit", tmp_path / "c.xml")
    (regression,) = json.loads(invoke(*words).out)["regressions"]
    medians = format_factor(regression["new_s"] / regression["old_s"])
    failures = ET.parse(tmp_path / "c.xml").getroot().iter("failure")  # noqa: S314 - of ours
    messages = [failure.get("message") for failure in failures]
    assert any(format_factor(regression["factor"]) in message for message in messages)
    assert not any(medians in message for message in messages)
