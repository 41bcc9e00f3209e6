"""``hpccoll show --format goal``: a schedule on stdout or in a file, and bad input."""

import pytest
from cli_runner import invoke

GOAL = "--format", "goal"
RING = "ring", "-p", 4, "-b", "64K"


def test_a_file_holds_what_stdout_shows(tmp_path):
    shown = invoke("show", *GOAL, *RING)
    out = tmp_path / "ring.goal"
    out.write_text("an earlier one")
    assert invoke("show", *GOAL, *RING, "--out", out).out == ""
    assert out.read_text() == shown.out
    assert [*tmp_path.iterdir()] == [out]
    assert shown.out.splitlines()[1:3] == ["num_ranks 4", "rank 0 {"]


def test_the_name_of_a_file_of_weights_stays_in_the_first_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a\nb.csv").write_text("1,1\n1,1\n")
    traffic = "traffic=a\nb.csv"
    text = invoke(
        "show", *GOAL, "pairwise", "-c", "all_to_all_v", "-p", 2, "-b", 64, "--param", traffic
    ).out
    assert text.splitlines()[1] == "num_ranks 2"


def ranks_and_messages(*arguments):
    lines = invoke("show", *GOAL, *arguments).out.splitlines()
    return sum(line.startswith("rank ") for line in lines), sum(": send" in line for line in lines)


def test_layout_root_parameters_and_the_time_of_a_reduced_byte_are_those_of_the_schedule():
    flat, nodes = ("hierarchical", "-p", 8, "-b", "64K"), ("--ranks-per-node", 4)
    assert ranks_and_messages(*flat) != ranks_and_messages(*flat, *nodes)
    assert ranks_and_messages("sharp_emulated", "-p", 4, "-b", "64K", "--aggregators", 1)[0] == 5
    assert ranks_and_messages("ring", "-p", 4, "-b", "64K", "--param", "channels=3") == (4, 3 * 24)
    rooted = invoke("show", *GOAL, "binomial", "-c", "broadcast", "-p", 2, "-b", 8, "-r", 1).out
    assert "send 8b to 0" in rooted
    assert ": calc 32768" in invoke("show", *GOAL, *RING, "--fold-cost", 2).out
    assert ": calc" not in invoke("show", *GOAL, *RING).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["native", "-p", 4, "-b", 8], ["algorithm", "'native'", "no schedule"]),
        (["swing", "-p", 6, "-b", 64], ["swing of all_reduce needs", "power-of-two"]),
        ([*RING, "--format", "xml"], ["--format", "'xml'", "goal"]),
        (["ring", "-p", 4], ["--format", "-b BYTES"]),
        (["ring", "-b", 64], ["-p", "workers"]),
        (["ring", "-p", 4, "-b", 3], ["--bytes", "3", "4 bytes"]),
        ([*RING, "--param", "channels=0"], ["parameter channels", "from 1"]),
        ([*RING, "--param", "window=wide"], ["parameter window", "'wide'", "from 1"]),
        (["dissemination", "-p", 4, "-b", 8, "--param", "channels=2"], ["'channels'", "barrier"]),
        ([*RING, "--fold-cost", -1], ["--fold-cost", "from 0"]),
        ([*RING, "--fold-cost", "nan"], ["--fold-cost", "nan", "from 0"]),
        ([*RING, "--out", "no/ring.goal"], ["--out", "No such file"]),
    ],
)
def test_what_cannot_be_exported_takes_one_line(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("show", *GOAL, *arguments).is_bad_input(*words)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["num_ranks 1\nrank 0 {\n}\n", '<algo name="ring"/>'])
def test_a_file_that_is_not_a_plan_of_mscclpp_is_refused(tmp_path, text):
    path = tmp_path / "ring.goal"
    path.write_text(text)
    assert invoke("show", path).is_bad_input("FILE", "MSCCL++")
