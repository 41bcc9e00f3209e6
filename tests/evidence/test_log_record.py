"""The record of a launch: golden ones of whole and short logs, reasons of fallbacks, its JSON, NCCL's cost model."""

import json
import tomllib
from pathlib import Path

import pytest
from golden_page import assert_golden
from library_logs import GOLDEN, TEXTS, read_log, record_lines

from hpccoll.cases.library_request import NCCL_ALGORITHMS
from hpccoll.common.errors import BadInputError
from hpccoll.common.records import to_builtins
from hpccoll.evidence import fallback_reasons
from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.nccl import NUMBERED_ALGORITHMS
from hpccoll.evidence.probe_result import ProbeResult

SIZE = 64 << 20


def test_the_records_of_all_logs():
    page = [
        line
        for name in TEXTS
        for line in (f"== {name}", *record_lines(to_builtins(read_log(name))))
    ]
    assert_golden("records", page, GOLDEN)


def test_the_records_of_short_logs():
    """The facts of single lines in the words of each version, of damaged ones, and what follows from few of them."""
    page = []
    for section in (Path(__file__).parent / "short_logs.txt").read_text().split("## ")[1:]:
        title, _, log = section.partition("\n")
        page += [f"## {title}", *record_lines(to_builtins(read_logs({"a": log})))]
    assert_golden("short_logs", page, GOLDEN)


def test_each_line_is_recognised_with_its_feature_and_reason_and_each_known_reason_has_a_line():
    page, found = [], set()
    for line in (Path(__file__).parent / "refusals.txt").read_text().splitlines():
        unavailable = read_logs({"a": line}).unavailable
        found |= {(one.feature, one.reason) for one in unavailable}
        page += [line, *(f"  {one.feature}: {one.reason} <- {one.line}" for one in unavailable)]
    assert_golden("refusals", page, GOLDEN)
    table = tomllib.loads(Path(fallback_reasons.__file__).with_suffix(".toml").read_text())[
        "unavailable"
    ]
    assert {(row["feature"], row["reason"]) for row in table} <= found


def test_every_algorithm_of_nccl_has_a_number():
    assert sorted(NUMBERED_ALGORITHMS) == sorted(NCCL_ALGORITHMS.values())


def record(*, without="nothing", more=""):
    lines = [line for line in TEXTS["rdma-2.27"].splitlines() if without not in line]
    return read_logs({"a.log": "\n".join((*lines, more))})


def test_the_modelled_time_is_latency_plus_bytes_over_bandwidth():
    ring_simple = 56.4e-6 + SIZE / 24e9
    assert record().modelled_seconds(
        "all_reduce", SIZE, 4, dtype="float32", op="sum"
    ) == pytest.approx(ring_simple)


def test_without_a_single_matching_line_and_cell_no_time_is_modelled():
    assert record().modelled_seconds("all_reduce", 16, 4) is None
    # a ring for one dtype, a tree for another
    assert record().modelled_seconds("all_reduce", SIZE, 4) is None
    assert record(without="|").modelled_seconds("all_reduce", 8, 4) is None
    second = next(
        line for line in TEXTS["rdma-2.27"].splitlines() if "AllReduce |" in line
    ).replace("14.4/", "99.9/")
    assert record(more=second).modelled_seconds("all_reduce", 8, 4) is None


@pytest.mark.parametrize("name", TEXTS)
def test_a_record_survives_its_json(name):
    result = ProbeResult(record=read_log(name), logs="here")
    assert ProbeResult.from_json(json.loads(json.dumps(result.to_json()))) == result


def test_another_document_is_refused_by_its_key():
    with pytest.raises(BadInputError) as caught:
        ProbeResult.from_json({"record": {"collectives": [{}]}})
    assert caught.value.key == "evidence.record.collectives.0.collective"
