"""Times that NCCL's own model predicts are drawn and compared with the measured ones."""

import json
from functools import partial

import pytest
from finding_values import assert_findings

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.evidence.log_record import CollectiveLine, LogRecord, ModelledCost
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.render.charts import FIGURES
from hpccoll.store.schema import ON_SHARED_GPU

SIZES = 1024, 1 << 20
TIME = next(figure for figure in FIGURES if figure.name == "time")


def measured(make_row, make_run, of_rows, **changes):
    """NCCL's own, twice as slow as it expects at the first size and half as slow again at the second; and a ring."""
    ring = {"collective": "all_reduce", "algorithm": "ring", "protocol": "LL"}
    cell = ModelledCost(**ring, latency_s=1e-5, bytes_per_s=1e9)
    ran = (CollectiveLine(**ring, bytes=n, line="AllReduce: ...") for n in SIZES)
    found = ProbeResult(
        record=LogRecord(library="nccl", version="2.30.7", collectives=tuple(ran), model=(cell,))
    )
    rows = [
        make_row(
            name,
            2,
            n,
            seconds=slower * (1e-5 + n / 1e9),
            **{"transport": "nccl", "executed": "ring", **changes},
        )
        for n, slower in zip(SIZES, (2, 1.5), strict=True)
        for name in ("native", "ring")
    ]
    return of_rows(*rows, runs=[make_run(evidence=found.to_json())])


def test_times_of_the_model_are_dashed_lines_and_ratios_but_not_of_a_shared_gpu_or_of_mpi(
    make_row, make_run, of_rows
):
    make = partial(measured, make_row, make_run, of_rows)
    one_gpu, mpi = make(kind=ON_SHARED_GPU), make(transport="mpi")
    assert_findings("library_findings", {
        "the smallest and the largest ratio to the model": ("library_model", make()),
        "none of one GPU": ("library_model", one_gpu), "none of MPI": ("library_model", mpi),
    })  # fmt: skip
    for results, times in (
        (make(), {("native", n): 1e-5 + n / 1e9 for n in SIZES}),
        (one_gpu, {}),
        (mpi, {}),
    ):
        (group,) = chart_groups(results)
        drawn = TIME.specification(group)
        data = [d for values in drawn["datasets"].values() for d in values]
        found = {
            (d["series"], d["bytes"]): d["expected"] for d in data if d["expected"] is not None
        }
        assert found == pytest.approx(times)
        assert ("strokeDash" in json.dumps(drawn["spec"]["layer"][0])) == bool(times)
        assert TIME.group_caption(group).endswith(TIME.model_caption) == bool(times)
