"""Integrity of the content of raw files: implausible files, and changed ones of earlier versions, are refused."""

import json
import os
import shutil
from itertools import cycle

import h5py
import numpy as np
import pytest
import raw_examples
from fuzz_files import write_examples

from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5, integrity
from hpccoll.store.integrity import DIGEST_ATTRIBUTE, content_sha256
from hpccoll.store.plausibility import ImplausibleError
from hpccoll.store.schema import COLUMNS
from hpccoll.store.seal import SEAL_DATASET, seal


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_examples(tmp_path_factory.mktemp("whole"))["raw file"]


@pytest.fixture
def file(tmp_path, whole):
    return shutil.copy(whole, tmp_path / "F.h5")


@pytest.fixture
def older(file):
    """The same file as schema 1.10 had it: without a seal, with a digest of its content."""
    with h5py.File(file, "r+") as opened:
        raw_examples.remove_seal(opened)
        opened.attrs["schema_version"] = "1.10"
        opened.attrs[DIGEST_ATTRIBUTE] = content_sha256(opened)
    return file


def error_after(file, change):
    """Change a raw file, renew its seal if it has one, and return the error of reading it."""
    with h5py.File(file, "r+") as opened:
        change(opened)
        sealed = SEAL_DATASET in opened
    if sealed:
        seal(file)
    with pytest.raises(BadInputError) as caught:
        hdf5.read_raw_file(file)
    return str(caught.value)


def test_a_file_with_a_valid_digest_of_its_content_is_read(older, whole):
    read = hdf5.read_raw_file(older)
    assert read.notes == []
    assert raw_examples.comparable(read) == raw_examples.comparable(hdf5.read_raw_file(whole))


def test_the_digest_covers_every_column_of_the_first_and_of_the_last_attempt(file):
    with h5py.File(file, "r+") as opened:
        groups = (opened["attempt_1"], 0), (opened["attempt_2"], -1)
        attempts = [(group, at, content_sha256(group)) for group, at in groups]
        for column, (attempt, at, intact) in zip(COLUMNS, cycle(attempts)):  # in turn
            dataset = attempt[column.name]
            place = tuple(at % size for size in dataset.shape)
            value = dataset[place]
            if column.dtype == "str":
                dataset[place] = value.decode() + "x"
            else:
                dataset[place] = 7 if value != 7 else 5
            assert content_sha256(attempt) != intact, column.name
            dataset[place] = value


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.attrs.update(job="x"),
        lambda file: file["attempt_1"].attrs.update(machine="x"),
        lambda file: file["attempt_1/bytes"].attrs.update(units="GB"),
        lambda file: file.move("attempt_1/min_ns", "attempt_1/another"),
        lambda file: file["attempt_1/min_ns"].dims[1].detach_scale(file["attempt_1/iteration"]),
        lambda file: file.create_group("attempt_3"),
        lambda file: file.__delitem__("failures"),
        lambda file: file.attrs.__delitem__("created"),
    ],
)
def test_the_digest_covers_names_attributes_and_dimensions(older, change):
    assert "digests differ" in error_after(older, change)


def test_a_file_of_schema_1_10_without_a_digest_is_refused(older):
    assert "its digest is missing" in error_after(older, lambda opened: opened.attrs.__delitem__(DIGEST_ATTRIBUTE))


