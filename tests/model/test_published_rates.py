"""What was published near a case: the same few nodes, near sizes, whole nodes; and the sections of shipped clusters."""

import pytest
from predicted_machines import NCCL, in_racks

from hpccoll.common.errors import BadInputError
from hpccoll.model.machine_file import MachineFile, read_machine
from hpccoll.model.predict import Request, predict
from hpccoll.model.published_rates import published_near

MIB = 1 << 20


def published(nodes, mib, algorithm="ring", low=1e9, **more):
    about = {"collective": "all_reduce", "high_bytes_per_s": 2e9, "source": "someone"} | more
    return {"nodes": nodes, "bytes": mib * MIB, "algorithm": algorithm, "low_bytes_per_s": low, **about}


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
        (2, 64, [(2, 64, "NVLSTree"), (2, 64, "ring")]), (2, 200, [(2, 128, "NVLSTree")]), (2, 300, []), (2, 16, []),
        (1, 64, [(1, 64, "NVLS")]), (3, 64, []), (4, 64, [(8, 64, "ring")]), (16, 33, [(8, 64, "ring")]),
        (20, 64, [(32, 64, "ring")]), (65, 64, []),
    ],
)  # fmt: skip
def test_near_are_the_same_few_nodes_and_otherwise_half_to_twice_as_many_nodes_and_bytes(nodes, mib, expected):
    found = published_near(MACHINE, "all_reduce", nodes, 8, mib * MIB)
    assert [(each.nodes, each.nbytes // MIB, each.algorithm) for each in found] == expected


def test_another_collective_and_a_part_of_the_ranks_of_a_node_have_no_figures():
    assert published_near(MACHINE, "all_gather", 2, 8, 64 * MIB) == []
    assert published_near(MACHINE, "all_reduce", 2, 4, 64 * MIB) == []


def test_predictions_have_what_nccl_may_take_without_a_formula_and_what_was_published_near():
    request = Request(nodes=[1, 2, 4], sizes=[64 * MIB], algorithms=["ring"])
    rows = [each.to_json() for each in predict(MACHINE, request).predictions]
    missing = {row["nodes"]: row["unmodelled"] for row in rows}
    assert {nodes: "NVLS" in " ".join(names) for nodes, names in missing.items()} == {1: True, 2: True, 4: True}
    (near,) = next(row["published"] for row in rows if row["nodes"] == 4)
    assert (near["nodes"], near["low_bytes_per_s"], near["source"]) == (8, 1e9, ["someone"])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"low_bytes_per_s": 3e9}, "low_bytes_per_s"), ({"collective": "all_reduced"}, "all_reduce"),
        ({"high_bytes_per_s": float("nan")}, "high_bytes_per_s"), ({"nodes": 0}, "nodes"),
    ],
)  # fmt: skip
def test_a_figure_that_none_can_be_is_refused(changed, named):
    with pytest.raises((BadInputError, ValueError), match=named):
        in_racks(published=[published(2, 64) | changed])


def test_the_figures_of_a_shipped_cluster_stay_in_its_file_when_it_is_written_and_read_again():
    cluster = read_machine("8xh100-400g", "--cluster")
    again = MachineFile.model_validate(cluster.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again.published == cluster.published
    (near,) = published_near(again, "all_reduce", 2, 8, 1 << 30)
    assert (near.algorithm, near.low_bytes_per_s, near.high_bytes_per_s) == ("default (NVLSTree)", 445e9, 459e9)
