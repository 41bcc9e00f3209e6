"""Slow geometries: what shows that nodes and ranks in this number are slow, and what does not."""

import re
from dataclasses import replace

import numpy as np
import pytest
from acceptance_examples import GB, GIB, MIB, judged
from compared_runs import run
from row_examples import make_row

from hpccoll.judge import geometry
from hpccoll.judge.geometry import compared_geometries, judged_geometries
from hpccoll.judge.held import HeldVerdict
from hpccoll.judge.run_comparison import compare
from hpccoll.model.machine_file import read_machine
from hpccoll.store.rows import Results

SIZES = 256 * MIB, GIB, 4 * GIB
SLOWER, UNCHANGED = HeldVerdict.SLOWER, HeldVerdict.AS_EXPECTED
H100 = read_machine("8xh100-400g", "--cluster")


def rows_at(rate, nodes, per_node=8, *, sizes=SIZES, run_id="run-1", verdict=None, **more):
    """Return the judged rows of one geometry, at a bandwidth in GB/s."""
    place = {"nodes": nodes, "ranks": nodes * per_node, "ranks_per_node": per_node}
    verdict = verdict or HeldVerdict.CANNOT_TELL
    low = rate * GB
    return [
        judged(low, low, low, nbytes, verdict, run_id=run_id, **place, **more) for nbytes in sizes
    ]


def found(*rows, runs=(), machine=None):
    every = [row for rows_of_geometry in rows for row in rows_of_geometry]
    return judged_geometries(every, runs, machine)


def on_hosts(run_id, *hosts):
    return replace(run({"hosts": [f"n{number}" for number in hosts]}), run_id=run_id)


def test_three_nodes_that_are_slow_between_two_and_four_are_a_slow_geometry():
    (finding,) = found(rows_at(40, 2), rows_at(20, 3), rows_at(41, 4))
    assert finding.kind == "geometry_odd_nodes"
    values = finding.values
    assert (values["nodes"], values["ranks_per_node"], values["healthy"]) == (3, 8, [2, 4])
    assert (values["calls"], values["bytes"]) == (["all_reduce"], 4 * GIB)
    assert values["share"] == pytest.approx(0.5, rel=0.05)
    assert values["same_hosts"] is None
    assert "nccl#1856" in finding.remedy


@pytest.mark.parametrize(
    "rates",
    [
        {2: 450, 3: 320, 4: 300},  # falls with the nodes
        {2: 20, 3: 20, 4: 40},  # two nodes are as slow
        {2: 40, 3: 33, 4: 41},  # within what machines differ by
        {2: 40, 3: 20},  # no larger number of nodes
        {3: 20, 4: 40},  # no smaller number of nodes
    ],
)
def test_bandwidths_without_a_dip_say_nothing(rates):
    assert found(*(rows_at(rate, nodes) for nodes, rate in rates.items())) == []


def test_a_geometry_whose_neighbours_fail_themselves_says_nothing():
    fails = HeldVerdict.SLOWER
    assert found(rows_at(40, 2, verdict=fails), rows_at(20, 3), rows_at(41, 4)) == []


def test_every_pair_has_to_be_healthy_and_every_run_in_the_geometry_slow():
    healthy = rows_at(40, 2), rows_at(20, 3), rows_at(41, 4)
    slow_pair = rows_at(18, 2, run_id="another pair")
    fast_three = rows_at(40, 3, run_id="another three")
    assert len(found(*healthy)) == 1
    assert found(*healthy, slow_pair) == []
    assert found(*healthy, fast_three) == []


@pytest.mark.parametrize("slow_size", SIZES)
def test_a_dip_at_one_size_is_no_geometry(slow_size):
    at_three = [rows_at(20 if size == slow_size else 39, 3, sizes=(size,)) for size in SIZES]
    assert found(rows_at(40, 2), *at_three, rows_at(41, 4)) == []


def test_bandwidths_of_small_sizes_are_not_compared():
    small = {"sizes": (8, 1024, 65536)}
    assert found(rows_at(40, 2, **small), rows_at(20, 3, **small), rows_at(41, 4, **small)) == []


def test_nodes_that_only_the_slow_geometry_has_may_be_at_fault():
    rows = (
        rows_at(40, 2, run_id="two"),
        rows_at(20, 3, run_id="three"),
        rows_at(41, 4, run_id="four"),
    )
    of_two, of_three = on_hosts("two", 1, 2), on_hosts("three", 1, 2, 3)
    (finding,) = found(*rows, runs=(of_two, of_three, on_hosts("four", 1, 2, 3, 4)))
    assert finding.values["same_hosts"] is True
    assert found(*rows, runs=(of_two, of_three, on_hosts("four", 1, 2, 5, 6))) == []
    (unknown,) = found(*rows, runs=(of_two, of_three, on_hosts("four")))
    assert unknown.values["same_hosts"] is None


