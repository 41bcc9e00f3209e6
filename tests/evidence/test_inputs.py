"""``hpccoll evidence`` on the logs that people have: the facts about each log of tests/inputs, and the exit code."""

import json
from pathlib import Path

from cli_runner import invoke
from golden_page import assert_golden
from library_logs import GOLDEN, record_lines

INPUTS = Path(__file__).parents[1] / "inputs"
LIKE_PLAIN = "cloudwatch-timestamps", "kubectl-timestamps", "ray-prefix", "torchrun-rank-prefix"
"""Logs that have the lines of the plain one behind prefixes, or with repetitions."""


def facts(name, *options):
    ran = invoke("evidence", INPUTS / f"{name}.log", "--json", *options)
    (launch,) = json.loads(ran.out)["launches"]
    del launch["logs"]
    assert ran.err == ""
    assert ran.code == (3 if launch["red"] else 0)
    return launch


def test_the_facts_about_each_log_and_the_networks_that_contradict_it():
    page = []
    for path in sorted(INPUTS.glob("*.log")):
        launch = facts(path.stem)
        page += [f"== {path.stem}", *record_lines(launch["record"])]
        page += [
            f"executed: {one['collective']} {one['bytes']} {one['executed']}"
            for one in launch["executed"]
        ]
        page += [
            f"red{option}: {facts(path.stem, *option.split())['red']}"
            for option in ("", " --network rdma", " --network tcp")
        ]
    assert_golden("inputs", page, GOLDEN)


def test_prefixes_and_repetitions_of_exported_logs_change_nothing():
    plain = facts("nccl-plain-for-comparison")
    assert [name for name in LIKE_PLAIN if facts(f"nccl-{name}") != plain] == []


def test_an_error_of_ucc_is_a_warning_if_its_collectives_ran(tmp_path):
    error = next(
        line
        for line in (INPUTS / "ucc-no-teams.log").read_text().splitlines()
        if "No CL teams" in line
    )
    ran = "[1.2] [n1:7  :0]  ucc_coll.c:255  UCC_COLL INFO  coll_init: Barrier; CL_BASIC {TL_UCP}, team_id 32768"
    (tmp_path / "a.log").write_text(f"{error}\n{ran}")
    ended = invoke("evidence", tmp_path)
    assert (ended.code, "WRONG" in ended.out, "without UCC: no team was created" in ended.out) == (
        0,
        False,
        True,
    )
