"""GPUs that results name: those of an output, those of our own ranks, and names that say no model."""

import pytest
from compared_runs import run
from predicted_machines import in_racks

from hpccoll.judge.named_gpus import gpus_with_model, other_gpus
from hpccoll.model.machine_file import read_machine

H100 = read_machine("8xh100-400g", "--cluster")


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
