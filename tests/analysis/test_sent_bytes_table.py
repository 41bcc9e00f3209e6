"""The table of sent bytes: measured by ports, and counted from schedules."""

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.sent_bytes_table import sent_bytes_table

BIG = 16 << 20


def test_measured_and_counted_bytes_are_listed_at_the_largest_size(testbed_results):
    (group,) = chart_groups(testbed_results)
    _, body = sent_bytes_table(group)
    assert ["native", "8 nodes", "4 MiB", "its schedule is not known", "1.769 S", ""] in body
    assert ["ring", "8 nodes", "4 MiB", "1.750 S", "1.769 S", "1.000"] in body
    assert ["recursive_doubling", "2 nodes", "4 MiB", "1.000 S", "1.011 S", "1.000"] in body
    assert len(body) == 9


def test_files_without_counted_bytes_have_an_empty_cell(make_node_row, make_bed_run, of_rows):
    rows = (make_node_row(name, worker_sent_predicted=None, wire_bytes_predicted=None) for name in ("ring", "native"))
    (group,) = chart_groups(of_rows(*rows, runs=(make_bed_run(),)))
    counted = {cells[0]: cells[3] for cells in sent_bytes_table(group)[1]}
    assert counted == {"ring": "", "native": "its schedule is not known"}


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
