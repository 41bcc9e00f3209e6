"""The record of a launch: the golden ones of all logs, its JSON, and NCCL's cost model applied to a case."""

import json

import pytest
from golden_page import assert_golden
from library_logs import GOLDEN, TEXTS, read_log, record_lines

from hpccoll.common.errors import BadInputError
from hpccoll.common.records import to_builtins
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.probe_result import ProbeResult

SIZE = 64 << 20


def test_the_records_of_all_logs():
    page = [line for name in TEXTS for line in (f"== {name}", *record_lines(to_builtins(read_log(name))))]
    assert_golden("records", page, GOLDEN)


def record(*, without="nothing", more=""):
    lines = [line for line in TEXTS["rdma-2.27"].splitlines() if without not in line]
    return read_logs({"a.log": "\n".join((*lines, more))})


def test_the_modelled_time_is_latency_plus_bytes_over_bandwidth():
    ring_simple = 56.4e-6 + SIZE / 24e9
    assert record().modelled_seconds("all_reduce", SIZE, 4, dtype="float32", op="sum") == pytest.approx(ring_simple)


def test_without_a_single_matching_line_and_cell_no_time_is_modelled():
    assert record().modelled_seconds("all_reduce", 16, 4) is None
    assert record().modelled_seconds("all_reduce", SIZE, 4) is None  # a ring for one dtype, a tree for another
    assert record(without="|").modelled_seconds("all_reduce", 8, 4) is None
    second = next(line for line in TEXTS["rdma-2.27"].splitlines() if "AllReduce |" in line).replace("14.4/", "99.9/")
    assert record(more=second).modelled_seconds("all_reduce", 8, 4) is None


@pytest.mark.parametrize("name", TEXTS)
def test_a_record_survives_its_json(name):
    result = ProbeResult(record=read_log(name), logs="here")
    assert ProbeResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_another_document_is_refused_by_its_key():
    with pytest.raises(BadInputError) as caught:
        ProbeResult.from_json({"record": {"collectives": [{}]}})
    assert caught.value.key == "evidence.record.collectives.0.collective"
