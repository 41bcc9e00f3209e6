"""Predictions as raw files: what they say of themselves, who reads them, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import raw_examples
from cli_runner import invoke
from predicted_machines import NCCL, cluster, fitted, in_racks

import hpccoll
from hpccoll.common.errors import BadInputError
from hpccoll.model.machine_file import write_machine
from hpccoll.model.observations import observations
from hpccoll.model.predict import Request, predict
from hpccoll.model.prediction_file import FILE_RANKS, check_file, raw_predictions, write_predictions
from hpccoll.model.run_model import models_of
from hpccoll.store.hdf5 import read_raw_file, write_raw_file
from hpccoll.store.load_results import read_results

SIZES = (1 << 12, 1 << 16)
SWITCHES = {"kind": "switches"}


def predictions(machine=None, nodes=(2, 4), algorithms=("ring",), **more):
    return predict(machine or fitted(), Request(nodes=nodes, sizes=SIZES, algorithms=algorithms, **more))


def written(path, predicted):
    write_predictions(predicted, path)
    return read_results([path])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "predicted.h5"


def test_a_row_has_the_time_and_the_interval_of_its_prediction(path):
    predicted = predictions()
    rows = {(row.nodes, row.requested_bytes): row for row in written(path, predicted).rows}
    assert len(rows) == len(predicted.predictions) == 4
    for each in predicted.predictions:
        row = rows[each.nodes, each.requested_bytes]
        assert row.median_s == pytest.approx(each.value_s, abs=1e-9)
        assert (row.ci_low_s, row.ci_high_s) == (each.low_s, each.high_s)
        assert (row.bytes, row.ranks, row.ranks_per_node) == (each.nbytes, each.nodes, 1)


def test_a_row_says_that_nothing_ran_and_how_far_it_is_from_what_was_measured(path):
    near, far = (row for row in written(path, predictions(nodes=(4, 8))).rows if row.bytes == SIZES[0])
    assert {near.kind, far.kind} == {"simulated"}
    assert (near.executed, near.executor, near.wrong, near.p99_s) == ("nothing", None, None, None)
    assert "within what was measured" in near.evidence
    assert "2 times the measured nodes" in far.evidence


def test_runs_hold_the_machine_file_and_its_error(path):
    machine = fitted(validation={"cases": 9, "error_median": 0.07, "error_p90": 0.2})
    results = written(path, predictions(machine))
    for run in results.runs:
        assert run.provenance["machine_file"] == machine.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert run.machine == machine.name
        assert "7% (median)" in run.provenance["prediction"]


def test_a_file_reads_as_it_was_written(path):
    raw = raw_predictions(predictions(), path)
    write_raw_file(raw, path)
    assert raw_examples.comparable(read_raw_file(path)) == raw_examples.comparable(raw)


def test_the_model_of_nccl_is_a_kind_of_its_own(path):
    machine = cluster(nccl=NCCL)
    rows = written(path, predictions(machine)).rows
    kinds = {row.kind: {each.algorithm for each in rows if each.kind == row.kind} for row in rows}
    assert kinds == {"simulated": {"ring"}, "modelled": {"nccl_ring", "nccl_tree"}}
    assert {(row.transport, row.device) for row in rows} == {("nccl", "cuda")}
    assert {row.ci_low_s for row in rows if row.kind == "modelled"} == {None}


def test_switches_are_no_ranks_and_their_run_is_assumed(path):
    machine = in_racks(aggregators=SWITCHES)
    results = written(path, predictions(machine, algorithms=("ring", "sharp_emulated")))
    assumed = {run.run_id: bool(run.provenance["assumed"]) for run in results.runs}
    assert {row.algorithm for row in results.rows if assumed[row.run_id]} == {"sharp_emulated"}
    assert {(row.aggregators, row.ranks) for row in results.rows} == {(0, 4), (0, 8)}


def test_ranks_that_aggregate_are_ranks_of_the_attempt(path):
    rows = written(path, predictions(in_racks(), algorithms=("sharp_emulated",), aggregators=1)).rows
    assert {(row.aggregators, row.ranks) for row in rows} == {(1, 4), (1, 8)}


@pytest.mark.parametrize("collective", ["broadcast", "all_gather", "send_recv", "barrier", "all_to_all_v"])
def test_every_kind_of_collective_has_a_file(path, collective):
    predicted = predict(in_racks(), Request(nodes=(2,), sizes=SIZES[:1], collective=collective))
    assert {row.algorithm for row in written(path, predicted).rows} == {one.algorithm for one in predicted.predictions}


def test_a_requested_mapping_is_that_of_the_row(path):
    assert {row.mapping for row in written(path, predictions(in_racks(), mapping="cyclic")).rows} == {"cyclic"}


def test_the_times_of_predictions_open_like_any_other(path):
    written(path, predictions())
    with pytest.warns(UserWarning, match="rank_stride"):
        times = hpccoll.open(path).times()
    assert np.nanmax(times.time_s.values) == pytest.approx(read_results([path]).rows[-1].median_s)


def test_nothing_is_fitted_to_predictions(path):
    measured = raw_examples.raw(raw_examples.outcome())
    raw = raw_predictions(predictions(), path)
    assert len([*observations(measured)]) == 1
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
    write_raw_file(raw_examples.raw(raw_examples.outcome()), path)
    with pytest.raises(BadInputError, match="something else"):
        check_file(path, fitted(), request)
    path.write_text("a text")
    with pytest.raises(BadInputError, match="something else"):
        check_file(path, fitted(), request)


def test_the_command_writes_a_file_that_validate_and_export_read(tmp_path, path):
    machine = tmp_path / "machine.json"
    write_machine(fitted(), machine)
    done = invoke("predict", "--machine", machine, "-a", "ring", "--nodes", "2,8", "-b", "64K", "--out", path)
    assert (done.code, str(path) in done.out) == (0, True)
    assert invoke("validate", path).code == 0
    rows = json.loads(invoke("export", path).out)
    assert [(row["kind"], row["algorithm"], row["nodes"]) for row in rows] == [("simulated", "ring", n) for n in (2, 8)]


def test_tune_of_predictions_alone_says_what_they_are(path, tmp_path):
    written(path, predictions())
    assert invoke("tune", path, "--out", tmp_path / "table.json").is_bad_input("4 simulated")
