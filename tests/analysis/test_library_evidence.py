"""Times that NCCL's own model predicts are drawn and compared with the measured ones."""

import json
from dataclasses import replace

import pytest
from finding_values import kinds_of, only_values

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.evidence.log_record import CollectiveLine, LogRecord, ModelledCost
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.render.charts import FIGURES
from hpccoll.store.schema import ON_SHARED_GPU

SIZES = 1024, 1 << 20
TIME = next(figure for figure in FIGURES if figure.name == "time")


@pytest.fixture
def measured(make_row, make_run, of_rows):
    """NCCL's own, twice as slow as it expects at the first size and half as slow again at the second; and a ring."""

    def make(**changes):
        ring = {"collective": "all_reduce", "algorithm": "ring", "protocol": "LL"}
        cell = ModelledCost(**ring, latency_s=1e-5, bytes_per_s=1e9)
        ran = (CollectiveLine(**ring, bytes=n, line="AllReduce: ...") for n in SIZES)
        found = ProbeResult(record=LogRecord(library="nccl", version="2.30.7", collectives=tuple(ran), model=(cell,)))
        rows = [
            make_row(name, 2, n, transport="nccl", executed="ring", seconds=slower * (1e-5 + n / 1e9))
            for n, slower in zip(SIZES, (2, 1.5), strict=True)
            for name in ("native", "ring")
        ]
        run = make_run(evidence=found.to_json())
        (group,) = chart_groups(of_rows(*(replace(row, **changes) for row in rows), runs=[run]))
        return group

    return make


def expected(group):
    """Return the series that have a dashed line, each with its values."""
    data = [d for values in TIME.specification(group)["datasets"].values() for d in values]
    return {(d["series"], d["bytes"]): d["expected"] for d in data if d["expected"] is not None}


def test_the_chart_of_time_has_a_dashed_line_at_the_times_of_the_model(measured):
    group = measured()
    assert expected(group) == pytest.approx({("native", n): 1e-5 + n / 1e9 for n in SIZES})
    assert "strokeDash" in json.dumps(TIME.specification(group)["spec"]["layer"][0])
    assert TIME.group_caption(group).endswith(TIME.model_caption)


def test_the_finding_has_the_ratios_to_the_model(measured):
    values = only_values(measured(), "library_model")
    assert values["series"] == "native"
    assert [nbytes for _, nbytes in values["ratios"]] == [1 << 20, 1024]
    assert [ratio for ratio, _ in values["ratios"]] == pytest.approx([1.5, 2.0])


@pytest.mark.parametrize(
    "changes", [{"kind": ON_SHARED_GPU}, {"transport": "mpi"}], ids=["one GPU", "another transport"]
)
def test_the_model_has_no_times_for_a_shared_gpu_or_mpi(measured, changes):
    group = measured(**changes)
    assert not expected(group)
    assert TIME.model_caption not in TIME.group_caption(group)
    assert "library_model" not in kinds_of(group)
