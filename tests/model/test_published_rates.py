"""What was published near a case: the same few nodes, near sizes, whole nodes; and figures by class of machines."""

import csv

import pytest
from predicted_machines import NCCL, in_racks
from published_outputs import without_source

from hpccoll.common.errors import BadInputError
from hpccoll.model.machine_content import cluster_names
from hpccoll.model.machine_file import MachineFile, read_machine
from hpccoll.model.machine_sections import ClassSection
from hpccoll.model.predict import Request, predict
from hpccoll.model.published_rates import (
    TABLE,
    PublishedCall,
    is_old,
    node_class,
    published_near,
    rates_by_source,
    version_of,
    with_tables,
)

MIB = 1 << 20


def rates_of(machine, collective, nodes, ranks_per_node, nbytes, **more):
    call = PublishedCall(collective, nodes, ranks_per_node, nbytes, **more)
    return rates_by_source(machine, call)


def published(nodes, mib, algorithm="ring", low=1e9, **more):
    about = {"collective": "all_reduce", "high_bytes_per_s": 2e9, "source": "someone"} | more
    return {
        "nodes": nodes,
        "bytes": mib * MIB,
        "algorithm": algorithm,
        "low_bytes_per_s": low,
        **about,
    }


MACHINE = in_racks(
    nccl=NCCL,
    layout={"ranks_per_node": 8, "nodes_per_rack": 2},
    published=[
        published(1, 64, "NVLS"), published(2, 64, "NVLSTree"), published(2, 128, "NVLSTree"), published(2, 64),
        published(8, 64), published(32, 64),
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "mib", "expected"),
    [
        (2, 64, [(2, 64, "NVLSTree"), (2, 64, "ring")]),
        (2, 200, [(2, 128, "NVLSTree")]),
        (2, 300, []),
        (2, 16, []),
        (1, 64, [(1, 64, "NVLS")]),
        (3, 64, []),
        (4, 64, [(8, 64, "ring")]),
        (16, 33, [(8, 64, "ring")]),
        (20, 64, [(32, 64, "ring")]),
        (65, 64, []),
    ],
)
def test_near_are_the_same_few_nodes_and_otherwise_half_to_twice_as_many_nodes_and_bytes(
    nodes, mib, expected
):
    found = published_near(MACHINE, "all_reduce", nodes, 8, mib * MIB)
    assert [(each.nodes, each.nbytes // MIB, each.algorithm) for each in found] == expected


def test_another_collective_and_a_part_of_the_ranks_of_a_node_have_no_figures():
    assert published_near(MACHINE, "all_gather", 2, 8, 64 * MIB) == []
    assert published_near(MACHINE, "all_reduce", 2, 4, 64 * MIB) == []


def test_predictions_have_what_nccl_may_take_without_a_formula_and_what_was_published_near():
    request = Request(nodes=[1, 2, 4], sizes=[64 * MIB], algorithms=["ring"])
    rows = [each.to_json() for each in predict(MACHINE, request).predictions]
    missing = {row["nodes"]: row["unmodelled"] for row in rows}
    assert {nodes: "NVLS" in " ".join(names) for nodes, names in missing.items()} == {
        1: True,
        2: True,
        4: True,
    }
    (near,) = next(row["published"] for row in rows if row["nodes"] == 4)
    assert (near["nodes"], near["low_bytes_per_s"], near["source"]) == (8, 1e9, ["someone"])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"low_bytes_per_s": 3e9}, "low_bytes_per_s"),
        ({"collective": "all_reduced"}, "all_reduce"),
        ({"high_bytes_per_s": float("nan")}, "high_bytes_per_s"),
        ({"nodes": 0}, "nodes"),
    ],
)
def test_a_figure_that_none_can_be_is_refused(changed, named):
    with pytest.raises((BadInputError, ValueError), match=named):
        in_racks(published=[published(2, 64) | changed])


