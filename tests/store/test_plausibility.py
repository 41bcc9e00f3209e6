"""Implausible content of raw files is refused, though its digest is right: another program wrote it."""

import json
import os
import shutil

import h5py
import numpy as np
import pytest
import raw_examples
from fuzz_files import write_examples

from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.hdf5 import seal
from hpccoll.store.plausibility import ImplausibleError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_examples(tmp_path_factory.mktemp("whole"))["raw file"]


@pytest.fixture
def file(tmp_path, whole):
    return shutil.copy(whole, tmp_path / "F.h5")


def error_after(file, change):
    """Change a raw file, renew its seal, and return the error of reading it."""
    with h5py.File(file, "r+") as opened:
        change(opened)
    seal(file)
    with pytest.raises(BadInputError) as caught:
        hdf5.read_raw_file(file)
    return str(caught.value)


def test_a_job_must_match_its_sha256(file):
    def change(opened):
        opened.attrs["job_json"] = json.dumps(json.loads(opened.attrs["job_json"]) | {"seed": 2})

    assert "job_sha256 differs" in error_after(file, change)


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("bytes", 9216, "9216 bytes were moved of 8"), ("bytes", -1, "None bytes were moved of 8"),
        ("requested_bytes", 9, "the job has no case"), ("wrong", 8, "ok, and 8 elements are wrong"),
        ("status", "wrong", "wrong, and none of its elements is"), ("status", "skipped", "skipped, and has times"),
        ("status", "fine", "status: 'fine' is not valid: choose from failed, ok, skipped, wrong"),
        ("max_ns", 1, "in no order"), ("end_ns", 3, "less than nothing"), ("round", 3, "a round is none of 2"),
        ("slowest_rank", 2, "the slowest rank is no rank"), ("span_ns", 3, "the span is shorter"),
        ("iterations", 0, "is ok, and has no times"), ("rank_stride", 3, "every 3th"),
        ("cpu_s", -1.0, "cpu_s holds -1"), ("wire_sent", np.inf, "wire_sent holds inf"),
        ("wire_bytes_measured", -7, "wire_bytes_measured is -7"), ("counters", '{"x": -1}', "counter x is -1"),
        ("params", "[1]", "params: [1] is not valid"), ("operations", 20, "an iteration has 20 operations"),
    ],
)  # fmt: skip
def test_an_implausible_value_is_refused(file, column, value, why):
    def change(opened):
        opened["attempt_1"][column][0] = value

    assert why in error_after(file, change)


@pytest.mark.parametrize(
    ("attribute", "value", "why"),
    [
        ("provenance_json", "[]", "provenance: [] is not valid"), ("aggregators", 2, "2 of 2 ranks are aggregators"),
        ("ranks", 3, "2 places of 3 ranks"), ("number", 0, "number: 0 is not valid"),
        ("nodes", 9, "2 ranks ran on 9 nodes"), ("created", "soon", "created at 'soon'"),
    ],
)  # fmt: skip
def test_an_implausible_attempt_is_refused(file, attribute, value, why):
    def change(opened):
        opened["attempt_1"].attrs[attribute] = value

    assert why in error_after(file, change)


def test_links_are_not_followed_and_a_pipe_is_refused(file, tmp_path):
    os.mkfifo(tmp_path / "pipe.h5")
    for link in (h5py.SoftLink("/attempt_1"), h5py.ExternalLink(tmp_path / "pipe.h5", "/")):
        place = shutil.copy(file, tmp_path / "link.h5")
        assert "is a link to elsewhere" in error_after(
            place, lambda opened, link=link: opened.update({"attempt_9": link})
        )
    with pytest.raises(BadInputError, match="not a regular file"):
        hdf5.read_raw_file(tmp_path / "pipe.h5")


def test_implausible_results_are_not_written(tmp_path):
    with pytest.raises(ImplausibleError, match="ok, and 7 elements are wrong"):
        hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome(wrong=7)), tmp_path / "F.h5")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    "how",
    [{}, {"chunks": (1, 1 << 29)}, {"chunks": (1, 1 << 20)}, {"external": [("other", 0, 64)]}],
    ids=["contiguous", "chunk of a row", "chunks of a row", "external"],
)  # fmt: skip
def test_a_column_that_is_not_in_the_file_takes_no_memory(file, how):
    def change(opened):
        shape = (8, 1) if "external" in how else (3, 1 << 29)
        del opened["attempt_1/min_ns"]
        opened["attempt_1"].create_dataset("min_ns", shape, "i8", **how)

    assert "bytes, and its file" in error_after(file, change)
