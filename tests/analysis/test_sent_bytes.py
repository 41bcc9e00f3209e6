"""Bytes that a node sends: the finding and the chart of its ports, and the table of measured and counted bytes."""

import pytest
from finding_values import kinds_of, only_values

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.sent_bytes import sent_bytes_table
from hpccoll.render.charts import FIGURES

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


def usage_of(group):
    """Return the values of the finding about rails: place, bytes and, by series, the ports."""
    values = only_values(group, "rails")
    return values["shape"], values["nbytes"], {usage["name"]: usage for usage in values["series"]}


def test_the_gain_of_a_second_rail_and_the_ports_of_each_series_are_a_finding(group):
    place, nbytes, usage = usage_of(group)
    assert (place, nbytes) == ("2 nodes", BIG)
    assert usage["ring one"]["ports"] == usage["native two"]["ports"] == {"eth0": 0.99}
    assert usage["ring one"]["unused"] == usage["native two"]["unused"] == ("rail2",)
    two = usage["ring two"]
    assert (two["ports"], two["unused"]) == ({"eth0": 0.5, "rail2": 0.5}, ())
    assert (two["gain"], two["base"], two["other_launch"]) == (2.0, "ring one", True)
    assert [name for name, each in usage.items() if each["gain"]] == ["ring two"]


def rails_of(rows, runs, of_rows):
    (found,) = chart_groups(of_rows(*rows, runs=runs))
    return found, only_values(found, "rails")["series"]


@pytest.mark.parametrize("changes", [{"mapping": "cyclic"}, {"transport": "tiered"}])
def test_a_gain_is_over_the_same_mapping_and_transport(changes, make_node_row, make_bed_run, of_rows):
    rows = (
        make_node_row(nbytes=BIG, seconds=2.0, port_sent=ONE),
        make_node_row(nbytes=BIG, seconds=1.0, port_sent=BOTH, **changes),
    )
    _, series = rails_of(rows, [make_bed_run(nodes=2, rails=2)], of_rows)
    assert [usage["gain"] for usage in series] == [None, None]


def test_the_finding_about_rails_uses_the_most_nodes(make_node_row, make_bed_run, of_rows):
    rows = [make_node_row("ring", nodes, BIG, port_sent=BOTH) for nodes in (2, 4)]
    (group,) = chart_groups(of_rows(*rows, runs=[make_bed_run(nodes=4, rails=2)]))
    place, _, usage = usage_of(group)
    assert (place, list(usage)) == ("4 nodes", ["ring"])


def test_the_bytes_of_each_port_are_stacked(valid, group):
    (figure,) = (figure for figure in FIGURES if figure.name == "rails")
    drawn = valid(figure.specification(group))
    bars = {(bar["series"], bar["port"]): bar["value"] for bar in next(iter(drawn["datasets"].values()))}
    assert bars["ring two", "rail2"] == bars["ring two", "eth0"] == 0.5
    assert (bars["native two", "eth0"], bars["native two", "rail2"]) == (0.99, 0.01)


def test_nodes_with_one_port_have_no_finding_and_no_chart(testbed_results):
    (group,) = chart_groups(testbed_results)
    assert "rails" not in kinds_of(group)
    assert [figure.specification(group) for figure in FIGURES if figure.name == "rails"] == [None]


def test_measured_and_counted_bytes_are_listed_at_the_largest_size(testbed_results):
    (group,) = chart_groups(testbed_results)
    _, body = sent_bytes_table(group)
    assert ["native", "8 nodes", "4 MiB", "its schedule is not known", "1.769 S", ""] in body
    assert ["ring", "8 nodes", "4 MiB", "1.750 S", "1.769 S", "1.000"] in body
    assert ["recursive_doubling", "2 nodes", "4 MiB", "1.000 S", "1.011 S", "1.000"] in body
    assert len(body) == 9


def test_workers_and_aggregators_have_separate_cells(make_node_row, make_bed_run, of_rows):
    half = {"aggregators": 1, "ranks": 4, "wire_bytes_measured": 8 * BIG, "worker_received_measured": 1.02 * BIG}
    half |= {"wire_bytes_predicted": 8 * BIG, "worker_received_predicted": 1.0 * BIG}
    counted = {"worker_sent_predicted": 1.0 * BIG, "worker_sent_measured": 1.01 * BIG}
    row = make_node_row("ring", 4, BIG, **half, **counted)
    (group,) = chart_groups(of_rows(row, runs=[make_bed_run(nodes=4)]))
    head, (cells,) = sent_bytes_table(group)
    assert head[3:7] == ["counted", "measured", "received: both", "by aggregators: both"]
    assert cells[3:7] == ["1.000 S", "1.010 S", "1.000 S, 1.020 S", "4.000 S, 3.960 S"]


def test_rows_with_requested_switches_have_the_bytes_with_and_without_them(make_node_row, make_bed_run, of_rows):
    def row(nodes, sent, **what):
        words = {"worker_sent_measured": sent * BIG, "worker_sent_predicted": None, "wire_bytes_predicted": None}
        return make_node_row("native", nodes, BIG, **words, **what)

    sharp = row(4, 1.01, variant="nccl-sharp", requested="sharp", executed="sharp (collnet_direct)")
    control = row(4, 1.52, variant="nccl-sharp-off", executed="ring")
    (group,) = chart_groups(of_rows(sharp, control, runs=[make_bed_run(nodes=4)]))
    assert {cells[0]: cells[3:5] for cells in sent_bytes_table(group)[1]} == {
        "native (sharp) nccl-sharp": ["SHARP sends 1 and anything else 1.50", "1.010 S"],
        "native nccl-sharp-off": ["SHARP sends 1 and anything else 1.50", "1.520 S"],
    }
    (group,) = chart_groups(of_rows(control, runs=[make_bed_run(nodes=4)]))
    assert [cells[3] for cells in sent_bytes_table(group)[1]] == ["its schedule is not known"]