def test_a_job_must_match_its_sha256_even_if_the_digest_is_right(file):
    def change(opened):
        opened.attrs["job_json"] = json.dumps(json.loads(opened.attrs["job_json"]) | {"seed": 2})

    assert "job_sha256 differs" in error_after(file, change)


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("bytes", 9216, "9216 bytes were moved of 8"),
        ("bytes", -1, "None bytes were moved of 8"),
        ("requested_bytes", 9, "the job has no case"),
        ("wrong", 8, "ok, and 8 elements are wrong"),
        ("status", "wrong", "wrong, and none of its elements is"),
        ("status", "skipped", "skipped, and has times"),
        ("status", "fine", "the status of a case is 'fine'"),
        ("max_ns", 1, "in no order"),
        ("min_ns", -5, "in no order"),
        ("end_ns", 3, "less than nothing"),
        ("round", 3, "a round is none of 2"),
        ("slowest_rank", 2, "a rank that is not there"),
        ("span_ns", 3, "the span is shorter"),
        ("iterations", 0, "is ok, and has no times"),
        ("rank_stride", 3, "every 3th"),
        ("cpu_s", -1.0, "cpu_s holds -1"),
        ("gpu_sm_clock", -1e9, "gpu_sm_clock holds -1e+09"),
        ("wire_sent", np.inf, "wire_sent holds inf"),
        ("wire_bytes_measured", -7, "wire_bytes_measured is -7"),
        ("counters", '{"x": -1}', "counter x is -1"),
        ("counters", "[]", "counters is []"),
        ("params", "[1]", "params is [1]"),
        ("operations", 0, "an iteration has 0 operations"),
        ("operations", 20, "an iteration has 20 operations"),
        ("requested_timing", "aggregated", "the job has no case"),
    ],
)
def test_an_implausible_value_is_refused_even_if_the_digest_is_right(file, column, value, why):
    def change(opened):
        opened["attempt_1"][column][0] = value

    assert why in error_after(file, change)


@pytest.mark.parametrize(
    ("attribute", "value", "why"),
    [
        ("provenance_json", "[]", "provenance is []"),
        ("aggregators", 2, "2 of 2 ranks are aggregators"),
        ("ranks", 3, "2 places of 3 ranks"),
        ("number", 0, "the number 0"),
        ("nodes", 9, "2 ranks ran on 9 nodes"),
        ("created", "soon", "created at 'soon'"),
    ],
)
def test_an_implausible_attempt_is_refused(file, attribute, value, why):
    def change(opened):
        opened["attempt_1"].attrs[attribute] = value

    assert why in error_after(file, change)


def test_links_are_not_followed(file, tmp_path):
    os.mkfifo(tmp_path / "pipe.h5")
    links = {"soft": h5py.SoftLink("/failures"), "external": h5py.ExternalLink(tmp_path / "pipe.h5", "/")}
    for name, link in links.items():
        place = shutil.copy(file, tmp_path / f"{name}.h5")
        assert "is a link to elsewhere" in error_after(
            place, lambda opened, link=link: opened.update({"attempt_9": link})
        )


def test_external_storage_is_not_read(file, tmp_path):
    def change(opened):
        opened.create_dataset("x", (8,), "i8", external=[(tmp_path / "other", 0, 64)])

    assert "lies in another file" in error_after(file, change)


@pytest.mark.parametrize("how", [{}, {"chunks": (1, 1 << 29)}, {"chunks": (3, 1 << 28), "compression": "gzip"}])
def test_a_dataset_that_is_larger_than_its_file_takes_no_memory(file, how):
    def change(opened):
        opened.create_dataset("attempt_1/x", (3, 1 << 29), "i8", **how)

    assert "bytes, and the file" in error_after(file, change)


def test_a_column_of_one_dimension_that_is_larger_than_its_file_takes_no_memory(file):
    def change(opened):
        opened.create_dataset("attempt_1/x", (1 << 30,), "u1", chunks=(1 << 20,))

    assert "bytes, and the file" in error_after(file, change)


def test_implausible_results_are_not_written(tmp_path):
    with pytest.raises(ImplausibleError, match="ok, and 7 elements are wrong"):
        hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome(wrong=7)), tmp_path / "F.h5")
    assert [*tmp_path.iterdir()] == []


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "F.h5")
    with pytest.raises(BadInputError, match="not a regular file"):
        hdf5.read_raw_file(tmp_path / "F.h5")


def test_a_large_column_read_case_by_case_gives_the_same_results(file, monkeypatch):
    before = raw_examples.comparable(hdf5.read_raw_file(file))
    monkeypatch.setattr("hpccoll.store.hdf5_attempt.MAX_COLUMN_BYTES", 1)
    monkeypatch.setattr(integrity, "MAX_READ_BYTES", 1)
    assert raw_examples.comparable(hdf5.read_raw_file(file)) == before
