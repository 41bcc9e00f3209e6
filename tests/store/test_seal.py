"""The seal of raw files: HDF5 opens no file whose bytes were changed."""

import shutil
import subprocess

import h5py
import pytest
import raw_examples
from fuzz_files import write_examples

from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.seal import SEAL_DATASET


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_examples(tmp_path_factory.mktemp("whole"))["raw file"]


@pytest.fixture
def file(tmp_path, whole):
    return shutil.copy(whole, tmp_path / "F.h5")


def refusal(file):
    with pytest.raises(BadInputError) as caught:
        hdf5.read_raw_file(file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_seal_is_the_sha256_of_all_other_bytes(file, require):
    require(shutil.which("sha256sum"), "there is no sha256sum (Debian: coreutils)")
    with h5py.File(file) as opened:
        text = opened[SEAL_DATASET][()]
    content = file.read_bytes()
    assert content.count(text) == 1
    rest = content.replace(text[-64:], b"")
    assert subprocess.run(["sha256sum"], input=rest, capture_output=True, check=True).stdout[:64] == text[-64:]


def test_hdf5_opens_no_file_with_a_changed_byte(file, monkeypatch):
    opened = []
    monkeypatch.setattr(hdf5.h5py, "File", lambda *words, **_: opened.append(words))
    intact = file.read_bytes()
    for at in range(12, len(intact), len(intact) // 40):
        file.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
        assert "its bytes differ from its seal" in refusal(file)
    file.write_bytes(intact + b"\0")
    assert "its bytes differ from its seal" in refusal(file)
    assert not opened


def test_a_file_that_a_program_changed_is_refused_with_a_remedy_and_one_that_was_only_opened_is_read(file):
    before = raw_examples.comparable(hdf5.read_raw_file(file))
    with h5py.File(file, "r+"):
        assert "another process has it open for writing" in refusal(file)
    assert raw_examples.comparable(hdf5.read_raw_file(file)) == before
    with h5py.File(file, "a") as opened:
        opened.attrs["remark"] = "mine"
    assert all(words in refusal(file) for words in ('not "r+"', "bring back a copy", "move it away"))
