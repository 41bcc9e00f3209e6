"""The files of a job: archives, directories of several hosts, and files that are damaged or would do harm."""

import gzip
import io
import itertools
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

import pytest

from hpccoll.traces import read_job as reading
from hpccoll.traces.hangs import find_hangs
from hpccoll.traces.read_job import read_job
from hpccoll.traces.slow import slow_parts
from tests.traces.kernel_files import inspector_line
from tests.traces.recorded_files import (
    Call,
    Ring,
    as_json,
    as_nccl_2_28,
    as_pickle,
    dump,
    ras,
    write_dumps,
)

WORLD = Ring("0", (0, 1, 2, 3), "default_pg")


def dumps_of(absent):
    return {
        rank: dump(rank, [Call(WORLD)] * (1 + (rank != absent)), {0}, groups=[WORLD])
        for rank in WORLD.ranks
    }


def named(found):
    hangs = (hang for job in found.jobs for hang in find_hangs(job))
    return [rank for hang in hangs if hang.reason != "unrecorded" for rank in hang.ranks]


def test_directories_of_several_hosts_are_one_job_and_two_jobs_of_one_host_are_two(tmp_path):
    dumps = dumps_of(2)
    for rank, content in dumps.items():
        write_dumps(tmp_path / "one" / f"node{rank // 2}", {rank: content})
    found = read_job([tmp_path / "one"])
    assert (len(found.jobs), named(found), found.damaged) == (1, [2], [])
    write_dumps(tmp_path / "two" / "monday", dumps_of(1))
    partly = dumps_of(3)
    del partly[1]
    for entry in (entry for content in partly.values() for entry in content["entries"]):
        entry["time_created_ns"] += 86_400 * 10**9
    write_dumps(tmp_path / "two" / "tuesday", partly)
    with tarfile.open(tmp_path / "two.tar", "w") as archive:
        archive.add(tmp_path / "two", "two")
    for path in (tmp_path / "two", tmp_path / "two.tar"):
        assert [len(job.ranks) for job in read_job([path]).jobs] == [4, 3]
        assert named(read_job([path])) == [1, 3]