def test_a_result_that_fails_between_passing_ones_is_a_geometry_at_any_size():
    passes = {"sizes": (8, 1024), "verdict": UNCHANGED}
    slow = rows_at(38, 3, sizes=(8, 1024), verdict=SLOWER)
    (finding,) = found(rows_at(40, 2, **passes), slow, rows_at(41, 4, **passes))
    assert finding.values["bytes"] == 1024


def test_ranks_that_share_rails_unequally_are_named_where_the_rails_are_known():
    rows = rows_at(200, 2, 4), rows_at(100, 2, 6), rows_at(400, 2, 8)
    (finding,) = found(*rows, machine=H100)
    assert (finding.kind, finding.values["healthy"]) == ("geometry_rails", [4, 8])
    (unknown,) = found(*rows)
    assert unknown.kind == "geometry_power_of_two"


def test_a_node_that_fails_with_gpus_of_both_sockets_crosses_them_if_half_of_them_are_faster():
    halves = rows_at(24, 1, 2), rows_at(23, 1, 4)
    (finding,) = found(*halves, rows_at(8, 1, 8, verdict=SLOWER))
    assert (finding.kind, finding.values["healthy"]) == ("geometry_sockets", [2, 4])
    assert "nvidia-smi" in finding.remedy
    assert found(*halves, rows_at(8, 1, 8)) == []
    assert found(rows_at(9, 1, 4), rows_at(8, 1, 8, verdict=SLOWER)) == []


def test_the_check_of_a_geometry_is_that_of_the_vendor_of_the_gpus():
    amd = {"transport": "rccl", "device": "rocm"}
    halves = rows_at(24, 1, 2, **amd), rows_at(23, 1, 4, **amd)
    (finding,) = found(*halves, rows_at(8, 1, 8, verdict=SLOWER, **amd))
    assert "rocm-smi" in finding.remedy
    assert not re.search("(?i)nvidia|cuda", finding.remedy)


@pytest.mark.parametrize(
    ("cluster", "nodes", "racks", "kind"),
    [
        ("gb200-nvl72", 20, 1, "geometry_domains"),
        ("8xh100-400g", 5, 2, "geometry_racks"),
        ("8xh100-400g", 6, 2, "geometry_power_of_two"),
        ("8xh100-400g", 16, 1, "geometry_nodes"),
    ],
)
def test_the_most_specific_known_geometry_is_named(cluster, nodes, racks, kind):
    rows = rows_at(40, 2), rows_at(20, nodes, racks=racks), rows_at(41, 64)
    (finding,) = found(*rows, machine=read_machine(cluster, "--cluster"))
    assert finding.kind == kind
    assert bool(finding.remedy) == (kind != "geometry_nodes")


def test_every_known_geometry_has_a_condition_a_check_and_a_source():
    known = geometry._known()
    assert known.keys() == geometry.CONDITIONS.keys()
    assert all(row.what and row.why and row.check and row.source for row in known.values())


def test_calls_that_are_slow_in_one_geometry_are_one_finding():
    gather = {"collective": "all_gather"}
    rates = {2: 40, 3: 20, 4: 41}
    rows = [rows_at(rate, nodes, **more) for nodes, rate in rates.items() for more in ({}, gather)]
    (finding,) = found(*rows)
    assert finding.values["calls"] == ["all_reduce", "all_gather"]


def measured(factors, seed):
    """Return results on each number of nodes, which take a factor of 1 ms; a run for each number."""
    generator = np.random.default_rng(seed)
    rows, runs = [], []
    for nodes, factor in factors.items():
        for nbytes in (MIB, 4 * MIB, 16 * MIB):
            medians = 1e-3 * factor * np.exp(0.01 * generator.standard_normal(5))
            rows.append(
                make_row(
                    ranks=nodes, nodes=nodes, ranks_per_node=1, nbytes=nbytes,
                    seconds=float(np.median(medians)), round_medians_s=tuple(map(float, medians)),
                    run_id=f"run-{nodes}",
                )
            )  # fmt: skip
        runs.append(on_hosts(f"run-{nodes}", *range(nodes)))
    return Results(rows=tuple(rows), runs=tuple(runs), planned=len(rows))


@pytest.mark.parametrize(
    ("factors", "kinds"),
    [
        ({2: 1, 3: 1.9, 4: 1}, ["geometry_power_of_two"]),
        ({2: 1, 3: 1.9, 4: 1.9}, []),
        ({2: 1.9, 3: 1.9, 4: 1.9}, []),
        ({2: 1, 3: 1, 4: 1}, []),
    ],
)
def test_a_regression_in_one_geometry_only_is_one_of_the_geometry(factors, kinds):
    old, new = measured(dict.fromkeys(factors, 1), seed=1), measured(factors, seed=2)
    comparison = compare(old, new)
    findings = compared_geometries(comparison.cases, new)
    assert [finding.kind for finding in findings] == kinds
    for finding in findings:
        assert finding.values["same_hosts"] is True
        assert finding.values["share"] == pytest.approx(1 / 1.9, rel=0.05)
