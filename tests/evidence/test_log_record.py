"""The record of a launch: its JSON, and NCCL's cost model applied to a case."""

import json

import pytest
from library_logs import TEXTS

from hpccoll.common.errors import BadInputError
from hpccoll.evidence.log_record import CollectiveLine, LogRecord, ModelledCost, Unavailable
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.probe_result import ProbeResult

SIZE = 64 << 20


def record(*, without="nothing"):
    return read_logs({"a.log": "\n".join(line for line in TEXTS["rdma-2.27"].splitlines() if without not in line)})


def test_the_modelled_time_is_latency_plus_bytes_over_bandwidth():
    ring_simple = 56.4e-6 + SIZE / 24e9
    assert record().modelled_seconds("all_reduce", SIZE, 4, dtype="float32", op="sum") == pytest.approx(ring_simple)
    tree_ll = 14.4e-6 + 8 / 3e9
    assert record().modelled_seconds("all_reduce", 8, 4) == pytest.approx(tree_ll)


def test_without_a_single_matching_line_and_cell_no_time_is_modelled():
    assert record().modelled_seconds("all_reduce", 16, 4) is None
    assert record().modelled_seconds("all_reduce", SIZE, 4) is None  # a ring for one dtype, a tree for another
    assert record(without="|").modelled_seconds("all_reduce", 8, 4) is None


def test_contradictory_cells_model_no_time():
    second = next(line for line in TEXTS["rdma-2.27"].splitlines() if "AllReduce |" in line).replace("14.4/", "99.9/")
    assert read_logs({"a.log": f"{TEXTS['rdma-2.27']}\n{second}"}).modelled_seconds("all_reduce", 8, 4) is None


def test_a_record_survives_its_json():
    record = LogRecord(
        library="nccl",
        collectives=(CollectiveLine(collective="all_reduce", bytes=8, algorithm="ring", line="a line"),),
        unavailable=(Unavailable(feature="sharp", reason="too few nodes", line="b"),),
        paths={"NET/IB/GDRDMA": 4},
        network=("IB",),
        model=(
            ModelledCost(collective="all_reduce", algorithm="ring", protocol="LL", latency_s=1e-6, bytes_per_s=1e9),
        ),
    )
    result = ProbeResult(record=record, logs="here")
    assert ProbeResult.from_json(json.loads(json.dumps(result.to_json()))) == result


@pytest.mark.parametrize(
    ("document", "key"),
    [
        ([], "evidence"), ({"records": None}, "evidence.key"), ({"record": {"libary": "nccl"}}, "evidence.record.key"),
        ({"record": {"collectives": [{}]}}, "evidence.record.collectives.0.collective"),
    ],
)  # fmt: skip
def test_another_document_is_refused_by_its_key(document, key):
    with pytest.raises(BadInputError) as caught:
        ProbeResult.from_json(document)
    assert caught.value.key == key
