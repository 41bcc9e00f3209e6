"""What the disk does not take while a file is written is an error of its writer, and no signal of HDF5's."""

import errno

import numpy as np
import pytest
import raw_examples

from hpccoll.store import hdf5
from hpccoll.store.sealed_file import DiskFile


@pytest.fixture
def disk_of(monkeypatch):
    """Have a disk that takes so many bytes."""
    write = DiskFile._write_to_disk

    def take(most):
        sizes = []

        def write_some(self, content):
            sizes.append(len(content))
            if sum(sizes) > most:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(self, content)

        monkeypatch.setattr(DiskFile, "_write_to_disk", write_some)

    return take


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, disk_of):
    outcomes = [raw_examples.outcome(raw_examples.case(2**k)) for k in range(10, 14)]
    raw = raw_examples.raw(*outcomes)
    hdf5.write_raw_file(raw, tmp_path / "whole.h5")
    size = (tmp_path / "whole.h5").stat().st_size
    for most in (0, 100, *range(1000, size, size // 9)):
        disk_of(most)
        with pytest.raises(OSError, match="No space left"):
            hdf5.write_raw_file(raw, tmp_path / "F.h5")
        assert [path.name for path in tmp_path.iterdir()] == ["whole.h5"]


def test_hdf5_reads_back_what_the_disk_has_not_taken(tmp_path, disk_of):
    (tmp_path / "F").touch()
    disk_of(6)
    file = DiskFile(tmp_path / "F")
    for offset, content in ((0, b"abcdef"), (2, b"XY"), (6, b"ghi"), (12, b"z")):
        file.seek(offset)
        assert file.write(content) == len(content)
    assert file.failure is not None
    file.seek(1)
    found = np.zeros(20, np.uint8)
    assert file.readinto(found) == 12
    assert found[:12].tobytes() == b"bXYefghi\0\0\0z"
    file.close()
    assert (tmp_path / "F").read_bytes() == b"abcdef"
