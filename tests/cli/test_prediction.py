"""``hpccoll predict``: its rows, its refusals, pictures, and results against a description."""

import json

import pytest
import raw_examples
from cli_runner import invoke
from predicted_machines import NCCL, cluster, in_racks

from hpccoll.model.machine_file import cluster_names, write_machine
from hpccoll.store import hdf5

CONTRACT = {
    "collective", "algorithm", "nodes", "ranks", "bytes", "median_s", "ci_low_s", "ci_high_s", "kind",
}  # fmt: skip
QUICK = ("--nodes", "2,4", "-b", "1K", "-e", "64K", "-f", "8")


@pytest.fixture
def paper(tmp_path):
    """Return the file of a described cluster."""
    path = tmp_path / "paper.yaml"
    write_machine(in_racks(), path)
    return path


def test_as_json_it_is_an_array_of_rows(paper):
    printed = invoke("predict", "--cluster", paper, *QUICK, "-a", "ring,rabenseifner", "--json").out
    rows = json.loads(printed)
    assert [(row["algorithm"], row["nodes"], row["bytes"]) for row in rows] == [
        (name, nodes, size) for nodes in (2, 4) for name in ("ring", "rabenseifner") for size in (1024, 8192, 65536)
    ]
    for row in rows:
        assert row.keys() >= CONTRACT
        assert (row["kind"], row["ranks"], row["ranks_per_node"]) == ("simulated", 2 * row["nodes"], 2)
        assert row["ci_low_s"] <= row["median_s"] <= row["ci_high_s"]
    assert "NaN" not in printed
    assert "Infinity" not in printed


@pytest.mark.parametrize("name", cluster_names())
def test_every_described_cluster_is_predicted_by_its_name(name):
    result = invoke("predict", "--cluster", name, "--nodes", "2", "-b", "1K", "--json")
    assert result.code == 0
    rows = json.loads(result.out)
    assert {"ring", "hierarchical"} <= {row["algorithm"] for row in rows}
    modelled = [row for row in rows if row["kind"] == "modelled"]
    assert [row["algorithm"] for row in modelled] == (["nccl_ring", "nccl_tree"] if name.startswith("8x") else [])
    assert {(row["ci_low_s"], row["ci_high_s"]) for row in modelled} <= {(None, None)}


def test_the_best_is_a_question(paper):
    words = ("predict", "--cluster", paper, *QUICK, "--question", "best")
    rows = json.loads(invoke(*words, "--json").out)
    assert len(invoke(*words).out.splitlines()) == len(rows) == 2 * 3
    for row in rows:
        assert row.keys() >= CONTRACT | {"faster_than", "factor", "factor_low", "factor_high"}
        assert row["factor_low"] <= row["factor"] <= row["factor_high"]


def test_what_is_left_out_of_data_is_said_on_stderr(paper):
    words = ("--cluster", paper, "--nodes", "2,3", "-b", "1K", "-c", "reduce_scatter", "-a", "ring,swing", "--json")
    result = invoke("predict", *words)
    (line,) = result.err.splitlines()
    assert (result.code, line.startswith("hpccoll: left out on 3 nodes: swing: needs a power-of-two")) == (0, True)


@pytest.mark.parametrize("suffix", ["svg", "html", "png"])
def test_a_picture_has_the_best_and_times_over_nodes_and_says_what_is_assumed_or_a_formula(suffix, tmp_path):
    write_machine(in_racks(nccl=NCCL, aggregators={"kind": "switches"}), tmp_path / "c.yaml")
    out = tmp_path / f"picture.{suffix}"
    words = ("--cluster", tmp_path / "c.yaml", *QUICK, "-a", "ring,sharp_emulated", "--out", out)
    result = invoke("predict", *words)
    assert (result.code, result.out.splitlines()[-1]) == (0, f"picture: {out}")
    if suffix == "png":
        assert out.read_bytes().startswith(b"\x89PNG")
    else:
        shown = ("1 KiB", "64 KiB", "described, not measured", "sharp_emulated (assumed)", "nccl_tree (modelled)")
        text = out.read_text()
        assert [word for word in shown if word not in text] == []
        assert "ring (" not in text.replace("nccl_ring (", "")


def test_results_are_compared_with_what_is_expected(tmp_path):
    path = tmp_path / "paper.yaml"
    write_machine(cluster(), path)
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), tmp_path / "whole.h5")
    words = ("predict", "--cluster", path, "--against", tmp_path)
    result = invoke(*words)
    assert result.code == 0
    assert result.out.startswith("this machine gives ")
    (row,) = json.loads(invoke(*words, "--json").out)
    assert row.keys() >= CONTRACT | {"measured_s", "ratio"}
    assert row["ratio"] == pytest.approx(row["measured_s"] / row["median_s"])
    (tmp_path / "damaged.h5").write_bytes((tmp_path / "whole.h5").read_bytes()[:-99])
    damaged = invoke(*words)
    assert (damaged.code, damaged.out, "damaged.h5" in damaged.err) == (3, result.out, True)
