"""Raw files: written results are read back unchanged, whole or not at all, by h5py, xarray and h5dump."""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
import raw_examples
from cli_runner import invoke, spawn
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.cases.case import Effort
from hpccoll.common.errors import BadInputError
from hpccoll.common.records import LAST_OF_SCHEMA_1
from hpccoll.store import hdf5, hdf5_attempt, sealed_file
from hpccoll.store.case_times import OF_TRAINING, PER_RANK
from hpccoll.store.raw_results import RankLocation
from hpccoll.store.schema import COLUMNS, RANK_RESULT_COLUMNS, RESULT_COLUMNS, VERSION
from hpccoll.store.sealed_file import SEAL_DATASET, OpenElsewhereError, seal


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("hdf5")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "F.h5"
    hdf5.write_raw_file(
        raw_examples.raw(raw_examples.outcome(), raw_examples.skipped(raw_examples.case(2048))),
        path,
    )
    return path


def refusal(file):
    """Return the line that refuses a file."""
    with pytest.raises(BadInputError) as caught:
        hdf5.read_raw_file(file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@settings(max_examples=15)
@given(raw_examples.raw_results(), st.data())
def test_written_results_are_read_back_unchanged_all_or_those_of_some_cases(directory, raw, data):
    hdf5.write_raw_file(raw, directory / "F.h5")
    ids = data.draw(st.sets(st.sampled_from([case.id for case in raw.job.cases])))
    selected = [
        (attempt, [each for each in outcomes if each.case.id in ids])
        for attempt, outcomes in raw.attempts
    ]
    for read, attempts in (
        (hdf5.read_raw_file(directory / "F.h5"), raw.attempts),
        (hdf5.read_raw_file(directory / "F.h5", ids), selected),
    ):
        assert raw_examples.comparable((read.job, read.attempts)) == raw_examples.comparable(
            (raw.job, attempts)
        )
    assert hdf5.read_raw_file(directory / "F.h5").complete == raw.complete


def test_results_that_the_file_of_an_older_release_has_no_columns_for_are_absent(file, monkeypatch):
    read, case_values = {}, hdf5_attempt.CaseValues
    monkeypatch.setattr(
        hdf5_attempt, "CaseValues", lambda columns: case_values(read.update(columns) or columns)
    )
    complete = hdf5.read_raw_file(file)
    with h5py.File(file, "r+") as opened:
        for name in (
            *(column.name for column in (*RESULT_COLUMNS, *RANK_RESULT_COLUMNS)),
            *OF_TRAINING,
        ):
            if name not in ("wrong", "executed"):
                del opened["attempt_1"][name]
    seal(file)
    (attempt, (timed, skipped)), (_, (known, _)) = (
        *hdf5.read_raw_file(file).attempts,
        *complete.attempts,
    )
    assert (timed.loss, timed.weights, timed.floor, timed.converged) == (None, None, False, None)
    assert not len(timed.gpu_power)
    assert not any(read["gpu_power"].strides)  # no memory for each case and rank
    assert (timed.wrong, timed.times.max_ns.tolist()) == (known.wrong, known.times.max_ns.tolist())
    assert (attempt.ranks, skipped.status) == (2, "skipped")


def test_dropped_ranks_are_absent_and_summaries_cover_all_ranks(tmp_path):
    times = raw_examples.times(iterations=4, ranks=6, limit=8)
    raw = raw_examples.raw(raw_examples.outcome(times=times, cpu_s=np.zeros(6)))
    raw.attempts[0] = raw_examples.attempt(ranks=6), raw.attempts[0][1]
    hdf5.write_raw_file(raw, tmp_path / "F.h5")
    with h5py.File(tmp_path / "F.h5") as file:
        group = file["attempt_1"]
        assert group["rank_stride"][0] == 4
        assert ((group["start_ns"][0] >= 0) == [True, True, False, False, False, False]).all()
        assert (
            group["end_ns"][0][:, :2] == raw_examples.times(iterations=4, ranks=6).end_ns[:, ::4]
        ).all()
        assert (group["max_ns"][0] == raw_examples.times(iterations=4, ranks=6).max_ns).all()


@pytest.mark.parametrize(
    ("iterations", "ranks", "chunk"),
    [(2000, 16, (1, 2000, 16)), (300, 2, (1, 300, 2)), (9000, 3000, (1, 8192, 1024))],
)
def test_a_chunk_is_a_case_or_64_mib_of_some_of_its_ranks(tmp_path, iterations, ranks, chunk):
    times = raw_examples.times(2, ranks, limit=1)
    raw = raw_examples.raw(raw_examples.outcome(times=times, cpu_s=np.zeros(ranks)))
    raw.attempts[0] = raw_examples.attempt(ranks=ranks), raw.attempts[0][1]
    writer = hdf5.RawFileWriter(tmp_path / "F.h5", raw.job, iterations)
    writer.finish(raw)
    with h5py.File(tmp_path / "F.h5") as file:
        assert file["attempt_1"]["start_ns"].chunks == chunk


def test_a_file_of_an_older_release_has_the_times_of_kept_ranks_at_their_places(tmp_path):
    times = raw_examples.times(iterations=4, ranks=6, limit=8)
    raw = raw_examples.raw(raw_examples.outcome(times=times, cpu_s=np.zeros(6)))
    raw.attempts[0] = raw_examples.attempt(ranks=6), raw.attempts[0][1]
    hdf5.write_raw_file(raw, tmp_path / "F.h5")
    with h5py.File(tmp_path / "F.h5", "r+") as opened:
        group = opened["attempt_1"]
        del group.attrs["kept_ranks_first"]
        for name in ("start_ns", "end_ns"):
            packed = group[name][0]
            group[name][0] = -1
            group[name][0, :, ::4] = packed[:, :2]
    seal(tmp_path / "F.h5")
    ((_, (outcome,)),) = hdf5.read_raw_file(tmp_path / "F.h5").attempts
    assert raw_examples.comparable(outcome.times) == raw_examples.comparable(times)


@pytest.fixture
def datasets_read(monkeypatch):
    """Return the names of the datasets whose values are read, as they are."""
    names, read = [], h5py.Dataset.__getitem__
    monkeypatch.setattr(
        h5py.Dataset,
        "__getitem__",
        lambda of, place, **how: names.append(Path(of.name).name) or read(of, place, **how),
    )
    return names


def test_the_times_of_ranks_are_read_when_they_are_asked_for(file, datasets_read):
    ((_, (timed, _)),) = hdf5.read_raw_file(file).attempts
    assert "max_ns" in datasets_read
    assert not {*PER_RANK} & {*datasets_read}
    assert (timed.times.start_ns == raw_examples.times().start_ns).all()
    assert "start_ns" in datasets_read


def test_times_of_a_file_that_was_replaced_meanwhile_are_refused(file):
    ((_, (timed, _)),) = hdf5.read_raw_file(file).attempts
    hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome()), file)
    with pytest.raises(BadInputError, match="has changed since it was opened; open it again"):
        timed.times.in_memory()