def test_the_figures_of_a_shipped_cluster_are_those_of_its_class_also_when_it_is_written_and_read_again():
    cluster = read_machine("8xh100-400g", "--cluster")
    again = MachineFile.model_validate(
        cluster.model_dump(mode="json", by_alias=True, exclude_none=True)
    )
    (near,) = published_near(again, "all_reduce", 2, 8, 1 << 30)
    assert (near.algorithm, len(near.source)) == ("default (NVLSTree)", 7)
    assert 444e9 <= near.low_bytes_per_s <= 445e9
    assert 458e9 <= near.high_bytes_per_s <= 460e9
    assert published_near(cluster.with_network(2), "all_reduce", 2, 8, 1 << 30) == []


def test_figures_inside_a_fabric_are_those_of_any_network_and_others_those_of_their_own():
    rdma, efa, none = (
        read_machine(name, "--cluster") for name in ("8xh100-400g", "aws-p5", "8xh100-400g-3to1")
    )
    (one_node, *_), *others = (
        [*published_near(each, "all_reduce", 1, 8, 1 << 30)] for each in (rdma, efa, none)
    )
    assert others == [[one_node], [one_node]]
    (slower,) = published_near(efa, "all_reduce", 2, 8, 1 << 30)
    assert slower.high_bytes_per_s < 442e9
    assert published_near(none, "all_reduce", 2, 8, 1 << 30) == []


@pytest.mark.parametrize(
    ("nodes", "of_fabric", "expected"),
    [
        (1, 1, (False, 1)),
        (2, 1, (True, 2)),
        (3, 1, (True, None)),
        (4, 1, (True, 4)),
        (7, 1, (True, None)),
        (8, 1, (True, 8)),
        (300, 1, (True, 8)),
        (18, 18, (False, 18)),
        (32, 18, (True, 2)),
        (360, 18, (True, 8)),
    ],
)
def test_classes_of_nodes_are_those_of_the_fabrics_that_they_have(nodes, of_fabric, expected):
    assert node_class(ClassSection(fabric="f", fabric_nodes=of_fabric), nodes) == expected


def test_sources_of_one_repository_or_thread_are_one_and_runs_of_several_machines_are_not_joined():
    cluster = read_machine("8xh100-400g", "--cluster")
    call = {"dtype": "float32", "in_place": False}
    found = rates_of(cluster, "all_reduce", 2, 8, 1 << 30, **call)
    assert len(found["NVIDIA/nccl-tests#309"].rates) == 2
    between = rates_of(cluster, "all_reduce", 2, 8, 3 << 30, **call)
    for source, of_source in between.items():
        ends = [
            rates_of(cluster, "all_reduce", 2, 8, size << 30, **call)[source].rates
            for size in (2, 4)
        ]
        assert min(ends[0]) < min(of_source.rates) <= max(of_source.rates) < max(ends[1])
    assert "NVIDIA/nccl#2409" not in between  # of which one size is known
    of_two = [
        rates_of(cluster, "all_reduce", 2, 8, size << 30, **call)["NVIDIA/nccl-tests#309"]
        for size in (1, 4, 8)
    ]
    # of the other user 1 and 8 GiB, which are no neighbours
    assert [len(each.rates) for each in of_two] == [2, 1, 2]


def test_sources_that_ran_on_machines_of_one_operator_are_one_unless_the_class_is_its_own():
    call = {"dtype": "float32", "in_place": False}
    found = rates_of(read_machine("8xh100-400g", "--cluster"), "all_reduce", 2, 8, 1 << 30, **call)
    (nebius,) = [each for name, each in found.items() if "Nebius" in name]
    assert {each.origin for each in nebius.figures} == {
        "dstackai/dstack",
        "skypilot-org/skypilot",
        "twinanda/ml-cookbook",
    }
    google = rates_of(read_machine("gcp-a3-mega", "--cluster"), "all_reduce", 2, 8, 8 << 30, **call)
    assert [*google] == ["Google: NVIDIA/aicr", "Google: lessizzmore/create-a3mega-ztan-fork"]
    assert (
        len(rates_of(read_machine("8xb200-400g", "--cluster"), "all_reduce", 2, 8, 1 << 30, **call))
        == 2
    )


def test_one_repository_is_one_source_also_with_machines_of_several_operators():
    like = read_machine("8xb200-400g", "--cluster")
    with without_source("DeepEP on GKE B200 guide, README"):
        found = rates_of(like, "all_reduce", 2, 8, 1 << 30, dtype="float32", in_place=False)
    assert [*found] == ["dstackai/dstack"]
    assert {each.operator for each in found["dstackai/dstack"].figures} == {"Google", "Lambda"}


