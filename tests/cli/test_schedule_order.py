"""The command ``order`` of an algorithm: its JSON, its words, its picture, and what it refuses."""

import json
from xml.etree import ElementTree as ET

import pytest
from cli_runner import invoke

from hpccoll.cli.order import is_of_schedule
from hpccoll.schedule.summation_tree import parse_tree


def order_of(*words):
    result = invoke("order", *words, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def changing(order, subject):
    (change,) = [change for change in order["changes"] if change["with"] == subject]
    assert change["same"] == (not change["changing"])
    return change["changing"]


def test_a_ring_has_a_tree_for_each_unit_and_its_cuts_change_the_bits():
    order = order_of("ring", "-p", 4, "-b", "64K")
    assert [tree["expression"] for tree in order["trees"]] == [
        "(0 ((1 2) 3))",
        "((0 (2 3)) 1)",
        "(((0 3) 1) 2)",
        "(((0 1) 2) 3)",
    ]
    assert [tree["elements"] for tree in order["trees"]] == [
        [[first, first + 4096]] for first in range(0, 16384, 4096)
    ]
    assert order["depth"] == 3
    assert order["ranks_agree"]
    assert not order["one_order"]
    assert changing(order, "size")
    assert changing(order, "channels") == ["2", "3", "4", "8", "16"]


def test_recursive_doubling_has_one_tree_that_only_other_ranks_change():
    order = order_of("recursive_doubling", "-p", 6, "--param", "pairing=adjacent")
    (tree,) = order["trees"]
    assert parse_tree(tree["expression"]) is parse_tree("(((0 1) (2 3)) (4 5))")
    assert order["one_order"]
    assert not any(change["changing"] for change in order["changes"])


def test_the_root_of_a_reduce_and_the_nodes_of_a_hierarchy_change_the_bits():
    assert changing(order_of("binomial", "-c", "reduce", "-p", 4), "root") == ["1", "3"]
    order = order_of("hierarchical", "-p", 8, "--ranks-per-node", 4)
    assert "2 per node" in changing(order, "nodes")
    assert changing(order, "mapping") == ["cyclic"]
    cyclic = order_of("hierarchical", "-p", 8, "--ranks-per-node", 4, "--mapping", "cyclic")
    assert changing(cyclic, "mapping") == ["block"]


def test_equal_trees_have_equal_digests_whatever_computes_them():
    digests = {
        order_of(*words, "-p", 8, "-b", size)["digest"]
        for size in ("8", "1M")
        for words in (
            ["recursive_doubling"],
            ["binomial_tree"],
            ["rabenseifner", "--param", "first=near"],
        )
    }
    assert len(digests) == 1


def test_the_text_has_the_expressions_and_the_picture_the_ranks(tmp_path):
    picture = tmp_path / "star.svg"
    result = invoke("order", "star", "-p", 3, "--out", picture)
    assert result.code == 0
    assert "((0 1) 2)" in result.out
    assert "one order" in result.out
    assert picture.read_text().startswith("<svg")


def test_the_picture_has_trees_beside_one_another_and_says_that_it_leaves_some_out(tmp_path):
    picture = tmp_path / "ring.svg"
    assert invoke("order", "ring", "-p", 16, "--out", picture).code == 0
    heights = {}
    for element in ET.parse(picture).iter():  # noqa: S314 - our own file
        if element.tag.endswith("text"):
            heights[element.text] = element.get("y")
    assert heights["order 1"] == heights["order 2"]
    assert "order 8" in heights
    assert "order 9" not in heights
    assert any("first 8" in text for text in heights)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["ring", "-p", 0], "--workers"),
        (["nothing", "-p", 4], "algorithm"),
        (["ring", "-c", "all_gather", "-p", 4], "all_gather"),
        (["ring", "-p", 4, "-d", "int32"], "algorithm"),
        (["native", "-p", 4], "native"),
    ],
)
def test_bad_input_is_one_line_that_names_the_key(words, named):
    assert invoke("order", *words).is_bad_input(named)


def test_the_number_of_workers_tells_the_computed_order_from_a_probe():
    assert is_of_schedule(["ring", "-p", "4"])
    assert is_of_schedule(["ring", "-p4"])
    assert is_of_schedule(["ring", "--workers=4"])
    assert not is_of_schedule(["native", "-c", "all"])
