"""A full disk: the reserve file makes room for the failure notes."""

import errno

import pytest
from journal_examples import begin

from hpccoll.store import journal as journal_module
from hpccoll.store.checksummed_lines import append_records
from hpccoll.store.journal import read_failure_notes, write_failure_note
from hpccoll.store.raw_results import Failure


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_reserve_is_freed_for_failure_notes(out, monkeypatch, number):
    journal = begin(out)
    reserve = out.with_name("F.h5.reserve")
    assert reserve.stat().st_size >= 4096

    def full(path, *events):
        if reserve.exists():
            raise OSError(number, "no room")
        append_records(path, *events)

    monkeypatch.setattr(journal_module, "append_records", full)
    write_failure_note(out, Failure(case_id="x", rank=0, message="no room"))
    assert [failure.message for failure in read_failure_notes(out)] == ["no room"]
    assert not reserve.exists()
    journal.close(remove=False)


def test_other_errors_than_a_full_disk_are_raised(out, monkeypatch):
    journal = begin(out)

    def broken(_path, *_events):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(journal_module, "append_records", broken)
    with pytest.raises(OSError, match="broken"):
        write_failure_note(out, Failure(case_id="x", rank=0, message="no room"))
    assert out.with_name("F.h5.reserve").exists()
    journal.close(remove=False)
