"""The file of a counted job holds all of it."""

import h5py
import numpy as np
import pytest
from counted_examples import write_ranks

from hpccoll.common.errors import BadInputError
from hpccoll.store.count_file import read_counted_job, write_counted_job
from hpccoll.sweep.counted_launch import join_rank_files


@pytest.fixture
def job(tmp_path):
    return join_rank_files(write_ranks(tmp_path / "ranks"))


def test_a_counted_job_is_read_as_it_was_written(job, tmp_path):
    write_counted_job(job, tmp_path / "a.h5")
    read = read_counted_job(tmp_path / "a.h5")
    assert np.array_equal(read.calls, job.calls)
    for field in ("command", "began", "wall_s", "barrier"):
        assert getattr(read, field) == getattr(job, field)
    for field in ("launches", "ranks", "groups", "kinds", "damaged"):
        assert list(getattr(read, field)) == list(getattr(job, field))


def test_columns_have_units_and_meanings(job, tmp_path):
    write_counted_job(job, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["seconds"].attrs["units"] == "s"
        assert file["bytes"].attrs["long_name"]


def test_numbers_of_what_is_not_listed_are_refused(job, tmp_path):
    job.calls["kind"][0] = 5
    write_counted_job(job, tmp_path / "a.h5")
    with pytest.raises(BadInputError):
        read_counted_job(tmp_path / "a.h5")


def test_another_file_is_refused(tmp_path):
    (tmp_path / "a.h5").write_bytes(b"no")
    with pytest.raises(BadInputError):
        read_counted_job(tmp_path / "a.h5")