@pytest.mark.parametrize(
    ("library", "version", "old"),
    [
        ("2.18.5", (2, 18, 5), True),
        ("NCCL 2.19.3", (2, 19, 3), False),
        ("RCCL 2.18.3", (2, 18, 3), False),
        ("RCCL (ROCm 6.4.1)", (), False),
        ("unknown", (), False),
        ("", (), False),
    ],
)
def test_versions_of_libraries_are_read_and_those_of_old_nccl_known(library, version, old):
    assert (version_of(library), is_old(library)) == (version, old)


def test_a_forced_algorithm_is_a_class_of_its_own_and_the_usual_one_is_that_of_figures_without_a_name():
    cluster = read_machine("8xh100-400g", "--cluster")
    call = {"dtype": "float32", "in_place": True}
    ring = rates_of(cluster, "all_reduce", 1, 8, 16 << 30, algorithm="ring", **call)
    assert all(360e9 < rate < 370e9 for each in ring.values() for rate in each.rates)
    assert len(ring) == 2
    by_default = rates_of(cluster, "all_reduce", 1, 8, 16 << 30, **call)
    assert all(rate > 475e9 for each in by_default.values() for rate in each.rates)
    usual = rates_of(cluster, "all_reduce", 2, 8, 1 << 30, algorithm="nvls_tree", **call)
    assert usual == rates_of(cluster, "all_reduce", 2, 8, 1 << 30, **call)
    assert rates_of(cluster, "all_reduce", 2, 8, 1 << 30, algorithm="ring", **call) == {}


def test_every_row_of_the_table_is_of_a_class_that_a_described_cluster_has_or_of_unknown_ports():
    clusters = [read_machine(name, "--cluster").machine_class for name in cluster_names()]
    networks = {(each.fabric, each.network) for each in clusters if each} | {("nvlink3", "100g")}
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            assert not row["network"] or (row["fabric"], row["network"]) in networks
            assert row["source"]
            assert row["gpu"] in {gpu for each in clusters if each for gpu in each.gpus}
            assert float(row["busbw_GBps"]) > 0


@pytest.mark.parametrize(
    "row", ["nvlink4,400g,8", "f,n,8,two,all_reduce,1,float32,no,,,1,,m,g,,s,yes"]
)
def test_a_table_of_ones_own_with_a_row_that_is_not_a_figure_is_refused_by_its_line(row, tmp_path):
    table = tmp_path / "ours.csv"
    columns = TABLE.read_text().partition("\n")[0]
    table.write_text(f"{columns}\n{row}\n")
    with pytest.raises(BadInputError, match=r"ours\.csv: line 2"), with_tables(table):
        pass
    with pytest.raises(BadInputError, match=r"nowhere\.csv"), with_tables(tmp_path / "nowhere.csv"):
        pass


def test_a_table_of_ones_own_counts_until_its_context_ends_and_names_its_file(tmp_path):
    table = tmp_path / "ours.csv"
    columns = TABLE.read_text().partition("\n")[0].rpartition(",")[0]  # without the last column
    table.write_text(f"{columns}\nnvlink4,400g,8,2,reduce,1024,float32,no,,,3,2.30.1,m,H100,,a/b\n")
    cluster = read_machine("8xh100-400g", "--cluster")
    call = "reduce", 2, 8, 1024
    with with_tables(table):
        found = rates_of(cluster, *call, dtype="float32", in_place=False)
    assert {name: source.rates for name, source in found.items()} == {
        "a/b (in the file of ours.csv)": [3e9]
    }
    assert rates_of(cluster, *call, dtype="float32", in_place=False) == {}


def test_figures_that_nobody_called_healthy_make_no_class():
    h20 = read_machine("8xh20-800g", "--cluster")
    assert rates_of(h20, "all_reduce", 1, 8, 1 << 30, dtype="float32", in_place=False) == {}
    assert published_near(h20, "all_reduce", 1, 8, 1 << 30) == []
