"""The directory that ``hpccoll report`` writes to: it replaces no report of other inputs unnoticed."""

import pytest
import raw_examples
from cli_runner import invoke

from hpccoll.store import hdf5


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, with two raw files."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        path = tmp_path / f"{name}.h5"
        # which takes no chart
        hdf5.write_raw_file(raw_examples.raw(raw_examples.skipped(), path=path), path)
    return tmp_path


def last(*arguments):
    """Return the last line of a report that is made."""
    result = invoke("report", *arguments)
    assert result.code == 3, result.err  # there is nothing but a skipped case
    return result.out.splitlines()[-1]


def test_the_report_of_a_file_is_next_to_it_and_that_of_a_directory_in_it(here):
    assert last("a.h5") == "report: a.report/index.html; --out DIR chooses another directory"
    assert last("b.h5") == "report: b.report/index.html; --out DIR chooses another directory"
    assert last(".") == "report: report/index.html"
    assert " - a</title>" in (here / "a.report" / "index.html").read_text()


def test_the_report_of_other_inputs_is_replaced_only_with_out_and_a_message(here):
    last("a.h5", "b.h5")
    before = (here / "a.report" / "index.html").read_text()
    assert invoke("report", "a.h5").is_bad_input("--out", "'a.report'", "the report of a.h5, b.h5")
    assert (here / "a.report" / "index.html").read_text() == before
    assert (
        last("a.h5", "--out", "a.report")
        == "report: a.report/index.html; it replaces the report of a.h5, b.h5"
    )
    assert last("a.h5") == "report: a.report/index.html; --out DIR chooses another directory"


@pytest.mark.parametrize("options", [(), ("--out", "a.report")])
def test_a_page_that_is_no_report_is_not_replaced(here, options):
    page = here / "a.report" / "index.html"
    page.parent.mkdir()
    page.write_bytes(b"\xff<html>")
    assert invoke("report", "a.h5", *options).is_bad_input("--out", "a.report", "did not write")
    assert [*page.parent.iterdir()] == [page]
    assert page.read_bytes() == b"\xff<html>"
