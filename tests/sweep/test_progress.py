"""The progress of a sweep: counted in the journals, printed in a log."""

import io
from itertools import count
from types import SimpleNamespace

import pytest
import raw_examples

from hpccoll.cases.case import Effort
from hpccoll.common.terminal import ERASE_LINE, PrintableStream
from hpccoll.store.checksummed_lines import ChainEnd
from hpccoll.sweep.progress import (
    ALL_MEASURED,
    SLURM_POLLS,
    MeasurementCount,
    MeasurementCounter,
    TimeLeft,
    progress_display,
)


@pytest.fixture
def tally(tmp_path):
    cases = [raw_examples.case(8 * 2**i) for i in range(5)]
    jobs = [raw_examples.job(*cases, name=name, effort=Effort(rounds=2)) for name in ("a", "b")]
    (tmp_path / "raw").mkdir()
    return MeasurementCounter(SimpleNamespace(jobs=jobs), tmp_path)


def timed(done):
    """So many measurements that all took time."""
    return MeasurementCount(done, done)


def encode_line(record):
    return ChainEnd().encode([record])[0]


def write(journal, *lines):
    """Append records, or bytes as they are."""
    with journal.open("ab") as file:
        file.writelines(line if isinstance(line, bytes) else encode_line(line) for line in lines)


def test_outcomes_are_counted_as_they_come(tally, tmp_path):
    journal = tmp_path / "raw" / "a.h5.journal"
    assert tally.count().done == 0
    write(
        journal, {"job": {}}, {"attempt": {}}, {"start": "x"}, {"outcome": {"reason": '{"outcome"'}}
    )
    assert tally.count().done == 1
    half = encode_line({"outcome": 2})
    write(journal, {"start": "y"}, half[:60])
    assert tally.count().done == 1
    write(journal, half[60:], {"outcome": 3})
    assert [tally.count().done for _ in range(2)] == [3, 3]


def test_all_rounds_of_a_case_that_is_skipped_are_done_and_take_no_time(tally, tmp_path):
    journal = tmp_path / "raw" / "a.h5.journal"
    write(journal, {"outcome": {"status": "ok", "reason": '"status": "skipped"'}})
    skipped = {"outcome": {"status": "skipped"}}
    write(journal, skipped, {"start": "x"}, encode_line(skipped)[:-6])
    assert tally.count() == (4, 2)
    write(journal, b'ped"}}')
    assert tally.count() == (5, 1)
    journal.unlink()
    (tmp_path / "raw" / "a.h5").touch()
    assert tally.count() == (10, 8)  # of the last poll: complete files are not read again


def test_the_remaining_time_is_estimated_from_the_pace_so_far():
    pace = TimeLeft(100)
    texts = [
        pace.text(timed(done), now)
        for done, now in ((0, 0.0), (0, 500.0), (10, 600.0), (10, 610.0), (30, 620.0))
    ]
    # the first 10 came after a wait in the queue
    assert texts == ["", "", "", "", "about 70 s left"]
    assert pace.text(timed(40), 1200.0) == "about 20 min left"
    assert pace.text(timed(100), 1300.0) == ""
    earlier = TimeLeft(100)  # what an earlier sweep has measured is no part of the pace
    assert [earlier.text(timed(n), now) for n, now in ((80, 0.0), (81, 5.0), (91, 25.0))] == [
        "",
        "",
        "about 18 s left",
    ]


@pytest.mark.parametrize("slurm", [False, True])
def test_a_log_says_how_long_the_rest_will_take_and_how_seldom_slurm_is_asked_where_it_is(
    capsys, monkeypatch, slurm
):
    clock = count(0.0, 10.0)
    monkeypatch.setattr(
        "hpccoll.sweep.progress.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    with progress_display(30, slurm=slurm) as show:
        for done in (0, 3, 6, 30):
            show(timed(done))
    assert capsys.readouterr().err.splitlines() == [
        "3 of 30 measurements, 20 s",
        "6 of 30 measurements, 30 s, about 80 s left",
        "30 of 30 measurements, 40 s",
        ALL_MEASURED + SLURM_POLLS * slurm,
    ]


def test_a_terminal_has_one_line_that_is_replaced(monkeypatch):
    below = io.StringIO()
    below.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", PrintableStream(below))
    with progress_display(30, slurm=True) as show:
        for done in (0, 1, 20):
            show(timed(done))
    assert "20 of 30 measurements" in below.getvalue()
    assert "\n" not in below.getvalue()
    assert below.getvalue().endswith(ERASE_LINE)
