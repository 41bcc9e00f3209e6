"""``accept --contribute`` and ``--published``: rows of one's own, and classes that two sources of one's own make."""

import csv
import json

import pytest
from cli_runner import invoke
from printed_outputs import nccl_tests_output

GIB = 1 << 30
OWN = {
    "like": "8xh100-400g",
    "class": {
        "fabric": "own-fabric",
        "network": "own-network",
        "gpus": ["H100"],
        "fabric_bytes_per_s": 450e9,
        "network_bytes_per_s": 50e9,
    },
}


@pytest.fixture
def cluster(tmp_path):
    """Return the file of a cluster whose class nobody has published."""
    path = tmp_path / "own.yaml"
    path.write_text(json.dumps(OWN))
    return path


@pytest.fixture
def output(tmp_path):
    """Return a function that writes an output of nccl-tests with a bus bandwidth in GB/s."""

    def write(rate, name="out.txt"):
        path = tmp_path / name
        path.write_text(nccl_tests_output({GIB: rate, 4 * GIB: rate}))
        return path

    return write


def contribute(*words):
    return invoke("accept", *words, "--contribute")


def test_stdout_has_the_rows_alone_and_stderr_what_is_still_open(output, cluster):
    ended = contribute(output(300), "--cluster", cluster)
    assert ended.code == 0
    rows = list(csv.DictReader(ended.out.splitlines()))
    assert [row["fabric"] for row in rows] == ["own-fabric"] * 4
    assert [float(row["busbw_GBps"]) for row in rows] == pytest.approx([300] * 4, rel=1e-3)
    for option in ("--machine-name", "--operator", "--source"):
        assert option in ended.err
    assert "https://github.com/" in ended.err


def test_two_sources_of_ones_own_make_a_class(output, cluster, tmp_path):
    where = "--cluster", cluster
    own = tmp_path / "own"
    own.mkdir()
    today = output(301)
    before = invoke("accept", today, *where, "--json")
    for number, source in enumerate(("Example Lab, pod 1", "Example Lab, pod 2")):
        healthy = output(300 + number, f"{number}.txt")
        ended = contribute(healthy, *where, "--source", source, "--out", own / f"{number}.csv")
        assert ended.code == 0, ended.err
    known = *where, "--published", own
    after = invoke("accept", today, *known, "--json")
    slow = invoke("accept", output(200, "slow.txt"), *known, "--json")
    verdicts = [{row["verdict"] for row in json.loads(run.out)} for run in (before, after, slow)]
    assert verdicts == [{"cannot_tell"}, {"pass"}, {"fail"}]
    assert [before.code, after.code, slow.code] == [0, 0, 3]
    (sources,) = {tuple(row["sources"]) for row in json.loads(after.out)}
    assert sources == (
        "Example Lab, pod 1 (in the file of 0.csv)",
        "Example Lab, pod 2 (in the file of 1.csv)",
    )


def test_rows_that_fail_are_left_out_and_without_a_row_nothing_is_written(output, tmp_path):
    out = tmp_path / "rows.csv"
    ended = contribute(output(180), "--cluster", "8xh100-400g", "--gpu", "H100", "--out", out)
    assert (ended.code, ended.out, out.exists()) == (2, "", False)
    assert "4 rows left out: the row fails" in ended.err


def test_a_table_that_is_not_valid_is_named_with_its_line_and_column(output, cluster, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    where = "--cluster", cluster
    contribute(output(300), *where, "--source", "Example Lab", "--out", own / "0.csv")
    text = (own / "0.csv").read_text()
    (own / "0.csv").write_text(text.replace("float32", "floats"))
    ended = invoke("accept", output(300), *where, "--published", own)
    assert ended.is_bad_input("0.csv, line 2, column dtype")
    assert "float32" in ended.err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--contribute", "--json"), "--contribute"),
        (("--contribute", "--require", "1"), "--contribute"),
        (("--contribute", "--junit", "j.xml"), "--contribute"),
        (("--contribute", "--out", "page.html"), "--out"),
        (("--contribute", "--gpu", "A100"), "--gpu"),
        (("--published", "missing"), "--published"),
        (("--out", "rows.csv"), "--out"),
    ],
)
def test_what_does_not_go_together_is_refused(output, words, option):
    ended = invoke("accept", output(450), "--cluster", "8xh100-400g", *words)
    assert ended.is_bad_input(option)


def test_tables_of_ones_own_need_a_class(output, tmp_path):
    no_class = tmp_path / "cluster.yaml"
    no_class.write_text(json.dumps({"like": "1x25g-tcp"}))
    ended = invoke("accept", output(450), "--cluster", no_class, "--published", tmp_path)
    assert ended.is_bad_input("--published")


@pytest.mark.parametrize("option", ["--machine-name", "--gpu", "--operator", "--source"])
def test_only_a_contribution_has_a_form(output, cluster, option):
    ended = invoke("accept", output(300), "--cluster", cluster, option, "x")
    assert ended.is_bad_input(option, "--contribute")
