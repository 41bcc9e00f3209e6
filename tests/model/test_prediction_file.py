"""Predictions as raw files: what they say of themselves, who reads them, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import raw_examples
from predicted_machines import NCCL, cluster, fitted, in_racks

import hpccoll
from hpccoll.common.errors import BadInputError
from hpccoll.model.observations import observations
from hpccoll.model.predict import Request, predict
from hpccoll.model.prediction_file import FILE_RANKS, check_file, raw_predictions
from hpccoll.model.run_model import models_of
from hpccoll.store.hdf5 import write_raw_file
from hpccoll.store.load_results import read_results

SIZES = (1 << 12, 1 << 16)
SWITCHES = {"kind": "switches"}


def predictions(machine=None, nodes=(2, 4), algorithms=("ring",), **more):
    return predict(
        machine or fitted(), Request(nodes=nodes, sizes=SIZES, algorithms=algorithms, **more)
    )


def written(path, predicted):
    write_raw_file(raw_predictions(predicted, path), path)
    return read_results([path])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "predicted.h5"


@pytest.mark.filterwarnings("ignore:.*rank_stride")
def test_a_row_has_the_time_and_the_interval_of_its_prediction_and_says_that_nothing_ran(path):
    predicted = predictions(nodes=(4, 8))
    rows = {(row.nodes, row.requested_bytes): row for row in written(path, predicted).rows}
    assert len(rows) == len(predicted.predictions) == 4
    for each in predicted.predictions:
        row = rows[each.nodes, each.requested_bytes]
        assert row.median_s == pytest.approx(each.value_s, abs=1e-9)
        assert (row.ci_low_s, row.ci_high_s) == (each.low_s, each.high_s)
        assert (row.bytes, row.ranks, row.ranks_per_node) == (each.nbytes, each.nodes, 1)
        assert (row.kind, row.executed, row.executor, row.wrong, row.p99_s) == (
            "simulated",
            "nothing",
            *[None] * 3,
        )
        assert (
            "within what was measured" if each.nodes == 4 else "2 times the measured nodes"
        ) in row.evidence
    times = hpccoll.open(path).times()
    assert np.nanmax(times.time_s.values) == pytest.approx(
        max(row.median_s for row in rows.values())
    )


def test_runs_hold_the_machine_file_and_its_error(path):
    machine = fitted(validation={"cases": 9, "error_median": 0.07, "error_p90": 0.2})
    for run in written(path, predictions(machine)).runs:
        assert run.provenance["machine_file"] == machine.model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
        assert run.machine == machine.name
        assert "7% (median)" in run.provenance["prediction"]


def test_the_model_of_nccl_is_a_kind_of_its_own(path):
    machine = cluster(nccl=NCCL)
    rows = written(path, predictions(machine)).rows
    kinds = {row.kind: {each.algorithm for each in rows if each.kind == row.kind} for row in rows}
    assert kinds == {"simulated": {"ring"}, "modelled": {"nccl_ring", "nccl_tree"}}
    assert {(row.transport, row.device) for row in rows} == {("nccl", "cuda")}
    assert {row.ci_low_s for row in rows if row.kind == "modelled"} == {None}
    evidence = {row.evidence for row in rows if row.kind == "modelled"}
    assert all("; protocol LL" in each or "; protocol Simple" in each for each in evidence)


def test_switches_are_no_ranks_and_their_run_is_assumed(path):
    machine = in_racks(aggregators=SWITCHES)
    results = written(path, predictions(machine, algorithms=("ring", "sharp_emulated")))
    assumed = {run.run_id: bool(run.provenance["assumed"]) for run in results.runs}
    assert {row.algorithm for row in results.rows if assumed[row.run_id]} == {"sharp_emulated"}
    assert {(row.aggregators, row.ranks) for row in results.rows} == {(0, 4), (0, 8)}


def test_nothing_is_fitted_to_predictions(path):
    raw = raw_predictions(predictions(), path)
    assert [*observations(raw)] == []
    with pytest.raises(BadInputError):
        models_of([raw])


def test_a_layout_with_too_many_ranks_is_refused_before_anything_is_simulated(path):
    most = Request(nodes=[2, FILE_RANKS.maximum], sizes=SIZES)
    check_file(path, fitted(), most)
    with pytest.raises(BadInputError, match=f"{FILE_RANKS.maximum + 1} ranks"):
        check_file(path, fitted(), replace(most, nodes=[FILE_RANKS.maximum + 1]))
    with pytest.raises(BadInputError, match="32768 ranks"):
        check_file(path, in_racks(), most)


def test_predictions_replace_predictions_and_nothing_else(path):
    request = Request(nodes=[2], sizes=SIZES)
    written(path, predictions())
    check_file(path, fitted(), request)
    for write in (
        lambda: write_raw_file(raw_examples.raw(raw_examples.outcome()), path),
        lambda: path.write_text("a"),
    ):
        write()
        with pytest.raises(BadInputError, match="something else"):
            check_file(path, fitted(), request)
