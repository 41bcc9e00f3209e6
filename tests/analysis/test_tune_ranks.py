"""A table on real ranks: what it chooses is what runs, and the rows say so."""

import json
import re

import pytest
from cli_runner import invoke, spawn

from hpccoll.analysis.choice_table import load_table
from hpccoll.store.hdf5 import read_raw_file
from hpccoll.store.load_results import read_results

SHORT = ["-n", "6", "-w", "1", "--in-place"]
pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The file of a table that ranks measured, with a choice of ours above 1 KiB: times decide nothing here."""
    place = tmp_path_factory.mktemp("tuned")
    arguments = [
        "run",
        *SHORT,
        "-a",
        "ring,native,null",
        "-b",
        "64",
        "-e",
        "4K",
        "-f",
        "8",
        "--out",
        "a.h5",
    ]
    result = spawn(*arguments, cwd=place, launcher=["mpiexec", "-n", "2"])
    assert result.code == 0, result.err
    result = spawn("tune", "a.h5", "--out", "t.json", cwd=place)
    assert result.code == 0, result.err
    made = load_table(place / "t.json", "table")
    (entry,) = made["entries"]
    native, ring = (
        {**entry["ranges"][0], "choice": {"algorithm": name, "transport": "mpi", "params": params}}
        for name, params in (("native", []), ("ring", [["channels", 2]]))
    )
    entry["ranges"] = [
        {**native, "first": 0, "below": 1024, "sizes": [64, 512]},
        {**ring, "first": 1024, "below": None, "sizes": [4096]},
    ]
    (place / "t.json").write_text(json.dumps(made))
    return place / "t.json"


def test_the_choice_of_a_table_runs_and_the_row_of_auto_names_it(table, tmp_path):
    out = tmp_path / "b.h5"
    arguments = [
        "run",
        *SHORT,
        "-a",
        "auto,star",
        "-b",
        "512",
        "-e",
        "4K",
        "-f",
        "8",
        "--table",
        table,
        "--out",
        out,
    ]
    result = spawn(*arguments, launcher=["mpiexec", "-n", "2"])
    assert result.code == 0, result.err
    rows = {row.requested_bytes: row for row in read_results([out]).rows if row.algorithm == "auto"}
    assert {size: (row.executed, row.status, row.wrong) for size, row in rows.items()} == {
        512: ("native", "ok", 0),
        4096: ("ring", "ok", 0),
    }
    assert "native by the table of " in rows[512].evidence
    assert rows[4096].evidence.startswith("ring channels=2 by the table of ")
    assert "from 1 KiB to 4 KiB; hpccoll ran its schedule (channels=2" in rows[4096].evidence
    ((_, outcomes),) = read_raw_file(out).attempts
    assert {
        o.case.bytes: o.params.get("channels") for o in outcomes if o.case.algorithm == "auto"
    } == {
        512: None,
        4096: 2,
    }
    table.rename(tmp_path / "gone.json")  # the job holds it
    again = read_raw_file(out).job
    assert again.table["entries"][0]["ranges"][1]["choice"]["algorithm"] == "ring"
    (tmp_path / "gone.json").rename(table)


def test_if_no_case_of_auto_can_run_it_takes_one_line(table):
    arguments = ["run", *SHORT, "-a", "auto", "-e", "64"]
    assert spawn(*arguments, "--table", table).is_bad_input(
        " can run here", "1 rank on 1 node", "the table has"
    )
    assert spawn(*arguments).is_bad_input("--table", "hpccoll tune")


def test_auto_is_listed_with_its_requirement():
    (policy,) = json.loads(invoke("list", "--json").out)["policies"]
    assert (policy["name"], policy["needs"]) == ("auto", ["a table of hpccoll tune"])


def test_without_intervals_one_line_says_why_there_is_no_choice(tmp_path):
    """Golden pages of answers have the other reasons."""
    out, page, why = (
        tmp_path / "a.h5",
        tmp_path / "page",
        "cannot be told without 95 % intervals (6 iterations in a round)",
    )
    arguments = [
        "-n",
        "5",
        "-a",
        "ring,native",
        "--in-place",
        "-b",
        "64",
        "-e",
        "512",
        "-f",
        "8",
        "--rounds",
        "1",
    ]
    run = spawn("run", *arguments, "--out", out, launcher=["mpiexec", "-n", "2"])
    report, tune = (
        invoke("report", out, "--out", page),
        invoke("tune", out, "--out", tmp_path / "t.json"),
    )
    assert (report.code in (0, 3), tune.code) == (True, 0)
    for printed in (run.out, report.out):
        assert [why in line for line in printed.splitlines() if "cannot be told" in line] == [True]
    for printed in (run.out, report.out, tune.out):
        assert not re.search(r"\buse\b|[*]$", printed, re.MULTILINE)
    # noise decides how many the table has
    assert re.search(r"weak: in (\d) of \1 range", tune.out + tune.err)
    text = re.sub("<[^>]+>", "", (page / "index.html").read_text()).replace(
        "\N{NO-BREAK SPACE}", " "
    )
    assert (why in text, ">use " in (page / "index.html").read_text()) == (True, False)
    ranges = [
        each
        for entry in load_table(tmp_path / "t.json", "table")["entries"]
        for each in entry["ranges"]
    ]
    assert {each["strength"] for each in ranges if each["sizes"]} == {"none"}