def test_a_file_of_an_older_release_has_the_same_figures(tmp_path):
    times = raw_examples.times(iterations=9, ranks=4, events=True)
    raw = raw_examples.raw(raw_examples.outcome(times=times, cpu_s=np.zeros(4)))
    places = [
        RankLocation(host="n", node=rank % 2, clock=rank % 2, pid=1, affinity="0")
        for rank in range(4)
    ]
    raw.attempts[0] = raw_examples.attempt(ranks=4, places=tuple(places)), raw.attempts[0][1]
    hdf5.write_raw_file(raw, tmp_path / "F.h5")
    with h5py.File(tmp_path / "F.h5", "r+") as opened:
        for name in ("skew_ns", "device_max_ns"):
            del opened["attempt_1"][name]
    seal(tmp_path / "F.h5")
    ((_, (outcome,)),) = hdf5.read_raw_file(tmp_path / "F.h5").attempts
    starts = times.start_ns
    of_clocks = [np.ptp(starts[:, clock::2], axis=1) for clock in range(2)]
    assert outcome.times.skew_ns.tolist() == np.max(of_clocks, axis=0).tolist()
    assert outcome.times.device_max_ns.tolist() == times.device_ns.max(axis=1).tolist()


def test_cases_are_written_one_by_one_in_any_order_and_again_where_they_changed(tmp_path):
    cases = [raw_examples.case(2**k) for k in range(10, 14)]
    outcomes = [
        raw_examples.round_outcome(1, of, iterations=3 + n, events=n == 2)
        for n, of in enumerate(cases)
    ]
    raw = raw_examples.raw(*outcomes)
    raw.job = raw_examples.job(*cases, effort=Effort(rounds=2, min_iterations=2, max_iterations=4))
    ((attempt, _),) = raw.attempts
    writer = hdf5.RawFileWriter(tmp_path / "F.h5", raw.job)
    for number in (2, 0, 3):
        writer.write(attempt, number, outcomes[number])
    assert not (tmp_path / "F.h5").exists()
    outcomes[0] = outcomes[0].merge(raw_examples.round_outcome(2, cases[0], iterations=11))
    raw.attempts[0] = attempt, outcomes
    writer.finish(raw)
    writer.discard()
    read = hdf5.read_raw_file(tmp_path / "F.h5")
    assert raw_examples.comparable(read.attempts) == raw_examples.comparable(raw.attempts)
    assert [path.name for path in tmp_path.iterdir()] == ["F.h5"]


