"""Implausible content of raw files is refused, though its digest is right: another program wrote it."""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import raw_examples
from fuzz_files import write_examples
from golden_page import assert_golden

from hpccoll.common.errors import BadInputError
from hpccoll.store import hdf5
from hpccoll.store.plausibility import ImplausibleError
from hpccoll.store.sealed_file import seal


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_examples(tmp_path_factory.mktemp("whole"))["raw file"]


def read_with_all_times(file):
    for _, outcomes in hdf5.read_raw_file(file).attempts:
        for outcome in outcomes:
            if outcome.times:
                outcome.times.in_memory()


@pytest.fixture
def error_after(tmp_path, whole):
    """Return what changes a raw file, renews its seal, and returns the error of reading it with all times."""

    def after(change):
        file = shutil.copy(whole, tmp_path / "F.h5")
        with h5py.File(file, "r+") as opened:
            change(opened)
        seal(file)
        with pytest.raises(BadInputError) as caught:
            read_with_all_times(file)
        return (
            str(caught.value)
            .partition(" of hpccoll: ")[2]
            .partition("; to measure its job anew")[0]
        )

    return after


COLUMNS = [
    ("bytes", 9216), ("bytes", -1), ("requested_bytes", 9), ("wrong", 8), ("status", "wrong"), ("status", "skipped"),
    ("status", "fine"), ("max_ns", 1), ("end_ns", 3), ("round", 3), ("slowest_rank", 2), ("span_ns", 3),
    ("iterations", 0), ("rank_stride", 3), ("cpu_s", -1.0), ("wire_sent", np.inf), ("wire_bytes_measured", -7),
    ("counters", '{"x": -1}'), ("params", "[1]"), ("operations", 20),
    ("tcp_traffic", "[]"), ("tcp_traffic", "{"), ("tcp_traffic", '{"": [[-1]]}'),
]  # fmt: skip
ATTRIBUTES = [
    ("provenance_json", "[]"), ("aggregators", 2), ("ranks", 3), ("number", 0), ("nodes", 9), ("created", "soon"),
]  # fmt: skip
NOT_IN_THE_FILE = [
    {},
    {"chunks": (1, 1 << 29)},
    {"chunks": (1, 1 << 20)},
    {"external": [("other", 0, 64)]},
]


def test_implausible_values_and_attempts_are_refused_and_columns_that_are_not_in_the_file_take_no_memory(
    error_after,
):
    def another_job(opened):
        opened.attrs["job_json"] = json.dumps(json.loads(opened.attrs["job_json"]) | {"seed": 2})

    def store_elsewhere(opened, how):
        del opened["attempt_1/min_ns"]
        opened["attempt_1"].create_dataset(
            "min_ns", (8, 1) if "external" in how else (3, 1 << 29), "i8", **how
        )

    page = [f"another job: {error_after(another_job)}"]
    for name, value in COLUMNS:
        page.append(
            f"{name} {value}: {error_after(lambda at, n=name, v=value: at['attempt_1'][n].__setitem__(0, v))}"
        )
    for name, value in ATTRIBUTES:
        page.append(
            f"{name} {value}: {error_after(lambda at, n=name, v=value: at['attempt_1'].attrs.update({n: v}))}"
        )
    assert_golden("implausible", page, Path(__file__).parent / "golden")
    assert all(
        "bytes, and its file" in error_after(partial(store_elsewhere, how=how))
        for how in NOT_IN_THE_FILE
    )


def test_links_are_not_followed_and_a_pipe_is_refused(error_after, tmp_path):
    os.mkfifo(tmp_path / "pipe.h5")
    for link in (h5py.SoftLink("/attempt_1"), h5py.ExternalLink(tmp_path / "pipe.h5", "/")):
        assert "is a link to elsewhere" in error_after(
            lambda opened, link=link: opened.update({"attempt_9": link})
        )
    with pytest.raises(BadInputError, match="not a regular file"):
        hdf5.read_raw_file(tmp_path / "pipe.h5")


def test_a_missing_column_is_named_and_one_that_some_iterations_lack_has_no_times(
    error_after, whole, tmp_path
):
    assert "'bytes' is missing" in error_after(
        lambda opened: opened["attempt_1"].__delitem__("bytes")
    )
    file = shutil.copy(whole, tmp_path / "F.h5")
    with h5py.File(file, "r+") as opened:
        timed = next(
            number for number, count in enumerate(opened["attempt_1/iterations"]) if count > 1
        )
        opened["attempt_1/span_ns"][timed, 0] = -1
    seal(file)
    times = hdf5.read_raw_file(file).attempts[0][1][timed].times
    assert (times.span_ns.size, times.max_ns.size > 1) == (0, True)


def test_implausible_results_are_not_written(tmp_path):
    with pytest.raises(ImplausibleError, match="ok, and 7 elements are wrong"):
        hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome(wrong=7)), tmp_path / "F.h5")
    assert [*tmp_path.iterdir()] == []
