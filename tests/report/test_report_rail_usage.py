"""Rails: what the report says and draws of the ports of a node."""

from dataclasses import replace

import pytest

from hpccoll.report.chart_groups import chart_groups
from hpccoll.report.charts import FIGURES
from hpccoll.report.findings import findings

BIG = 16 << 20
ONE, BOTH = {"eth0": 0.99 * BIG, "rail2": 0.01 * BIG}, {"eth0": 0.5 * BIG, "rail2": 0.5 * BIG}
"""What the library has to say goes over the other rail even where messages do not."""


@pytest.fixture
def group(make_node_row, make_bed_run, of_rows):
    """One rail and two: ours uses the second, the library does not."""
    ways = (("ring", "one", 2.0, ONE), ("ring", "two", 1.0, BOTH), ("native", "one", 2.0, ONE))
    ways += (("native", "two", 2.1, ONE),)
    rows = [
        make_node_row(name, nbytes=nbytes, seconds=seconds, variant=variant, port_sent=ports, run_id=f"run-{variant}")
        for name, variant, seconds, ports in ways
        for nbytes in (4096, BIG)
    ]
    runs = [make_bed_run(f"run-{variant}", 2, rails=2) for variant in ("one", "two")]
    (found,) = chart_groups(of_rows(*rows, runs=runs))
    return found


def test_what_a_second_rail_gains_and_who_does_not_use_it_is_said_with_the_bytes(group):
    said = {found.about: found.says for found in findings(group)}["Rails"]
    assert said.startswith("sent by a node on 2 nodes at 16 MiB: ")
    assert "ring one through eth0 99%, at most 2 % on rail2" in said
    assert "ring two through eth0 50%, rail2 50%, 2.00x as fast as ring one (another launch)" in said
    assert "native two through eth0 99%, at most 2 % on rail2" in said
    assert said.count("as fast as") == 1


def rails_of(rows, runs, of_rows):
    (found,) = chart_groups(of_rows(*rows, runs=runs))
    return found, {finding.about: finding.says for finding in findings(found)}["Rails"]


def test_between_launches_a_gain_is_told_only_where_the_intervals_are_apart(make_node_row, make_bed_run, of_rows):
    runs = [make_bed_run(variant, 2, rails=2) for variant in ("one", "two")]
    for half, told in ((0.05, True), (0.4, False)):
        rows = [
            make_node_row(nbytes=BIG, seconds=seconds, variant=name, run_id=name, port_sent=ports, half_interval=half)
            for name, seconds, ports in (("one", 2.0, ONE), ("two", 1.0, BOTH))
        ]
        assert ("as fast as" in rails_of(rows, runs, of_rows)[1]) is told


def test_within_a_launch_a_gain_is_told_where_it_is_there_in_every_round(make_node_row, make_bed_run, of_rows):
    runs = [make_bed_run(nodes=2, rails=2)]
    one, two = (
        make_node_row(nbytes=BIG, seconds=seconds, variant=name, port_sent=ports)
        for name, seconds, ports in (("one", 2.0, ONE), ("two", 1.0, BOTH))
    )
    assert rails_of((one, two), runs, of_rows)[1].endswith("rail2 50%, 2.00x as fast as ring one.")
    wide = replace(one, ci_low_s=0.5)
    assert "as fast as" not in rails_of((wide, two), runs, of_rows)[1]


@pytest.mark.parametrize("changes", [{"mapping": "cyclic"}, {"transport": "tiered"}])
def test_a_gain_is_over_the_same_mapping_and_transport(changes, make_node_row, make_bed_run, of_rows):
    rows = (
        make_node_row(nbytes=BIG, seconds=2.0, port_sent=ONE),
        make_node_row(nbytes=BIG, seconds=1.0, port_sent=BOTH, **changes),
    )
    _, said = rails_of(rows, [make_bed_run(nodes=2, rails=2)], of_rows)
    assert said.count("through") == 2
    assert "as fast as" not in said


def test_what_was_measured_again_or_elsewhere_is_stacked_on_nothing(make_node_row, make_bed_run, of_rows):
    runs = [make_bed_run(name, 2, rails=2) for name in ("first", "again", "far")]
    runs[2] = replace(runs[2], machine="another")
    rows = [
        make_node_row(nbytes=BIG, run_id=name, port_sent=ports)
        for name, ports in (("first", ONE), ("again", BOTH), ("far", ONE))
    ]
    group, said = rails_of(rows, runs, of_rows)
    (figure,) = (figure for figure in FIGURES if figure.name == "rails")
    drawn = next(iter(figure.specification(group)["datasets"].values()))
    bars = [(bar["panel"], bar["port"], bar["value"]) for bar in drawn]
    assert bars == [
        ("2 nodes, machine 1", "eth0", 0.5), ("2 nodes, machine 1", "rail2", 0.5),
        ("2 nodes, machine 2", "eth0", 0.99), ("2 nodes, machine 2", "rail2", 0.01),
    ]  # fmt: skip
    assert said.count("ring on machine 1 through") == said.count("ring on machine 2 through") == 1


def test_rails_are_told_of_the_most_nodes(make_node_row, make_bed_run, of_rows):
    rows = [make_node_row("ring", nodes, BIG, port_sent=BOTH) for nodes in (2, 4)]
    (group,) = chart_groups(of_rows(*rows, runs=[make_bed_run(nodes=4, rails=2)]))
    said = {found.about: found.says for found in findings(group)}["Rails"]
    assert said == "sent by a node on 4 nodes at 16 MiB: ring through eth0 50%, rail2 50%."


def test_the_bytes_of_each_port_are_stacked(valid, group):
    (figure,) = (figure for figure in FIGURES if figure.name == "rails")
    drawn = valid(figure.specification(group))
    bars = {(bar["series"], bar["port"]): bar["value"] for bar in next(iter(drawn["datasets"].values()))}
    assert bars["ring two", "rail2"] == bars["ring two", "eth0"] == 0.5
    assert (bars["native two", "eth0"], bars["native two", "rail2"]) == (0.99, 0.01)


def test_the_per_cent_is_told_of_one_rail_and_of_two(group):
    said = {found.about: found.says for found in findings(group)}["Per cent of wire"]
    assert "ring one reaches 68 % of the calibrated wire at 16 MiB on 2 nodes; ring two reaches 68 % of 2 cal" in said


def test_nodes_with_one_port_have_nothing_to_tell(testbed_results):
    (group,) = chart_groups(testbed_results)
    assert "Rails" not in {found.about for found in findings(group)}
    assert [figure.specification(group) for figure in FIGURES if figure.name == "rails"] == [None]


def test_two_wires_have_a_rule_of_their_own(group):
    (figure,) = (figure for figure in FIGURES if figure.name == "busbw")
    values = next(iter(figure.specification(group)["datasets"].values()))
    rules = {(value["series"], value["wires"], value["wire"]) for value in values if value["wire"]}
    assert ("ring two", "2 calibrated wires", 24_800_000) in rules
    assert ("native two", "calibrated wire", 12_400_000) in rules