@pytest.mark.parametrize(
    "name", ["{run}/node{node}/rank_{rank}", "{run}_rank_{rank}", "rank{rank}-of-{run}"]
)
def test_two_runs_of_the_same_ranks_are_two_jobs_however_their_files_are_named(tmp_path, name):
    """The job was started again soon after its first hang, and hangs in the same operation."""
    for run, absent in enumerate((3, 0)):
        for rank, content in dumps_of(absent).items():
            for entry in content["entries"]:
                entry["time_created_ns"] += run * 400 * 10**9
                entry["thread_id"] = str(70 + run)
            path = tmp_path / name.format(run=run, node=rank // 2, rank=rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_pickle(content))
    found = read_job([tmp_path])
    assert ([len(job.ranks) for job in found.jobs], named(found)) == ([4, 4], [3, 0])


@pytest.mark.parametrize("names", [*itertools.permutations("abc")])
def test_files_that_share_a_communicator_by_way_of_another_file_are_one_job_whatever_their_names(
    tmp_path, names
):
    ids = {0: ["0xaa"], 1: ["0xbb"], 2: ["0xaa", "0xbb"]}
    for rank, name in enumerate(names):
        lines = [inspector_line(rank, 1, 5, id=each) for each in ids[rank]]
        (tmp_path / f"{name}.log").write_text("\n".join(lines))
    assert [[each.rank for each in job.ranks] for job in read_job([tmp_path]).jobs] == [[0, 1, 2]]


@pytest.mark.parametrize(("age_s", "expected"), [(86_400, [3]), (500, [])])
def test_a_dump_that_is_older_by_more_than_its_timeout_is_told_and_left_out(
    tmp_path, age_s, expected
):
    """Yesterday's dump of rank 3, which died today without one, makes no rank of today's run a culprit."""
    dumps = {rank: dump(rank, [Call(WORLD)] * 9, {*range(8)}) for rank in range(3)}
    dumps[3] = dump(3, [Call(WORLD)] * 9, {*range(8)})
    for entry in dumps[3]["entries"]:
        entry["time_created_ns"] -= age_s * 10**9
    (job,) = read_job([write_dumps(tmp_path, dumps)]).jobs
    assert [each.rank for each in job.ranks] == [rank for rank in range(4) if rank not in expected]
    (hang,) = find_hangs(job)
    assert (hang.reason, [*hang.ranks]) == ("unrecorded" if expected else "launched", expected)
    assert ["rank 3" in gap for gap in job.cannot_say] == [True] * len(expected)


def test_dumps_of_two_times_are_read_together_however_long_the_time_between_them(tmp_path):
    """Every second operation takes 11 minutes, and rank 1 is late to each."""
    for time, late in {"first": 2, "later": 6}.items():
        dumps = {
            rank: dump(rank, [Call(WORLD)] * (late - (rank == 1)), {*range(late - 1)}, active=False)
            for rank in range(4)
        }
        for entry in (entry for content in dumps.values() for entry in content["entries"]):
            entry["time_created_ns"] += entry["record_id"] // 2 * 660 * 10**9
        write_dumps(tmp_path / time, dumps)
    (job,) = read_job([tmp_path]).jobs
    assert (job.polls, job.cannot_say, find_hangs(job)) == (2, (), [])


@pytest.mark.parametrize("late", [0, 3, 6])
def test_processes_without_a_communicator_of_all_are_told_apart_by_host_and_pid(tmp_path, late):
    """Eight processes of two hosts: tp of 4 on each host, dp of 2 across; one joins each tp operation 5 ms late."""
    for rank in range(8):
        host, number = divmod(rank, 4)
        process = f"n{host}", 50 + number
        lines = [
            *(
                inspector_line(number, n, 1e3 if rank == late else 6e3, process, id=f"0xa{host}")
                for n in range(9)
            ),
            *(
                inspector_line(host, n, 500, process, id=f"0xd{number}", n_ranks=2)
                for n in range(9)
            ),
        ]
        (tmp_path / f"n{host}-pid{50 + number}.log").write_text("\n".join(lines))
    (job,) = read_job([tmp_path]).jobs
    assert [(each.rank, each.host) for each in job.ranks] == [
        (rank, f"n{rank // 4}") for rank in range(8)
    ]
    parts = slow_parts(job)
    assert [each.rank for each in parts.late] == [late]
    assert [(each.rank, each.operations) for each in parts.came_last] == [(late, 9)]
    assert [(each.is_complete, len(each.operations)) for each in parts.times] == [(True, 9)] * 6
    assert parts.came_last[0].median_s == pytest.approx(5e-3)


def test_forms_and_formats_of_one_directory_are_recognised_by_their_content(tmp_path):
    write_dumps(tmp_path, dumps_of(2), name="a{}")
    write_dumps(tmp_path, dumps_of(2), as_json, name="b{}")
    (tmp_path / "c.txt").write_text(as_nccl_2_28(ras({0: 1}, missing=[1])))
    found = read_job([tmp_path])
    assert sorted(job.source for job in found.jobs) == ["NCCL RAS", "PyTorch Flight Recorder"]
    assert (sorted(named(found)), found.damaged) == ([1, 2], [])


@pytest.mark.parametrize(
    "rank",
    [
        "rank_{0}/fr.pkl",
        "{0}/fr.pkl",
        "node{0}/7/fr_rank{0}.pkl",
        "rank_{0}/fr_v2.pkl",
        "rank{0}/fr_20260921.pkl",
    ],
)
def test_the_rank_of_a_dump_may_be_in_the_name_of_its_directory(tmp_path, rank):
    for number, content in dumps_of(2).items():
        path = tmp_path / rank.format(number)
        path.parent.mkdir(parents=True)
        path.write_bytes(as_pickle(content))
    found = read_job([tmp_path])
    assert (len(found.jobs), named(found), found.damaged) == (1, [2], [])


def test_a_number_of_a_directory_is_no_rank_unless_it_is_called_one_or_stands_alone(tmp_path):
    write_dumps(tmp_path / "run_2", {2: dumps_of(1)[2]}, name="dump.pkl")
    found = read_job([tmp_path])
    assert (found.jobs, len(found.damaged)) == ([], 1)


def test_members_of_archives_are_read_as_files_are(tmp_path):
    write_dumps(tmp_path / "dumps", dumps_of(2))
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "dumps", "job/dumps")
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        archive.add(tmp_path / "dumps", "job/dumps")
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in (tmp_path / "dumps").iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    with zipfile.ZipFile(tmp_path / "job.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("job")
        for path in (tmp_path / "dumps").iterdir():
            archive.write(path, f"job/dumps/{path.name}")
    for path in (tmp_path / "job.tar.gz", tmp_path / "job.tar", tmp_path / "job.zip", packed):
        assert named(read_job([path])) == [2]


def test_members_of_archives_may_be_compressed_themselves_and_files_of_a_desktop_are_left_out(
    tmp_path,
):
    """Profilers write .json.gz, which people collect in an archive; macOS adds ._FILE and .DS_Store to it."""
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in write_dumps(tmp_path / "dumps", dumps_of(2)).iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        (packed / f"._{path.name}.gz").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X")
    (packed / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    with tarfile.open(tmp_path / "job.tar.gz", "w:gz") as archive:
        archive.add(packed, "job/dumps")
    with zipfile.ZipFile(tmp_path / "job.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/job/._dumps", b"\0\5\x16\7")
        for path in packed.iterdir():
            archive.write(path, f"job/dumps/{path.name}")
    for path in (tmp_path / "job.tar.gz", tmp_path / "job.zip", packed):
        found = read_job([path])
        assert (named(found), found.damaged) == ([2], [])


def test_of_archives_one_file_at_a_time_is_unpacked(tmp_path, monkeypatch):
    dumps, scratch, lying = write_dumps(tmp_path / "dumps", dumps_of(2)), tmp_path / "scratch", []
    scratch.mkdir()
    with tarfile.open(dumps / "job.tar", "w") as archive:
        archive.add(dumps, "job", filter=lambda info: None if info.name.endswith("tar") else info)
    for path in [*dumps.glob("*rank*")]:
        path.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    read = reading._read_file
    monkeypatch.setattr(
        reading,
        "_read_file",
        lambda path: (lying.append(sum(each.is_file() for each in scratch.rglob("*"))), read(path))[
            1
        ],
    )
    with tarfile.open(dumps / "packed.tar", "w") as archive:
        archive.add(dumps, "job", filter=lambda info: None if info.name.endswith("tar") else info)
    assert named(read_job([dumps])) == [2]
    assert (lying, [*scratch.iterdir()]) == ([1] * 12, [])


def end_process(_path):
    os._exit(1)


def test_files_of_a_process_that_the_system_ends_are_a_line_each(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LONG_BYTES", 0)
    monkeypatch.setattr(reading, "_read_all", end_process)
    found = read_job([write_dumps(tmp_path, dumps_of(2))])
    assert (found.jobs, ["was ended" in line for line in found.damaged]) == ([], [True] * 4)


def test_a_zip_archive_that_is_cut_encrypted_or_of_too_many_files_is_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_MEMBERS", 2)
    path = tmp_path / "job.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.json", "{}")
    content = path.read_bytes()
    for damaged in (
        content[:-30],
        content[:4],
        content.replace(b"\x14\0\0\0\0\0", b"\x14\0\1\0\0\0"),
    ):
        path.write_bytes(damaged)
        read = read_job([path])
        assert (len(read.jobs), len(read.damaged)) == (0, 1)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(4):
            archive.writestr(f"{number}.json", "{}")
    assert "more than 2 files" in read_job([path]).damaged[-1]


def bombs(directory):
    """Write archives that hold far more than their size says, with few bytes in memory."""
    packer = zlib.compressobj(1, wbits=31)
    zeros = bytes(1 << 20)
    (directory / "rank_0.json.gz").write_bytes(
        b"".join(packer.compress(zeros) for _ in range(600)) + packer.flush()
    )
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 1 << 32
    member = tarfile.TarInfo("../../rank_1")
    member.size = 1 << 34
    with (
        zipfile.ZipFile(directory / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a", "w") as file,
    ):
        for _ in range(600):
            file.write(zeros)
    for name, info in (("headers.tar.gz", header), ("member.tar.gz", member)):
        packer = zlib.compressobj(1, wbits=31)
        begin = packer.compress(
            info.tobuf(tarfile.USTAR_FORMAT if info is header else tarfile.GNU_FORMAT)
        )
        (directory / name).write_bytes(
            begin + b"".join(packer.compress(zeros) for _ in range(600)) + packer.flush()
        )


def hostile_files(directory, seed):
    """Write 500 files that are cut, flipped, made to run code, deep, or long, and return how many."""
    drawn = random.Random(seed)  # noqa: S311 - no secret
    wanted = dump(0, [Call(WORLD)] * 30, {0, 1}, active=False)
    whole = [
        as_pickle(wanted),
        as_json(wanted),
        json.dumps(ras({0: 5, 1: 4})).encode(),
        as_nccl_2_28(ras({0: 4}, missing=[1])).encode(),
    ]
    code = (
        b"\x80\x02cos\nsystem\n" + b"U" + bytes([len(b"touch EXECUTED")]) + b"touch EXECUTED\x85R."
    )
    made = [
        code,
        code[:-1],
        as_pickle(wanted)[:-1] + code[2:],
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"\x80\x02X\xff\xff\xff\xff",
        b"\x80\x02" + b"]" * 30_000_000 + b".",
        b"\x80\x02" + b"(" * 3_000_000 + b".",
        b"\x80\x02})" + b"\x85" * 3_000_000 + b"K\x01s.",
        b'{"pg_status":' * 100_000,
        b"[" * 1_000_000,
        b'{"pg_status":{},"version":"2.10","entries":[' + b"{}," * 20_000_000 + b"]}",
        b'{"communicators_count":1,"communicators":[' + b"[" * 30_000_000,
        b"x" * 60_000_000,
        b"Group Comms Nodes\n" + b"#0-0 (ab) MISMATCH\n" * 1_000_000,
        b"launched up to operation\n" + b"0 1 1 1 999999999 1 R O\n#0-0 (ab) MISMATCH\n",
        b'{"communicators_count":' + b"9" * 1_000_000 + b"}",
        b'{"pg_status":{"0":' + b"1" * 5000 + b"}}",
        b"",
        b"\x00",
        b'{"traceEvents":[' + b"{}," * 10_000_000,
        gzip.compress(whole[0])[:-9],
        b"\x1f\x8b" + bytes(100),
    ]
    for _ in range(500 - len(made) - 4):
        content = bytearray(drawn.choice(whole))
        if drawn.random() < 0.5:
            del content[drawn.randrange(1, len(content) - 1) :]
        for _ in range(drawn.randrange(1, 20)):
            content[drawn.randrange(len(content))] = drawn.randrange(256)
        made.append(bytes(content))
    for number, content in enumerate(made):
        (directory / f"file{number}_rank_0").write_bytes(content)
    bombs(directory)
    return len(made) + 4


PROGRAM = """
import sys
from pathlib import Path
from hpccoll.render.trace_page import write_trace_page
from hpccoll.render.trace_text import JobFindings, trace_lines, trace_record
from hpccoll.traces.hangs import find_hangs
from hpccoll.traces.read_job import read_job
from hpccoll.traces.slow import slow_parts
damaged = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    found = read_job([path])
    lines = 2 if path.name == "member.tar.gz" else 1  # of the member, and of the archive
    assert len(found.damaged) + len(found.jobs) == lines, (path, found)
    assert not found.damaged or "\\n" not in found.damaged[0] and str(path) in found.damaged[0], found
    damaged += len(found.damaged)
    jobs = [JobFindings(job, find_hangs(job), slow_parts(job)) for job in found.jobs]
    assert not jobs or [*trace_lines(jobs)] and trace_record(jobs)
    assert not jobs or write_trace_page(jobs, [path], Path(sys.argv[2]) / path.name).exists()
(peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(damaged, peak)
"""


@pytest.mark.slow
def test_500_hostile_files_give_a_line_each_run_nothing_and_take_a_gigabyte_at_most(tmp_path):
    """A flipped byte in a text may leave a file whole: such a file is read."""
    directory = tmp_path / "files"
    directory.mkdir()
    assert hostile_files(directory, seed=48) == 500
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({3 << 30}, {3 << 30}))\n"
    ran = subprocess.run(
        [sys.executable, "-c", limit + PROGRAM, directory, tmp_path / "pages"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    damaged, peak_kib = map(int, ran.stdout.split())
    assert damaged > 400
    assert sorted(tmp_path.iterdir()) == [directory, tmp_path / "pages"]
    assert peak_kib < 1_000_000


def test_what_is_no_file_of_a_job_does_not_hide_the_others(tmp_path):
    write_dumps(tmp_path, dumps_of(2))
    (tmp_path / "notes.txt").write_text("the job hangs")
    (tmp_path / "nccl_trace_rank_3").write_bytes(b"\x80\x02]")
    os.mkfifo(tmp_path / "pipe")
    found = read_job([tmp_path, tmp_path / "none"])
    assert named(found) == [2]
    assert len(found.damaged) == 4
    for name in ("notes.txt", "nccl_trace_rank_3", "pipe", "none"):
        (line,) = [line for line in found.damaged if name in line]
        assert "\n" not in line


def test_a_damaged_member_of_an_archive_does_not_hide_those_behind_it(tmp_path):
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo(".."))
        archive.add(write_dumps(tmp_path / "dumps", dumps_of(2)), "job")
    found = read_job([tmp_path / "job.tar"])
    assert (named(found), len(found.damaged)) == ([2], 1)


def test_a_file_above_the_limit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 1000)
    path = write_dumps(tmp_path, {0: dumps_of(2)[0]}) / "nccl_trace_rank_0"
    path.write_bytes(path.read_bytes() + bytes(1000))
    packed = tmp_path / "nccl_trace_rank_1.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    lines = read_job([path, packed]).damaged
    assert len(lines) == 2
    assert all("1000 B" in line for line in lines)


@pytest.mark.parametrize("name", ["../outside", "/outside-of-it", "..", "a/../../b"])
def test_names_in_archives_place_nothing_outside(tmp_path, name):
    content = as_pickle(dumps_of(2)[0])
    info = tarfile.TarInfo(name)
    info.size = len(content)
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        archive.addfile(info, io.BytesIO(content))
    before = sorted(tmp_path.rglob("*"))
    read_job([tmp_path / "job.tar"])
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/outside-of-it").exists()
