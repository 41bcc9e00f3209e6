"""A file that is unchanged is not hashed again by the same user, and one that was changed always is."""

import os

import pytest
import raw_examples

from hpccoll.common.errors import BadInputError
from hpccoll.store import checked_seals, hdf5, sealed_file


@pytest.fixture
def seals(tmp_path, monkeypatch):
    """Return the file of checked seals, as a new process finds it; files may have been changed at any time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(checked_seals, "SETTLED_S", -60.0)
    checked_seals._checked.cache_clear()
    return tmp_path / "cache" / "hpccoll" / "seals"


@pytest.fixture
def hashed(monkeypatch):
    """Return a list with an entry for each time that the bytes of a file are hashed."""
    times, check = [], sealed_file.check_seal
    monkeypatch.setattr(sealed_file, "check_seal", lambda file: times.append(1) or check(file))
    return times


@pytest.fixture
def raw_file(tmp_path):
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), tmp_path / "F.h5")
    return tmp_path / "F.h5"


def read_in_another_process(file):
    checked_seals._checked.cache_clear()
    return hdf5.read_raw_file(file)


def test_an_unchanged_file_is_hashed_once_and_a_changed_one_again(seals, hashed, raw_file):
    for _ in range(3):
        read_in_another_process(raw_file)
    assert len(hashed) == 1
    content = raw_file.read_bytes()
    raw_file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BadInputError, match="its bytes differ from its seal"):
        read_in_another_process(raw_file)
    assert len(hashed) == 2
    assert len(seals.read_text().split()) == 1


@pytest.mark.usefixtures("seals")
def test_another_file_with_the_time_of_a_checked_one_is_hashed(hashed, raw_file, tmp_path):
    read_in_another_process(raw_file)
    found = raw_file.stat()
    other = tmp_path / "other.h5"
    other.write_bytes(raw_file.read_bytes())
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(raw_file)
    read_in_another_process(raw_file)
    assert len(hashed) == 2


def test_a_file_that_has_just_been_changed_is_hashed_again(seals, hashed, raw_file, monkeypatch):
    monkeypatch.setattr(checked_seals, "SETTLED_S", 3600.0)
    for _ in range(2):
        hdf5.read_raw_file(raw_file)
    assert len(hashed) == 2
    assert not seals.exists()


def test_a_damaged_list_and_one_that_cannot_be_written_only_cost_another_check(
    seals, hashed, raw_file
):
    read_in_another_process(raw_file)
    seals.write_bytes(b"\xff" * 20 + seals.read_bytes()[:-10])
    read_in_another_process(raw_file)
    assert len(hashed) == 2
    seals.unlink()
    seals.parent.rmdir()
    seals.parent.write_text("a file where a directory belongs")
    for _ in range(2):
        read_in_another_process(raw_file)
    assert len(hashed) == 4


def test_a_list_that_grows_too_long_loses_its_older_half(seals, hashed, raw_file, monkeypatch):
    seals.parent.mkdir(parents=True)
    seals.write_bytes(b"".join(b"%064d\n" % number for number in range(10)))
    monkeypatch.setattr(checked_seals, "MAX_BYTES", 640)
    read_in_another_process(raw_file)
    kept = seals.read_text().split()
    assert kept[:-1] == [f"{number:064}" for number in range(5, 10)]
    monkeypatch.setattr(checked_seals, "MAX_BYTES", 1 << 20)
    read_in_another_process(raw_file)
    assert len(hashed) == 1
