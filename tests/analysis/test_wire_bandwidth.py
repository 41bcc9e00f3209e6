from dataclasses import replace

import pytest

from hpccoll.analysis.limits import WIRE, limit_of, limit_share
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.wire_bandwidth import (
    Wire,
    add_headers,
    measured_to_counted,
    ports_used,
)

CALIBRATED = Wire("100 Mbit/s", 9000, 12_400_000, 1, 1 << 20, line_rate=12_500_000)


@pytest.fixture
def row(make_node_row):
    """A row of two nodes that reaches half of the wire."""
    return make_node_row(busbw_Bps=6_200_000)


def point_on(wire, row):
    return SeriesPoint(row, "ring", "cluster bed", ("n1", "n2"), wire)


def wire_share(row, wire):
    return limit_share(point_on(wire, row), WIRE)


def wire_words(row, wire):
    limit = limit_of(point_on(wire, row))
    return limit.name, limit.label


def test_a_metered_wire_is_what_its_calibration_says(make_bed_run):
    assert Wire.of(make_bed_run()) == CALIBRATED


def test_headers_are_those_of_full_frames_and_an_acknowledgement_for_every_other():
    assert add_headers(1448 * 2, 1500) == 2 * 1514 + 66


@pytest.mark.parametrize(
    ("seen", "kept"), [(12_100_000, 0.975), (9_829_694, 0.792), (12_700_000, 1.023), (None, None)]
)
def test_a_wire_that_does_not_keep_its_rate_has_no_per_cent(make_bed_run, row, seen, kept):
    wire = Wire.of(make_bed_run(wire_Bps=seen))
    assert wire == Wire(
        "100 Mbit/s", 9000, rate_ratio=wire.rate_ratio, line_rate=max(12_500_000, seen or 0)
    )
    assert wire.rate_ratio == (kept and pytest.approx(kept, abs=1e-3))
    assert wire_share(row, wire) is None


def test_racks_that_share_an_uplink_say_its_rate_and_have_no_per_cent(make_bed_run, row):
    wire = Wire.of(make_bed_run(uplink_bps=25_000_000))
    assert wire == Wire("100 Mbit/s, 25 Mbit/s from each rack", 9000)
    assert wire_share(row, wire) is None


def test_a_real_machine_has_no_per_cent_and_the_mtu_that_all_its_ports_have(make_run, row):
    port = {"name": "eth0", "kind": "netdev", "mtu": 1500}
    infiniband = {
        "name": "mlx5_0/1",
        "kind": "infiniband",
        "link_layer": "InfiniBand",
        "rate": "400 Gb/sec",
    }

    def wire(*ports):
        return Wire.of(
            make_run(
                provenance={"testbed": None, "ports": [{"hosts": ["a"], "ports": list(ports)}]}
            )
        )

    assert wire(port) == Wire(mtu=1500)
    assert wire(port, port | {"mtu": 9000}) == wire(infiniband) == wire(port, infiniband) == Wire()
    assert Wire.of(make_run()) == Wire.of(None) == Wire()
    assert wire_share(row, wire(port)) is None


def test_a_per_cent_is_of_sizes_from_which_on_the_calibration_holds(row):
    assert wire_share(row, CALIBRATED) == pytest.approx(0.5)
    assert wire_share(replace(row, bytes=(1 << 20) - 4), CALIBRATED) is None


def test_on_rails_the_per_cent_is_of_those_that_were_used(make_bed_run, row):
    rails = Wire.of(make_bed_run(rails=2))
    even, uneven, one = (
        {"eth0": 50.0, "rail2": 50.0},
        {"eth0": 90.0, "rail2": 10.0},
        {"eth0": 99.0, "rail2": 1.0},
    )
    assert (
        wire_share(replace(row, port_sent=even), rails)
        == wire_share(replace(row, port_sent=uneven), rails)
        == 0.25
    )
    assert wire_share(replace(row, port_sent=one), rails) == 0.5
    # a file of an earlier version does not tell
    assert wire_share(replace(row, port_sent={}), rails) is None
    # a part of it is on each
    assert wire_share(replace(row, port_sent=even, bytes=(2 << 20) - 4), rails) is None
    assert list(ports_used(replace(row, port_sent=uneven)).items()) == [
        ("eth0", 0.9),
        ("rail2", 0.1),
    ]
    assert wire_words(replace(row, port_sent=even), rails) == ("2 wires", "2 calibrated wires")
    one_wire = "wire", "the calibrated wire"
    assert wire_words(row, CALIBRATED) == wire_words(replace(row, port_sent=one), rails) == one_wire


def test_aggregation_has_no_per_cent_of_a_wire_that_it_spares(row):
    ring = replace(row, aggregators=1, algbw_Bps=6_200_000, worker_sent_predicted=row.bytes)
    assert wire_share(ring, CALIBRATED) == pytest.approx(0.5)
    assert wire_share(replace(ring, busbw_Bps=1.75 * 6_200_000), CALIBRATED) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"collective": "all_to_all_v"},
        {"ranks": 4, "ranks_per_node": 2},
        {"ranks": 2, "nodes": 1, "ranks_per_node": 2},
        {"ranks": 1, "nodes": 1},
    ],
)
def test_unequal_blocks_and_ranks_that_share_a_node_have_no_per_cent_of_its_wire(row, changes):
    assert wire_share(replace(row, **changes), CALIBRATED) is None


def test_bytes_are_compared_with_headers_and_only_where_the_frames_are_known(row):
    plain = replace(row, wire_bytes_predicted=1000, wire_bytes_measured=1000)
    assert measured_to_counted(plain, CALIBRATED) == pytest.approx(1 / 1.0111, rel=1e-4)
    assert measured_to_counted(plain, Wire()) is None
    assert measured_to_counted(replace(plain, wire_bytes_predicted=None), CALIBRATED) is None
    assert measured_to_counted(replace(plain, wire_bytes_measured=None), CALIBRATED) is None