def test_every_column_has_its_dimensions_unit_and_meaning(file):
    with h5py.File(file) as opened:
        group = opened["attempt_1"]
        for column in COLUMNS:
            data = group[column.name]
            assert (
                tuple(data.dims[axis][0].name.rpartition("/")[2] for axis in range(data.ndim))
                == column.dims
            )
            assert (data.attrs.get("units", ""), data.attrs["long_name"]) == (
                column.unit,
                column.meaning,
            )
        dimensions = {dim for column in COLUMNS for dim in column.dims}
        assert set(group) == dimensions | {column.name for column in COLUMNS}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"schema": "other"}, f"it has other {VERSION}"),
        ({"schema_version": "3.0"}, "it has hpccoll-raw 3.0"),
        ({"schema_version": "1.11"}, f"is of schema 1.*pip install {re.escape(LAST_OF_SCHEMA_1)}"),
    ],
)
def test_another_schema_is_refused_and_of_the_first_one_a_line_says_how_to_read_it(
    file, changes, found
):
    with h5py.File(file, "r+") as opened:
        opened.attrs.update(changes)
    seal(file)
    assert re.search(found, refusal(file))
    h5py.File(file, "w").close()
    assert re.search("has no seal.*of schema 1", refusal(file))


def test_the_seal_is_the_sha256_of_all_other_bytes(file):
    with h5py.File(file) as opened:
        text = opened[SEAL_DATASET][()]
    content = file.read_bytes()
    assert content.count(text) == 1
    assert hashlib.sha256(content.replace(text[-64:], b"")).hexdigest().encode() == text[-64:]


