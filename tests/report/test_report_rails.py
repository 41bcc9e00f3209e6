"""Rails: what the report says and draws of the ports of a node."""

import pytest

from hpccoll.report.charts import FIGURES
from hpccoll.report.findings import findings, wire_table
from hpccoll.report.groups import groups

BIG = 16 << 20
ONE, BOTH = {"eth0": 1.0 * BIG, "rail2": 0.0}, {"eth0": 0.5 * BIG, "rail2": 0.5 * BIG}


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
    (found,) = groups(of_rows(*rows, runs=runs))
    return found


def test_what_a_second_rail_gains_and_who_does_not_use_it_is_said_with_the_bytes(group):
    said = {found.about: found.says for found in findings(group)}["Rails"]
    assert said.startswith("sent by a node on 2 nodes at 16 MiB: ")
    assert "ring one through eth0 100%, nothing on rail2" in said
    assert "ring two through eth0 50%, rail2 50%, 2.00x as fast as ring one" in said
    assert "native two through eth0 100%, nothing on rail2" in said
    assert said.count("as fast as") == 1


def test_rails_are_told_of_the_most_nodes(make_node_row, make_bed_run, of_rows):
    rows = [make_node_row("ring", nodes, BIG, port_sent=BOTH) for nodes in (2, 4)]
    (group,) = groups(of_rows(*rows, runs=[make_bed_run(nodes=4, rails=2)]))
    said = {found.about: found.says for found in findings(group)}["Rails"]
    assert said == "sent by a node on 4 nodes at 16 MiB: ring through eth0 50%, rail2 50%."


def test_the_bytes_of_each_port_are_stacked(group):
    (figure,) = (figure for figure in FIGURES if figure.name == "rails")
    drawn = figure.specification(group)
    bars = {(bar["series"], bar["port"]): bar["value"] for bar in next(iter(drawn["datasets"].values()))}
    assert bars["ring two", "rail2"] == bars["ring two", "eth0"] == 0.5
    assert (bars["native two", "eth0"], bars["native two", "rail2"]) == (1.0, 0.0)


def test_the_per_cent_is_told_of_one_rail_and_of_two(group):
    said = {found.about: found.says for found in findings(group)}["Per cent of wire"]
    assert "ring one reaches 68 % of the calibrated wire at 16 MiB on 2 nodes; ring two reaches 68 % of 2 cal" in said


def test_nodes_with_one_port_have_nothing_to_tell(testbed_results):
    (group,) = groups(testbed_results)
    assert "Rails" not in {found.about for found in findings(group)}
    assert [figure.specification(group) for figure in FIGURES if figure.name == "rails"] == [None]


def test_two_wires_have_a_rule_of_their_own(group):
    (figure,) = (figure for figure in FIGURES if figure.name == "busbw")
    values = next(iter(figure.specification(group)["datasets"].values()))
    rules = {(value["series"], value["wires"], value["wire"]) for value in values if value["wire"]}
    assert ("ring two", "2 calibrated wires", 24_800_000) in rules
    assert ("native two", "calibrated wire", 12_400_000) in rules


def test_what_workers_and_aggregators_carry_is_told_apart(make_node_row, make_bed_run, of_rows):
    half = {"aggregators": 1, "ranks": 4, "wire_bytes_measured": 8 * BIG, "worker_received_measured": 1.02 * BIG}
    half |= {"wire_bytes_predicted": 8 * BIG, "worker_received_predicted": 1.0 * BIG}
    counted = {"worker_sent_predicted": 1.0 * BIG, "worker_sent_measured": 1.01 * BIG}
    row = make_node_row("ring", 4, BIG, **half, **counted)
    (group,) = groups(of_rows(row, runs=[make_bed_run(nodes=4)]))
    head, (cells,) = wire_table(group)
    assert head[3:7] == ["counted", "measured", "received: both", "by aggregators: both"]
    assert cells[3:7] == ["1.000 S", "1.010 S", "1.000 S, 1.020 S", "4.000 S, 3.960 S"]
