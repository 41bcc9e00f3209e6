"""``hpccoll export``: rows on stdout or in a file, whose ending says the format."""

import csv
import json
import sys

import pytest
import raw_examples
from cli_runner import invoke

from hpccoll.store import hdf5


@pytest.fixture
def results(tmp_path):
    """Return a raw file with one result."""
    path = tmp_path / "a.h5"
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome(raw_examples.case(8))), path)
    return path


def exported(results, out, *more):
    """Return the content of the file that export has written; stdout carries data only."""
    ended = invoke("export", results, "--out", out, *more)
    assert (ended.code, ended.out) == (0, "")
    assert str(out) in ended.err
    return out.read_bytes()


def test_without_a_file_rows_are_printed_as_json(results):
    ended = invoke("export", results)
    assert ended.err == ""
    assert len(json.loads(ended.out)) == 1


def test_the_ending_of_the_file_says_the_format(results, tmp_path):
    rows = json.loads(exported(results, tmp_path / "rows.json"))
    lines = csv.DictReader(exported(results, tmp_path / "rows.csv").decode().splitlines())
    assert [line["case_id"] for line in lines] == [row["case_id"] for row in rows]


def test_a_named_format_is_written_whatever_the_ending(results, tmp_path):
    lines = exported(results, tmp_path / "rows.csv", "--format", "lines")
    assert lines.startswith(b"case=")


def test_parquet_needs_no_redirection(results, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    exported(results, tmp_path / "rows.parquet")
    assert parquet.read_table(tmp_path / "rows.parquet").num_rows == 1


def test_an_unknown_ending_is_refused_with_those_that_have_a_format(results, tmp_path):
    out = tmp_path / "rows.xlsx"
    assert invoke("export", results, "--out", out).is_bad_input("--out", ".csv", ".parquet")
    assert not out.exists()


@pytest.mark.parametrize("package", ["pyarrow", "prometheus_client"])
def test_a_refusal_leaves_the_file_as_it_was_and_says_how_to_install_the_extra(
    results, tmp_path, monkeypatch, package
):
    monkeypatch.setitem(sys.modules, package, None)
    out = tmp_path / {"pyarrow": "rows.parquet", "prometheus_client": "rows.prom"}[package]
    out.write_text("earlier")
    assert invoke("export", results, "--out", out).is_bad_input("pip install 'hpccoll[export]'")
    assert out.read_text() == "earlier"


def test_a_file_that_cannot_be_written_is_bad_input(results, tmp_path):
    out = tmp_path / "nowhere" / "rows.csv"
    assert invoke("export", results, "--out", out).is_bad_input("--out")