def test_hdf5_opens_no_file_that_was_changed_or_cut(file, monkeypatch):
    opened = []
    monkeypatch.setattr(sealed_file.h5py, "File", lambda *words, **_: opened.append(words))
    intact = file.read_bytes()
    for at in range(12, len(intact), len(intact) // 40):
        file.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
        assert "its bytes differ from its seal" in refusal(file)
    for changed in (intact + b"\0", *(intact[:keep] for keep in (0, 1, 100, 2000, -1))):
        file.write_bytes(changed)
        assert re.search(
            "its bytes differ from its seal|has no seal|signature of HDF5", refusal(file)
        )
    assert not opened


def test_a_file_that_a_program_changed_is_refused_with_a_remedy_and_one_that_was_only_opened_is_read(
    file,
):
    before = raw_examples.comparable(hdf5.read_raw_file(file))
    h5py.File(file, "r+").close()
    assert raw_examples.comparable(hdf5.read_raw_file(file)) == before
    with h5py.File(file, "a") as opened:
        opened.attrs["remark"] = "mine"
    assert all(
        words in refusal(file) for words in ('not "r+"', "bring back a copy", "move it away")
    )


def test_a_copy_by_h5repack_is_refused(file, tmp_path, require):
    require(shutil.which("h5repack"), "there is no h5repack (Debian: hdf5-tools)")
    subprocess.run(["h5repack", file, tmp_path / "copy.h5"], check=True)
    assert "its bytes differ from its seal" in refusal(tmp_path / "copy.h5")


KILLED = """
import os, signal, sys
from pathlib import Path
import raw_examples
from hpccoll.store import hdf5

class Killed(Exception): pass
step = 0
def kill_at(frame, event, argument):
    global step
    if event == "c_call":
        step += 1
        if step == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
raw = raw_examples.raw(raw_examples.outcome(evidence="new"))
sys.setprofile(kill_at)
hdf5.write_raw_file(raw, Path(sys.argv[1]))
sys.setprofile(None)
print(step)
"""


def test_a_kill_during_writing_leaves_the_old_file_or_the_new_one(tmp_path):
    path, tests = tmp_path / "F.h5", Path(__file__).parents[1]
    # as many steps each time
    environment = {**os.environ, "PYTHONPATH": str(tests), "PYTHONHASHSEED": "0"}

    def write(step):
        hdf5.write_raw_file(raw_examples.raw(raw_examples.outcome(evidence="old")), path)
        program = [sys.executable, "-c", KILLED, str(path), str(step)]
        return subprocess.run(program, env=environment, capture_output=True, text=True, check=False)

    steps = int(write(-1).stdout)
    left = []
    for step in [*range(1, steps, steps // 3), *range(steps - 8, steps + 1, 2)]:
        assert write(step).returncode == -signal.SIGKILL
        ((_, (outcome,)),) = hdf5.read_raw_file(path).attempts
        left.append(outcome.evidence)
    assert set(left) == {"old", "new"}
    assert left == sorted(left, reverse=True)


@pytest.mark.parametrize(
    "command",
    [
        "report --out=page",
        "export",
        "status",
        "compare WHOLE",
        "tune --out=t.json",
        "tune --judge=t.json",
        "fit",
        "predict --cluster=8xh100-400g --against",
    ],
)
def test_every_reader_refuses_a_damaged_file(file, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    whole = shutil.copy(file, "whole.h5")
    if "--judge" in command:  # a missing table would be named first
        (tmp_path / "t.json").touch()
    file.write_bytes(file.read_bytes()[:-100])
    ended = invoke(*command.replace("WHOLE", str(whole)).split(), file)
    # the status of a damaged file is damaged
    assert ended.code == (3 if command == "status" else 2)
    assert "its bytes differ from its seal" in ended.err + ended.out


def test_xarray_reads_named_dimensions_and_units_without_a_warning(file):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with xarray.open_datatree(file, engine="h5netcdf") as tree:
            data = tree["attempt_1"].to_dataset()
            assert dict(data.sizes) == {
                "case": 2,
                "iteration": 4,
                "rank": 2,
                "node_number": 2,
                "port": 2,
                "event": 1,
            }
            assert (data.start_ns.dims, data.start_ns.units) == (
                ("case", "iteration", "rank"),
                "ns",
            )
            assert data.max_ns.max("iteration")[0] == raw_examples.times().max_ns.max()
            assert data.max_ns.isnull()[1].all()  # the case that was skipped
            assert list(data.case_id.values) == [raw_examples.case().id, raw_examples.case(2048).id]
        with xarray.open_dataset(
            file, engine="h5netcdf", group="attempt_1", mask_and_scale=False
        ) as data:
            assert data.start_ns.dtype == np.int64
            assert (data.start_ns[0].values == raw_examples.times().start_ns).all()


LOCKS_FAIL = """
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>
int flock(int descriptor, int operation) {
    if (operation & LOCK_UN) return 0;
    errno = atoi(getenv("LOCK_ERRNO"));
    return -1;
}
"""
"""A file system without locks: NFS without lockd (ENOLCK), Lustre mounted without flock (ENOSYS), BeeGFS (ENOTSUPP)."""


@pytest.fixture(scope="module")
def without_locks(tmp_path_factory, require):
    """Have a library that makes every lock fail, for LD_PRELOAD."""
    require(shutil.which("gcc"), "there is no gcc")
    directory = tmp_path_factory.mktemp("locks")
    (directory / "locks.c").write_text(LOCKS_FAIL)
    library = directory / "locks.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, directory / "locks.c"], check=True)
    return library


def test_files_are_read_and_written_where_the_file_system_has_no_locks(
    file, tmp_path, without_locks
):
    program = (
        "import sys; from pathlib import Path; from hpccoll.store import hdf5\n"
        "hdf5.write_raw_file(hdf5.read_raw_file(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    copy = tmp_path / "copy.h5"
    environment = {**os.environ, "LD_PRELOAD": str(without_locks), "LOCK_ERRNO": str(errno.ENOLCK)}
    subprocess.run([sys.executable, "-c", program, file, copy], env=environment, check=True)
    read = [raw_examples.comparable(hdf5.read_raw_file(path).attempts) for path in (copy, file)]
    assert read[0] == read[1]


def test_locks_of_hdf5_that_the_user_demands_are_named_if_they_fail(file, without_locks):
    environment = {
        "LD_PRELOAD": str(without_locks),
        "LOCK_ERRNO": "37",
        "HDF5_USE_FILE_LOCKING": "TRUE",
    }
    assert spawn("export", file, **environment).is_bad_input(file, "unset HDF5_USE_FILE_LOCKING")


@pytest.mark.parametrize("locking", [None, True, False, "best-effort"])
def test_a_file_that_a_notebook_reads_by_h5py_is_read_beside_it(file, locking):
    alone = raw_examples.comparable(hdf5.read_raw_file(file).attempts)
    with h5py.File(file, "r", locking=locking) as opened:
        assert raw_examples.comparable(hdf5.read_raw_file(file).attempts) == alone
        assert len(opened) > 0


@contextmanager
def locked(file):
    with file.open() as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("how", [lambda file: h5py.File(file, "r+", locking=False), locked])
def test_a_file_that_another_process_has_open_for_writing_is_not_called_damaged(file, how):
    with how(file):
        for command, code in (("export", 2), ("status", 3)):
            ended = invoke(command, file)
            assert ended.code == code
            assert "another process has it open for writing" in ended.err + ended.out
            assert "move it away" not in ended.err + ended.out
        with pytest.raises(OpenElsewhereError):
            hdf5.check_replaceable(file, "measurements", lambda _: True)
    hdf5.check_replaceable(file, "measurements", lambda _: True)
    with pytest.raises(BadInputError, match="one of predictions: it holds something else"):
        hdf5.check_replaceable(file, "predictions", lambda attempt: attempt.predicted)


def test_a_file_that_a_killed_process_had_open_is_read_once_its_mark_is_cleared(file, require):
    require(shutil.which("h5clear"), "there is no h5clear")
    program = "import h5py, os, sys; f = h5py.File(sys.argv[1], 'r+'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program, file], check=False)
    assert "h5clear -s" in refusal(file)
    subprocess.run(["h5clear", "-s", file], check=True)
    with h5py.File(file):  # what another one reads is read, too
        assert spawn("export", file).code == 0
