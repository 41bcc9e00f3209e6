"""``hpccoll.open``: rows, runs and gaps as pandas frames, and which paths and libraries it needs."""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import raw_examples
import step_examples
from hypothesis import given, settings
from hypothesis import strategies as st
from written_runs import write_run

import hpccoll
from hpccoll.common.errors import BadInputError
from hpccoll.judge.run_comparison import compare
from hpccoll.render.export import export
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results, to_results
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.rows import RULES

pd = pytest.importorskip("pandas")
pytest.importorskip("xarray")

from hpccoll.result_set import ResultSet  # noqa: E402 - only with both libraries


def plain(value):
    """Return a value of a frame as JSON has it."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value


def records(frame):
    return [{name: plain(value) for name, value in row.items()} for row in frame.to_dict("records")]


@pytest.fixture
def file(tmp_path):
    """A file of a correct case, a wrong one and a skipped one."""
    rooted = {
        "collective": "broadcast",
        "algorithm": "binomial",
        "op": None,
        "in_place": True,
        "root": 1,
    }
    cases = [raw_examples.case(8), raw_examples.case(16, **rooted), raw_examples.case(32)]
    outcomes = (
        raw_examples.outcome(cases[0]),
        raw_examples.outcome(cases[1], status="wrong", wrong=7, reason="rank 0: bad"),
        raw_examples.skipped(cases[2]),
    )
    hdf5.write_raw_file(raw_examples.raw(*outcomes), tmp_path / "F.h5")
    return tmp_path / "F.h5"


@settings(max_examples=20)
@given(raw_examples.raw_results(), st.sampled_from(RULES))
def test_rows_are_those_of_an_export(raw, rule):
    results = to_results(ResultFiles(raw_results=[raw]), rule=rule)
    assert records(ResultSet(results).rows) == json.loads(export(results, "json"))


def test_columns_have_the_same_types_with_and_without_values(file, tmp_path):
    rows = hpccoll.open(file).rows
    nothing = tmp_path / "nothing.h5"
    hdf5.write_raw_file(replace(raw_examples.raw(raw_examples.outcome()), attempts=[]), nothing)
    assert hpccoll.open(nothing).rows.dtypes.to_dict() == rows.dtypes.to_dict()
    assert len(hpccoll.open(nothing).missing) == 1
    expected = {
        "bytes": "int64",
        "root": "Int64",
        "wrong": "Int64",
        "median_s": "float64",
        "in_place": "bool",
        "converged": "boolean",
        "reason": "string",
        "algorithm": "string",
        "params": "object",
    }
    assert {name: str(rows.dtypes[name]) for name in expected} == expected
    assert rows.root.isna().tolist() == [True, True, False]
    assert rows.loc[rows.status == "skipped", "wrong"].isna().all()


def test_a_relative_path_outlives_a_change_of_the_directory(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    results = hpccoll.open("F.h5")
    monkeypatch.chdir("/")
    assert results.times().sizes["case"] == 3


@pytest.mark.parametrize(
    ("paths", "options"),
    [((), {}), (("none.h5",), {}), (("page.yaml",), {}), (("F.h5",), {"rule": "mean"})],
)
def test_what_cannot_be_opened_is_an_error_of_one_line(file, monkeypatch, paths, options):
    monkeypatch.chdir(file.parent)
    Path("page.yaml").touch()
    with pytest.raises(BadInputError) as caught:
        hpccoll.open(*paths, **options)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_a_warning_and_a_gap(file):
    (file.parent / "G.h5").write_bytes(file.read_bytes()[:900])
    with pytest.warns(UserWarning, match=r"G\.h5") as caught:
        results = hpccoll.open(file.parent)
    assert caught[0].filename == __file__
    assert len(results.rows) == 3
    assert results.missing.case_id.tolist()[0] == "G.h5"


def test_the_package_is_imported_without_any_library():
    program = "import hpccoll, sys; print(*({'numpy', 'pandas', 'xarray', 'h5py'} & sys.modules.keys()), hpccoll.open)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("<function open")


@pytest.mark.parametrize("library", ["pandas", "xarray"])
def test_a_missing_library_names_the_extra(monkeypatch, library):
    for name in [
        name for name in sys.modules if name.startswith(("hpccoll.analysis", "hpccoll.result_set"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"{library}.*hpccoll\[analysis\]"):
        hpccoll.open(".")


def test_a_timeline_has_each_part_of_a_single_training_step_on_each_rank(tmp_path, file):
    hdf5.write_raw_file(step_examples.steps({"ring": 12, "null": 0}), tmp_path / "S.h5")
    results = hpccoll.open(tmp_path / "S.h5")
    (case,) = results.rows.case_id[results.rows.algorithm == "ring"]
    timeline = results.timeline(case)
    buckets = timeline[(timeline["rank"] == 1) & (timeline.operation == "bucket 3")]
    assert buckets[["ready_s", "begin_s", "end_s"]].iloc[0].tolist() == pytest.approx(
        [0.030, 0.030, 0.034]
    )
    assert buckets[["collective", "bytes", "phase"]].iloc[0].tolist() == [
        "all_reduce",
        8000,
        "backward",
    ]
    computed = timeline[timeline.operation == "computation"]
    assert computed.groupby("phase").size().to_dict() == {"forward": 2, "backward": 6}
    assert computed.end_s.max() == pytest.approx(0.030)
    assert results.timeline(results.rows.set_index("case_id", drop=False).loc[case]).equals(
        timeline
    )
    for wrong, words in ((results.rows, "2 are selected"), (results.rows[:0], "selected")):
        with pytest.raises(BadInputError, match=words):
            results.timeline(wrong)
    with pytest.raises(BadInputError, match="not a measured training step"):
        hpccoll.open(file).timeline(hpccoll.open(file).rows.iloc[0])


def test_a_comparison_is_a_frame_with_the_worst_case_first(tmp_path):
    old = hpccoll.open(write_run(tmp_path / "old.h5", provenance={"kernel": "6.1"}))
    slower = {("ring", 4096): 1.3, ("ring", 1024): 0.7, ("recursive_doubling", 65536): None}
    new = hpccoll.open(write_run(tmp_path / "new.h5", slower, seed=2, provenance={"kernel": "6.2"}))
    frame = new.compare(old)
    compared = compare(old._results, new._results)
    assert records(frame) == [
        {"verdict": str(held.verdict), **plain(held.to_json())} for held in compared.cases
    ]
    assert frame.verdict.tolist()[:3] == ["regression", "missing", "improvement"]
    assert frame.attrs["changes"] == {"kernel": {"old": "6.1", "new": "6.2"}}
    assert frame.attrs["loads"] == {"old": None, "new": None}
    worst = frame.iloc[0]
    assert (worst.algorithm, worst.requested_bytes) == ("ring", 4096)
    assert worst.low < 1.3 < worst.high
    assert new.times(worst.case_id).sizes["case"] == 1
    assert old.compare(new).iloc[0].case_id == frame.iloc[2].case_id
    assert "regression" not in new.compare(old, tolerance=0.5).verdict.tolist()
    with pytest.raises(BadInputError, match=r"^tolerance: 0 "):
        new.compare(old, tolerance=0)


def test_frames_are_written_as_parquet_with_the_columns_of_an_export(file, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow writes Parquet")
    results = hpccoll.open(file)
    results.rows.to_parquet(tmp_path / "rows.parquet", index=False)
    (tmp_path / "export.parquet").write_bytes(export(read_results([file]), "parquet"))
    written = parquet.read_table(tmp_path / "rows.parquet")
    exported = parquet.read_table(tmp_path / "export.parquet")
    assert written.to_pylist() == exported.to_pylist()
    selected = results.rows.query("status == 'ok'")
    selected.to_parquet(tmp_path / "selected.parquet")
    (params,) = pd.read_parquet(tmp_path / "selected.parquet").params.map(json.loads)
    assert params == selected.params.iloc[0]
    results.runs.to_parquet(tmp_path / "runs.parquet")
    assert list(pd.read_parquet(tmp_path / "runs.parquet").run_id) == list(results.runs.run_id)


def test_duckdb_reads_a_frame_that_was_written_as_parquet(file, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow writes Parquet")
    duckdb = pytest.importorskip("duckdb", reason="duckdb reads Parquet")
    rows = hpccoll.open(file).rows
    rows.to_parquet(tmp_path / "rows.parquet")
    query = f"select case_id, median_s, params->>'$.no' from '{tmp_path}/rows.parquet'"  # noqa: S608 - ours
    assert [row[0] for row in duckdb.sql(query).fetchall()] == list(rows.case_id)
