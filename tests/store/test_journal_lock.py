"""The lock of a journal: one process writes at a time."""

import subprocess
import sys
from pathlib import Path

import pytest
import raw_examples
from journal_examples import JOB, begin

from hpccoll.common.errors import BadInputError
from hpccoll.store import journal as journal_module
from hpccoll.store.durable_files import open_without_links
from hpccoll.store.journal import Journal, journal_path, read_journal


def test_a_second_writer_is_refused_until_the_first_has_ended(out):
    program = (
        "import sys, raw_examples; from pathlib import Path; from hpccoll.store.journal import Journal;"
        "j = Journal(Path(sys.argv[1]), raw_examples.job(raw_examples.case(8)));"
        "print('open', flush=True); sys.stdin.read()"
    )
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", program, str(out)], env={"PYTHONPATH": tests}, stdin=-1, stdout=-1
    ) as first:
        assert first.stdout.readline() == b"open\n"
        with pytest.raises(BadInputError, match="no other process writes"):
            Journal(out, raw_examples.job(raw_examples.case(8)))
        assert read_journal(journal_path(out)).is_running
        first.kill()
        first.wait()
    Journal(out, raw_examples.job(raw_examples.case(8))).close(remove=True)


def test_a_journal_that_another_process_just_replaced_is_refused(out, monkeypatch):
    begin(out).close(remove=False)
    other = out.with_name("other")
    other.write_bytes(journal_path(out).read_bytes())

    def open_after_replacement(path, flags):
        descriptor = open_without_links(path, flags)
        if other.exists():
            other.replace(path)
        return descriptor

    monkeypatch.setattr(journal_module, "open_without_links", open_after_replacement)
    with pytest.raises(BadInputError, match="no other process writes"):
        Journal(out, JOB)
