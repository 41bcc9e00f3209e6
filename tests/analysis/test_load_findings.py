"""Where the choice of our table under load is another one than that of idle ranks, and what the idle one loses."""

import json

import pytest
from cli_runner import invoke
from model_observations import raw_trips
from raw_examples import case, outcome, raw
from row_examples import rounds_row

from hpccoll.analysis.tune_table import build_table, table_load_findings
from hpccoll.store.hdf5 import write_raw_file
from hpccoll.store.rows import Results

IDLE = {"ring": (10, 10, 10), "bruck": (20, 20, 20)}
UNDER_LOAD = {"ring": (42, 40, 44), "bruck": (20, 20, 20)}


def results(under_load, sizes=(1024, 65536), **changes):
    loads = ({}, IDLE), ({"load": "gemm", "params": {"load": "gemm"}}, under_load)
    rows = [
        rounds_row(
            algorithm,
            *times,
            runs=["run-1"] * 3,
            requested_bytes=size,
            bytes=size,
            transport="mpi",
            case_id=f"{algorithm}.{size}.{load}",
            **load,
            **changes,
        )
        for load, of_load in loads
        for algorithm, times in of_load.items()
        for size in sizes
    ]
    return Results(rows=tuple(rows), runs=(), planned=len(rows))


def findings(*arguments, **changes):
    return [
        (each.kind, each.values) for each in table_load_findings(results(*arguments, **changes))
    ]


def test_a_choice_that_load_changes_has_its_sizes_both_choices_and_the_loss_with_its_interval():
    ((kind, values),) = findings(UNDER_LOAD)
    assert (kind, values["load"], values["idle"], values["loaded"]) == (
        "load",
        "gemm",
        "ring",
        "bruck",
    )
    assert [loss.pop("size") for loss in values["losses"]] == [1024, 65536]
    ends = {"loss": 2.1, "low": 40 * 0.98 / (20 * 1.02), "high": 44 * 1.02 / (20 * 0.98)}
    assert [*values["losses"]] == [pytest.approx(ends)] * 2
    choices = {
        entry.setting.load: entry.ranges[0].choice.algorithm
        for entry in build_table(results(UNDER_LOAD)).entries
    }
    assert choices == {"idle": "ring", "gemm": "bruck"}


@pytest.mark.parametrize("times", [{"ring": (20, 20, 20), "bruck": (20, 20, 19)}, IDLE])
def test_a_choice_that_is_not_clearly_faster_under_load_is_no_finding(times):
    assert findings(times) == [("load_same", {"sizes": 2})]


def test_nothing_is_advised_where_ranks_outnumber_cores_and_nothing_is_said_without_load():
    assert findings(UNDER_LOAD, oversubscribed=True) == [("load_crowded", {"settings": 1})]
    assert findings({}) == []


@pytest.mark.parametrize("command", [("fit",), ("accept", "--cluster", "8xh100-400g")])
def test_what_is_held_against_a_model_leaves_results_under_load_out_and_says_so(command, tmp_path):
    params = {"load": "gemm"}
    name, *options = command
    write_raw_file(raw_trips(), tmp_path / "idle.h5")
    before = invoke(name, tmp_path, *options, "--json")
    write_raw_file(
        raw(outcome(case(params=params), load="gemm"), path="loaded.h5"), tmp_path / "loaded.h5"
    )
    after = invoke(name, tmp_path, *options, "--json")
    added = {*after.err.splitlines()} - {*before.err.splitlines()}
    assert added == {"hpccoll: note: 1 result under load left out"}
    rows = [
        json.loads(each.out)[0]["rows"] if name == "fit" else json.loads(each.out)
        for each in (before, after)
    ]
    assert len(rows[0]) == len(rows[1]) > 0
