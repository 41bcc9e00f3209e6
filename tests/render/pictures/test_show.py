"""``hpccoll show``: text on stdout, a picture on request, and one line on invalid input."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runner import invoke

from hpccoll.render.pictures.schedule_view import view_of
from hpccoll.schedule import RecvReduce, Send, Step, all_reduce, power_of_two

GUIDE = Path(__file__).parents[3] / "hpccoll" / "README.md"
GOLDEN = GUIDE.parents[1] / "results" / "golden"


def test_it_says_the_schedule_and_draws_nothing_unless_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke("show", "ring", "-p", 4, "--unit", 3)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("all_reduce by ring on 4 workers on 1 node\nRing: p units")
    assert "whose unit 3 is folded in:" in result.out
    assert not list(tmp_path.iterdir())
    several = invoke("show", "bruck", "-p", 4).out  # of the first collective that has it
    assert several.startswith("all_gather by bruck")
    assert "\nbruck is one of all_to_all, too: -c all_to_all\n" in several


COMMANDS = re.findall(
    r"!\[[^]]*\]\(../results/golden/(\w+\.svg)\)\n\n\*`hpccoll (show .*?)`", GUIDE.read_text()
)


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_the_pictures_of_the_guide_are_what_their_commands_draw(name, command, tmp_path):
    assert invoke(*command.split(), "--out", tmp_path / name).code == 0
    assert (tmp_path / name).read_text() == (GOLDEN / name).read_text()


def test_the_guide_has_all_golden_pictures_of_schedules():
    shown = {
        path.name
        for path in GOLDEN.glob("*.svg")
        if "what happens in each step" in path.read_text()
    }
    assert (
        {name for name, _ in COMMANDS}
        == shown
        == {"ring.svg", "hierarchical.svg", "sharp_emulated.svg"}
    )


def misspelt(layout, me):
    yield Step(Send((me + 1) % layout.workers, 0), RecvReduce((me - 1) % layout.workers, 0))
    yield Step(Send([0, 1][int(me) + layout.workers], 0))


def test_a_faulty_schedule_takes_one_line_with_the_rank_the_step_and_the_fault(monkeypatch):
    faulty = replace(
        all_reduce.algorithm("ring"), name="faulty", program=misspelt, vectorised=False
    )
    monkeypatch.setitem(all_reduce.algorithms, "faulty", faulty)
    words = "step 2: rank 0: IndexError: list index out of range (test_show.py, line "
    assert invoke("show", "faulty", "-p", 3).is_bad_input("all_reduce by faulty: ", words)


def short(layout, me):
    for step in range(1, layout.workers - 1):  # a step fewer than a ring has
        right, left = (me + 1) % layout.workers, (me - 1) % layout.workers
        yield Step(
            Send(right, (me - step) % layout.workers),
            RecvReduce(left, (me - step - 1) % layout.workers),
        )


def test_a_schedule_without_the_result_is_one_line_and_shows_its_steps(monkeypatch):
    faulty = replace(all_reduce.algorithm("ring"), name="faulty", program=short)
    monkeypatch.setitem(all_reduce.algorithms, "faulty", faulty)
    result = invoke("show", "faulty", "-p", 3)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert line.startswith(
        "hpccoll: all_reduce by faulty: after step 1, the last one, rank 0 ends without rank 1's unit 0"
    )
    assert result.out.startswith("\nstep 1: every rank r")
    assert "proven" not in result.out


def test_a_layout_that_does_not_fit_takes_one_line(monkeypatch):
    picky = replace(all_reduce.algorithm("ring"), name="picky", needs=(power_of_two,))
    monkeypatch.setitem(all_reduce.algorithms, "picky", picky)
    assert invoke("show", "picky", "-p", 4).code == 0
    assert invoke("show", "picky", "-p", 6).is_bad_input(
        "picky of all_reduce needs a power-of-two number of workers"
    )


@pytest.mark.parametrize(
    ("racks", "aggregators", "rack"),
    [
        (1, 2, (0, 0, 0, 0, 0, 0)),
        (2, 1, (0, 0, 1, 1, 2)),
        (2, 3, (0, 0, 1, 1, 0, 1, 4)),
        (4, 0, (0, 1, 2, 3)),
    ],
)
def test_nodes_are_dealt_to_racks_in_blocks_and_switches_are_in_racks_or_above_them(
    racks, aggregators, rack
):
    layout = view_of(
        "ring", "all_reduce", 4, ranks_per_node=1, racks=str(racks), aggregators=aggregators
    ).layout
    assert (layout.node, layout.rack) == ((*range(4 + aggregators),), rack)


def test_workers_in_each_rack_and_their_mapping_reach_the_layout_and_share_no_node():
    layout = view_of("ring", "all_reduce", 6, racks="1,3,2").layout
    assert (layout.node, layout.rack) == ((0, 1, 2, 3, 4, 5), (0, 1, 1, 1, 2, 2))
    dealt = view_of("ring", "all_reduce", 8, ranks_per_node=2, racks="4,4", mapping="cyclic").layout
    assert (dealt.node, dealt.rack) == ((0, 2, 1, 3, 0, 2, 1, 3), (0, 1) * 4)
    for words in (["--racks", "3,4"], ["--racks", "6,0"], ["--racks", ""], ["--racks", "9" * 5000]):
        assert invoke("show", "ring", "-p", 6, *words).is_bad_input("6 together: 6,16,10")
    assert invoke("show", "ring", "-p", 6, "--racks", "3,3", "--ranks-per-node", 2).is_bad_input(
        "whole nodes of 2"
    )
    assert invoke("show", "ring", "-p", 6, "--mapping", "spiral").is_bad_input("block, cyclic")


@pytest.mark.parametrize(
    ("name", "racks", "more", "line"),
    [
        ("ring", "3", [], "between racks: 30 messages, 5 S; the most from one rack: 1.667 S"),
        ("ring", "1,5", [], "between racks: 20 messages, 3.333 S; the most from one rack: 1.667 S"),
        (
            "ring",
            "3",
            ["--mapping", "cyclic"],
            "between racks: 60 messages, 10 S; the most from one rack: 3.333 S",
        ),
        (
            "double_binary_tree",
            "2",
            [],
            "between racks: 4 messages, 2 S; the most from one rack: 1 S",
        ),
        ("dissemination", "2", [], "between racks: 10 messages"),
    ],
)
def test_the_text_and_the_picture_say_what_crosses_between_racks(name, racks, more, line, tmp_path):
    out = tmp_path / "a.svg"
    text = invoke("show", name, "-p", 6, "--racks", racks, *more, "--out", out).out
    assert line in text.splitlines()
    assert f"B{line[1:]}." in " ".join(re.findall(r">([^<]+)</text>", out.read_text()))
    assert "between racks:" not in invoke("show", name, "-p", 6, "--ranks-per-node", 1).out


def test_the_heading_says_how_uneven_racks_are_and_which_has_the_root():
    for more, words in (
        ((), "racks of 2 and 4, the root in rack 0"),
        (("-r", 5), "racks of 2 and 4, the root in rack 1"),
    ):
        shown = invoke("show", "binomial", "-c", "broadcast", "-p", 6, "--racks", "2,4", *more).out
        assert shown.splitlines()[0].endswith(f", 2 {words}")
    assert invoke("show", "ring", "-p", 6, "--racks", 2).out.splitlines()[0].endswith(", 2 racks")


def test_arguments_reach_the_call_the_algorithm_and_its_declared_cost():
    assert view_of("binomial", "broadcast", 4, root=3).root == 3
    assert view_of("ping_pong", "send_recv", 4, parameters=["peer=2"]).call.peer == 2
    assert [
        view_of("torus", "all_reduce", 8, parameters=[f"rows={r}"]).declared.steps for r in (1, 2)
    ] == [14, 8]
    assert view_of("hierarchical", "all_reduce", 4).declared is None


def test_of_many_ranks_a_part_is_shown_and_said(tmp_path):
    result = invoke("show", "ring", "-p", 200, "--out", tmp_path / "part.svg")
    assert result.code == 0
    assert (
        "\nproven: the postcondition of all_reduce; all ranks add in the same order" in result.out
    )
    assert "step 16: every rank r of the first 16 sends unit r-16 to r+1" in result.out
    assert "step 17" not in result.out
    picture = (tmp_path / "part.svg").read_text()
    for text in (result.out, picture):
        assert "hown in part: what the first 16 of 200 ranks do in the first 16 steps" in " ".join(
            texts_of(text)
        )
    assert len(picture) < 1 << 18


def test_the_part_of_a_tree_has_the_steps_of_the_tree():
    text = invoke("show", "binomial", "-c", "reduce", "-p", 256).out
    assert "step 8: rank 0 folds everything of 128" in text


def texts_of(document: str) -> list[str]:
    return re.findall(r">([^<>]+)<", document) or document.splitlines()


def test_the_most_workers_are_named():
    assert invoke("show", "ring", "-p", 5000).is_bad_input(
        "--workers: 5000", "a number from 1 to 4096"
    )
