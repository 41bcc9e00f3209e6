"""GPUs that results name: those of an output, those of our own ranks, and names that say no model."""

import pytest
from compared_runs import run
from predicted_machines import in_racks
from published_outputs import Call, imported, printed

from hpccoll.judge.named_gpus import _own_gpus, gpus_with_model, likely_clusters, other_gpus
from hpccoll.model.machine_content import cluster_names
from hpccoll.model.machine_file import read_machine
from hpccoll.store.load_results import to_results

H100 = read_machine("8xh100-400g", "--cluster")
H20 = read_machine("8xh20-800g", "--cluster")


def of_our_ranks(*names):
    """Return a run whose ranks found GPUs with these names, a host each."""
    groups = [
        {"hosts": [f"n{number}"], "gpus": [{"bus": "0000:1", "name": name}]}
        for number, name in enumerate(names)
    ]
    return run({"gpus": groups})


@pytest.mark.parametrize(
    ("names", "others"),
    [
        (["NVIDIA H100 80GB HBM3", "NVIDIA H200"], []),
        (["NVIDIA L40S"], ["NVIDIA L40S"]),
        (["NVIDIA H20"], ["NVIDIA H20"]),
        ([], []),
        (["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"], ["NVIDIA A100-SXM4-80GB"]),
        (["NVIDIA Graphics Device", "", None], []),
    ],
)
def test_gpus_of_outputs_and_of_our_own_ranks_are_held_against_those_of_a_cluster(names, others):
    for measured in (run({"device_names": names}), of_our_ranks(*names)):
        reason = other_gpus(measured, H100)
        assert bool(reason) == bool(others)
        assert [name for name in names if name and name in reason] == others


@pytest.mark.parametrize(
    "provenance", [{}, {"gpus": 7}, {"gpus": [3, {"gpus": None}, {"gpus": ["x"]}]}]
)
def test_without_a_name_no_model_is_known(provenance):
    assert gpus_with_model(run(provenance or {"kernel": "Linux"})) == []


def test_a_machine_without_a_class_names_no_gpus_of_its_own():
    assert other_gpus(of_our_ranks("NVIDIA L40S"), in_racks()) == ""


@pytest.mark.parametrize(
    ("name", "shape", "clusters"),
    [
        ("NVIDIA H100 80GB HBM3", {}, ["8xh100-400g", "8xh100-400g-3to1"]),
        ("NVIDIA H20", {}, ["8xh20-800g"]),
        ("NVIDIA H200", {"gpus_per_node": 1}, ["1xh100-400g"]),
        ("NVIDIA GH200 120GB", {"gpus_per_node": 4}, ["4xgh200-200g"]),
        ("NVIDIA GH200 120GB", {"gpus_per_node": 1}, ["4xgh200-200g"]),
        ("NVIDIA GB10", {"gpus_per_node": 1}, ["dgx-spark"]),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", {"gpus_per_node": 1}, ["aws-g7e"]),
        ("AMD Instinct MI300X", {}, ["8xmi300x-400g"]),
        ("NVIDIA H20", {"gpus_per_node": 16}, []),
        ("NVIDIA Graphics Device", {}, []),
    ],
)
def test_the_clusters_with_the_gpus_of_results_and_as_many_a_node_are_likely(
    name, shape, clusters, tmp_path
):
    files = imported(tmp_path / "out.txt", printed([Call(1 << 30, 10)], gpu=name, **shape))
    likely = likely_clusters(to_results(files))
    assert likely.clusters[: len(clusters)] == clusters
    assert bool(likely.clusters) == bool(clusters)
    assert likely.gpus == ([] if "Device" in name else [name])


@pytest.mark.parametrize(
    ("name", "own", "others"),
    [
        (
            "NVIDIA H100 80GB HBM3",
            {"8xh100-400g", "aws-p5", "azure-nd-h100-v5", "gcp-a3-high", "oci-h100"},
            {"8xh200-400g", "aws-p5en"},
        ),
        (
            "NVIDIA H200",
            {"8xh200-400g", "aws-p5", "aws-p5en", "gcp-a3-ultra"},
            {"8xh100-400g", "8xh100-400g-3to1", "oci-h100"},
        ),
        ("AMD Instinct MI325X", {"8xmi325x-400g"}, {"8xmi300x-400g"}),
    ],
)
def test_clusters_of_another_gpu_with_the_same_figures_are_not_likely(name, own, others, tmp_path):
    files = imported(tmp_path / "out.txt", printed([Call(1 << 30, 10)], gpu=name))
    clusters = {*likely_clusters(to_results(files)).clusters}
    assert own <= clusters
    assert clusters.isdisjoint(others)


def test_the_first_clause_of_a_description_names_the_gpus_if_figures_of_several_count():
    for name in cluster_names():
        machine = read_machine(name, "--cluster")
        gpus = machine.machine_class.gpus if machine.machine_class else []
        if len(gpus) > 1:
            assert any(gpu.lower() in machine.source.partition(",")[0].lower() for gpu in gpus)


@pytest.mark.parametrize(
    ("description", "own"),
    [
        ("8 x H200 a node, like those of H20", ["H200"]),
        ("8xH20, like those of H200", ["H20"]),
        ("a machine without names", ["H20", "H200"]),
    ],
)
def test_a_description_names_the_gpus_of_its_cluster_or_those_of_the_class_are_its_own(
    description, own
):
    described = H20.model_copy(update={"source": description})
    like = H20.machine_class.model_copy(update={"gpus": ["H20", "H200"]})
    assert _own_gpus(described, like) == own


def test_a_name_that_begins_with_that_of_another_gpu_is_another_gpu():
    assert "NVIDIA H200" in other_gpus(of_our_ranks("NVIDIA H200"), H20)
    assert other_gpus(of_our_ranks("NVIDIA H20"), H20) == ""
