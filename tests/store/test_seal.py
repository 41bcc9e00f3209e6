"""The seal of raw files: HDF5 opens no file whose bytes were changed; files without a seal are read with limits."""

import shutil
import subprocess
from pathlib import Path

import h5py
import pytest
import raw_examples
from fuzz_files import write_examples

from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5, unsealed
from hpccoll.store.seal import SEAL_DATASET, seal

GOLDEN = Path(__file__).parents[2] / "results" / "golden" / "raw-1.0.h5"


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
    assert not opened


def test_a_file_that_a_program_changed_is_refused_with_a_remedy_and_one_that_was_only_opened_is_read(file):
    before = raw_examples.comparable(hdf5.read_raw_file(file))
    with h5py.File(file, "r+"):
        assert "another process has it open for writing" in refusal(file)
    assert raw_examples.comparable(hdf5.read_raw_file(file)) == before
    with h5py.File(file, "a") as opened:
        opened.attrs["remark"] = "mine"
    assert all(words in refusal(file) for words in ('not "r+"', "bring back a copy", "move it away"))


def test_a_copy_by_h5repack_is_refused(file, require):
    require(shutil.which("h5repack"), "there is no h5repack (Debian: hdf5-tools)")
    packed = file.with_name("packed.h5")
    subprocess.run(["h5repack", "-f", "GZIP=1", str(file), str(packed)], check=True)
    assert "seal" in refusal(packed)


def test_a_file_of_this_version_without_a_seal_is_refused(file):
    with h5py.File(file, "r+") as opened:
        raw_examples.remove_seal(opened)
    assert "its seal is missing" in refusal(file)
    with pytest.raises(ValueError, match="not found"):
        seal(file)


def test_the_seal_covers_what_lies_behind_the_end_of_hdf5(file):
    file.write_bytes(file.read_bytes() + b"\0")
    assert "its bytes differ" in refusal(file)


@pytest.mark.parametrize(
    "program", ["while True: pass", "bytearray(unsealed.MEMORY_BYTES)", "import signal, os; os.abort()"]
)
def test_a_child_that_loops_dies_or_takes_all_memory_ends_and_the_file_is_refused(monkeypatch, program):
    begin = "import sys; from hpccoll.store import unsealed; unsealed.limit_child(int(sys.argv[2]))\n"
    monkeypatch.setattr(unsealed, "_CHILD", begin + program)
    monkeypatch.setattr(unsealed, "CPU_S", 1)
    assert "HDF5 failed to read" in refusal(GOLDEN)


def test_a_file_without_a_seal_is_read_by_a_child_first_whose_refusal_is_that_of_the_file(monkeypatch, tmp_path):
    intact = hdf5.read_raw_file(GOLDEN)
    assert intact.measurements
    assert "without a digest" in intact.notes[0]
    cut = tmp_path / "cut.h5"
    cut.write_bytes(GOLDEN.read_bytes()[:-9])
    monkeypatch.setattr(hdf5.h5py, "File", None)
    assert refusal(cut).startswith(f"path: '{cut}' is no whole raw file of hpccoll: ")
