"""The readers of Kineto's traces, execution traces, NCCL's Inspector and NCCL's log."""

import gzip
import json
import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.render.trace_page import write_trace_page
from hpccoll.render.trace_text import JobFindings, trace_lines, trace_record
from hpccoll.traces import execution_trace, kineto, nccl_inspector, nccl_log_calls
from hpccoll.traces.hangs import find_hangs
from hpccoll.traces.read_job import read_job
from hpccoll.traces.slow import slow_parts
from tests.traces import kernel_files

READERS = (kineto, execution_trace, nccl_inspector, nccl_log_calls)


def write(path: Path, text: object) -> Path:
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


@pytest.fixture
def files(tmp_path) -> dict[object, Path]:
    """A file of each format."""
    calls = [("broadcast", 33, 53, "Long"), ("allreduce", 35, 2049000, "Float")]
    lines = [kernel_files.inspector_line(1, 12, 100), kernel_files.STATISTICS_LINE]
    events = [
        kernel_files.kernel("_allgather_base", 12, 1000.5, 120.0),
        kernel_files.computing(1000, 50),
    ]
    return {
        kineto: kernel_files.write_kineto(tmp_path / "trace.json", 1, events),
        execution_trace: write(tmp_path / "et.json", kernel_files.execution_trace(calls)),
        nccl_inspector: write(tmp_path / "n1-pid71.log", "\n".join(lines) + "\n"),
        nccl_log_calls: write(tmp_path / "nccl.log", kernel_files.nccl_log(1, 3)),
    }


@pytest.mark.parametrize("reader", READERS)
def test_each_reader_recognises_its_own_files_only(reader, files):
    for other, path in files.items():
        assert reader.recognises(path.read_bytes()[:4096]) == (reader is other), other


def test_a_kernel_with_arguments_has_its_group_number_size_and_times(tmp_path):
    event = kernel_files.kernel(
        "_allgather_base", 12, 1000.5, 120.0, **{"Out msg nelems": 8192, "dtype": "BFloat16"}
    )
    job = kineto.read(kernel_files.write_kineto(tmp_path / "a.json", 1, [event], host="n7"))
    (operation,) = job.operations
    assert (operation.rank, operation.collective, operation.sequence) == (1, "all_gather", 12)
    assert (operation.bytes, operation.dtype) == (16384, "bfloat16")
    assert operation.group.ranks == (0, 1)
    assert operation.started_ns == kernel_files.BASE_NS + 1_000_500
    assert operation.ended_ns == kernel_files.BASE_NS + 1_120_500
    assert operation.duration_s == pytest.approx(120e-6)
    assert job.ranks[0].host == "n7"


def test_a_kernel_of_2023_has_the_collective_of_the_annotation_around_its_launch(tmp_path):
    begin = 1_694_128_201_429_795
    events = kernel_files.old_kernel("all_to_all", begin, 2146, 4) + kernel_files.old_kernel(
        "barrier", begin + 9e3, 5, 5
    )
    job = kineto.read(kernel_files.write_kineto(tmp_path / "a.json", 0, events, base_ns=0))
    assert [(each.collective, each.bytes, each.dtype) for each in job.operations] == [
        ("all_to_all", 192, "int64"),
        ("barrier", None, "int64"),
    ]
    assert job.operations[0].started_ns == begin * 1000
    assert job.operations[0].sequence is None


@pytest.mark.parametrize(
    ("kernel", "collective"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
        (
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE(ncclDevKernelArgsStorage<4096ul>)",
            "reduce_scatter",
        ),
        ("ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs)", "all_gather"),
        ("ncclBroadcastRingLLKernel_copy_i8(ncclColl)", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL()", "reduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgs)", "unknown"),
    ],
)
def test_a_kernel_without_annotation_has_the_collective_of_its_name(tmp_path, kernel, collective):
    event = {
        "cat": "kernel",
        "name": kernel,
        "pid": 0,
        "tid": 7,
        "ts": 1.0,
        "dur": 2.0,
        "args": {"correlation": 3},
    }
    (operation,) = kineto.read(
        kernel_files.write_kineto(tmp_path / "a.json", 0, [event])
    ).operations
    assert operation.collective == collective


def test_an_annotation_does_not_tell_that_the_blocks_of_an_all_to_all_are_equal_and_arguments_do(
    tmp_path,
):
    named = kernel_files.kernel("all_to_all", 1, 1.0, 9.0)
    events = [*kernel_files.old_kernel("all_to_all", 1000.0, 9, 1), named]
    job = kineto.read(kernel_files.write_kineto(tmp_path / "a.json", 0, events))
    assert {each.sequence: each.may_be_uneven for each in job.operations} == {1: False, None: True}


def test_an_annotation_counts_only_in_the_thread_of_the_launch_and_while_it_lasts(tmp_path):
    early, other = (kernel_files.old_kernel("all_reduce", 1000.0, 9, number) for number in (1, 2))
    early[0]["dur"] = 5  # the launch is 10 us after its begin
    other[0]["tid"] = 66
    for events in (early, other):
        (operation,) = kineto.read(
            kernel_files.write_kineto(tmp_path / "a.json", 0, events)
        ).operations
        assert operation.collective == "unknown"


def test_ranks_of_a_group_are_those_of_the_configuration_or_of_the_kernel_unless_it_shortens_them(
    tmp_path,
):
    named = {"Process Group Name": "7", "Process Group Ranks": "[4, 5]"}
    events = [
        kernel_files.kernel("allreduce", 1, 0.0, 1.0), kernel_files.kernel("allreduce", 1, 5.0, 1.0, **named),
        kernel_files.kernel("allreduce", 1, 9.0, 1.0, **named | {"Process Group Ranks": "[4, 5, ..., 11]"}),
    ]  # fmt: skip
    job = kineto.read(kernel_files.write_kineto(tmp_path / "a.json", 0, events))
    assert [each.group.ranks for each in job.operations] == [(0, 1), (4, 5), ()]


def test_a_group_whose_ranks_are_shortened_has_the_size_of_its_arguments_and_sizes_are_bounded(
    tmp_path,
):
    more = {"Process Group Name": "7", "Process Group Ranks": "[0, 1, ..., 127]", "Group size": 128}
    event = kernel_files.kernel("allreduce", 1, 0.0, 1.0, **more)
    old = kernel_files.old_kernel("all_reduce", 1000.0, 9, 1)
    old[0]["args"]["Input Dims"] = [[10**18] * 2000]
    first, second = kineto.read(
        kernel_files.write_kineto(tmp_path / "a.json", 0, [event, *old])
    ).operations
    assert (first.group.ranks, first.group.size, second.bytes) == ((), 128, None)


def test_the_window_is_that_of_the_profilers_steps_and_computing_the_union_of_other_kernels(
    tmp_path,
):
    events = [
        kernel_files.step(10, 0, 500), kernel_files.step(11, 500, 600), kernel_files.computing(100, 50),
        kernel_files.computing(120, 100), kernel_files.kernel("allreduce", 1, 300, 10),
    ]  # fmt: skip
    (computing,) = kineto.read(
        kernel_files.write_kineto(tmp_path / "a.json", 0, events, base_ns=0)
    ).computing
    assert computing.spans_ns == [(100_000, 220_000)]
    assert (computing.window_ns, computing.steps) == ((0, 1_100_000), 2)


def test_no_share_is_above_100_per_cent_and_files_of_one_rank_and_time_are_told(tmp_path):
    """The device runs 9 ms after its step; then a file of another rank that has no number, and one of a later time."""
    late = [
        kernel_files.kernel("allreduce", number, 1000.0 * number, 900) for number in range(1, 10)
    ]
    events = [kernel_files.step(10, 0, 500), kernel_files.computing(100, 50), *late]
    for names, told in ((["a1"], 0), (["a1", "a2"], 1), (["a1", "a2", "a3"], 1)):
        for name in names:
            base = kernel_files.BASE_NS + 10**9 * (name == "a3")
            kernel_files.write_kineto(tmp_path / f"{name}.json", 0, events, base_ns=base)
        (job,) = read_job([tmp_path]).jobs
        (rank,) = slow_parts(job).ranks
        assert (rank.share, rank.exposed) == (pytest.approx(8.1 / 9.9), pytest.approx(8.1 / 9.9))
        assert sum("of the same time" in gap for gap in job.cannot_say) == told


def test_the_inspectors_size_is_that_of_all_ranks_and_nan_is_no_time(tmp_path):
    lines = [
        kernel_files.inspector_line(1, 12, 100),
        kernel_files.inspector_line(1, 5, "nan", coll="AllReduce"),
        kernel_files.STATISTICS_LINE,
        kernel_files.inspector_line(1, 13, 100)[:90],
    ]
    job = nccl_inspector.read(write(tmp_path / "n1.log", "\n".join(lines)))
    gathered, reduced = job.operations
    assert (gathered.collective, gathered.bytes, gathered.duration_s) == (
        "all_gather",
        4 << 20,
        1e-4,
    )
    assert (reduced.collective, reduced.bytes, reduced.duration_s) == ("all_reduce", 1 << 20, None)
    assert gathered.by_type
    assert gathered.group.name == "3f2a9c01d4e5b6"
    assert not gathered.group.has_job_ranks


def test_one_line_may_be_cut_and_more_are_said(tmp_path):
    good, cut = (
        kernel_files.inspector_line(1, 12, 100),
        kernel_files.inspector_line(1, 13, 100)[:90],
    )
    one, two = (
        nccl_inspector.read(write(tmp_path / "n1.log", "\n".join([*[cut] * n, good])))
        for n in (1, 2)
    )
    assert [sum("damaged" in gap for gap in job.cannot_say) for job in (one, two)] == [0, 1]


def test_a_communicator_is_one_whether_its_id_has_14_digits_or_16(tmp_path):
    ids = "0x3F2A9C01D4E5B6", "0x3f2a9c01d4e5b6ff"
    lines = [kernel_files.inspector_line(1, 12, 100, id=name) for name in ids]
    first, second = nccl_inspector.read(write(tmp_path / "n1.log", "\n".join(lines))).operations
    assert first.group == second.group


def test_a_process_with_two_gpus_has_two_ranks(tmp_path):
    process = "n0", 70
    lines = [kernel_files.inspector_line(rank, 12, 100 + rank, process) for rank in (0, 1)]
    lines.append(kernel_files.inspector_line(0, 1, 5, process, id="0xabc", n_ranks=2))
    job = nccl_inspector.read(write(tmp_path / "n1.log", "\n".join(lines)))
    assert [each.rank for each in job.ranks] == [0, 1]
    assert [(each.rank, each.duration_s) for each in job.operations] == [(0, 1e-4), (1, 1.01e-4)]


@given(st.permutations(range(8)))
def test_each_record_of_a_file_of_several_processes_is_of_its_own_host(order):
    lines = [
        kernel_files.inspector_line(rank, number, 100 + rank)
        for rank in range(4)
        for number in (1, 2)
    ]
    with TemporaryDirectory() as directory:
        (job,) = read_job(
            [write(Path(directory) / "all.log", "\n".join(lines[place] for place in order))]
        ).jobs
    assert [(each.rank, each.host) for each in job.ranks] == [
        (0, "n0"),
        (1, "n0"),
        (2, "n1"),
        (3, "n1"),
    ]
    assert sorted((each.rank, each.duration_s) for each in job.operations) == [
        (rank, pytest.approx((100 + rank) / 1e6)) for rank in range(4) for _ in range(2)
    ]


def without_header(line):
    """Return a line of NVIDIA/nccl#2359, which has the header of the line before."""
    return json.dumps({"coll_perf": json.loads(line)["coll_perf"]}, separators=(",", ":"))


def once(rank, numbers):
    """Return the lines of a process: a header with statistics, then operations."""
    whole = [kernel_files.inspector_line(rank, number, 100 + rank) for number in numbers]
    named = {key: value for key, value in json.loads(whole[0]).items() if key != "coll_perf"}
    return [
        json.dumps(named | {"dump_stats": {"coll_count": len(whole)}}),
        *map(without_header, whole),
    ]


def test_lines_without_a_header_are_of_the_process_that_the_line_before_names(tmp_path):
    job = nccl_inspector.read(
        write(tmp_path / "all.log", "\n".join([*once(1, (1, 2)), *once(2, (1, 2, 3))]))
    )
    assert [(each.rank, each.sequence) for each in job.operations] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (2, 3),
    ]
    assert [each.host for each in job.ranks] == ["n0", "n1"]


def test_behind_a_damaged_header_operations_are_of_no_process(tmp_path):
    lines = [*once(1, (1,)), once(2, (1,))[0][:60], *once(2, (1, 2))[1:]]
    job = nccl_inspector.read(write(tmp_path / "all.log", "\n".join(lines)))
    assert [(each.rank, each.sequence) for each in job.operations] == [(1, 1)]
    assert any("3 damaged lines" in gap for gap in job.cannot_say)


def test_a_file_of_which_no_operation_can_be_read_is_refused(tmp_path):
    lines = once(1, (1, 2, 3))
    with pytest.raises(ValueError, match="3 lines"):
        nccl_inspector.read(
            write(tmp_path / "n1.log", "\n".join([lines[0], *(line[:40] for line in lines[1:])]))
        )


def test_verbose_lines_of_the_inspector_have_the_end_of_the_last_kernel(tmp_path):
    trace = {
        "coll_start_ts": 1000,
        "kernel_events": [{"kernel_stop_ts": 1500}, {"kernel_stop_ts": 1600}],
    }
    line = kernel_files.inspector_line(1, 12, 100, event_trace_ts=trace)
    (operation,) = nccl_inspector.read(write(tmp_path / "n1.log", line)).operations
    assert (operation.enqueued_ns, operation.started_ns, operation.ended_ns) == (
        1_000_000,
        1_500_000,
        1_600_000,
    )


def test_an_execution_trace_has_the_calls_of_its_rank_without_times(files):
    job = execution_trace.read(files[execution_trace])
    assert [(each.collective, each.sequence, each.bytes) for each in job.operations] == [
        ("broadcast", 33, 424),
        ("all_reduce", 35, 8196000),
    ]
    assert {each.rank for each in job.operations} == {1}
    assert all(each.group.ranks == (0, 1) and each.duration_s is None for each in job.operations)


def test_the_root_of_a_broadcast_is_not_taken_for_the_rank(tmp_path):
    trace = kernel_files.execution_trace(
        [("broadcast", n, 8, "Float") for n in range(3)] + [("allreduce", 9, 8, "Int")]
    )
    trace["nodes"] = [node for node in trace["nodes"] if "wait" not in json.dumps(node)]
    assert execution_trace.read(write(tmp_path / "et.json", trace)).ranks[0].rank == 1


def test_an_execution_trace_of_an_older_form_is_read_too(tmp_path):
    (operation,) = execution_trace.read(
        write(tmp_path / "et.json", kernel_files.old_execution_trace(3, 24))
    ).operations
    assert (operation.rank, operation.collective, operation.bytes, operation.dtype) == (
        3,
        "all_to_all",
        192,
        "int64",
    )


def test_a_log_tells_how_many_collectives_of_each_type_a_rank_has_called(tmp_path):
    job = nccl_log_calls.read(
        write(
            tmp_path / "nccl.log",
            kernel_files.nccl_log(1, 3) + kernel_files.nccl_log(2, 2, first=4),
        )
    )
    assert [(each.rank, each.collective, each.enqueued) for each in job.progress] == [
        (1, "all_reduce", 3)
    ]
    assert [(each.rank, each.host) for each in job.ranks] == [(1, "n0"), (2, "n1")]
    assert any("left out" in sentence for sentence in job.cannot_say)


def test_a_process_has_its_rank_in_its_largest_communicator(tmp_path):
    text = kernel_files.nccl_log(3, 1)
    small = (
        text.replace("rank 3 nranks 4", "rank 0 nranks 2")
        .replace("0x55f3", "0x99")
        .replace("commId 0xad", "commId 0xbb")
    )
    job = nccl_log_calls.read(write(tmp_path / "nccl.log", text + small))
    assert [(each.rank, len(each.group.ranks)) for each in job.progress] == [(3, 4), (3, 2)]


def test_a_rank_whose_log_has_no_call_has_called_nothing_and_did_not_join(tmp_path):
    for rank in range(4):
        write(tmp_path / f"nccl{rank}.log", kernel_files.nccl_log(rank, 0 if rank == 3 else 5))
    (job,) = read_job([tmp_path]).jobs
    (hang,) = find_hangs(job)
    assert (hang.reason, hang.ranks, hang.operation.sequence) == ("not joined", (3,), 1)


@given(st.integers(2, 6), st.data())
def test_a_communicator_is_not_created_for_the_ranks_that_began_it_and_did_not_complete_it(
    size, data
):
    begun = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    completed = data.draw(st.sets(st.sampled_from(sorted(begun))))
    text = "".join(kernel_files.begun_communicator(rank, size) for rank in begun)
    text += "".join(kernel_files.begun_communicator(rank, size, "COMPLETE") for rank in completed)
    with TemporaryDirectory() as directory:
        (job,) = read_job([write(Path(directory) / "nccl.log", text)]).jobs
    found = [(hang.reason, hang.ranks, hang.unseen) for hang in find_hangs(job)]
    incomplete = tuple(sorted(begun - completed))
    assert found == ([("not created", incomplete, size - len(begun))] if incomplete else [])


def test_a_log_of_nccl_before_2_16_is_refused_for_its_missing_ids_and_not_for_missing_lines(
    tmp_path,
):
    """As in NVIDIA/nccl#394, of 2.5.7: it has lines of communicators, which do not say which are the same."""
    text = kernel_files.nccl_log(0, 2).replace(" commId 0xad56c683b0c4ef12", "")
    with pytest.raises(ValueError, match="commId"):
        nccl_log_calls.read(write(tmp_path / "nccl.log", text))


def test_a_communicator_whose_completion_was_lost_has_been_created_if_it_was_used(tmp_path):
    _, *calls = kernel_files.nccl_log(0, 2).splitlines()
    (job,) = read_job(
        [write(tmp_path / "nccl.log", kernel_files.begun_communicator(0, 1) + "\n".join(calls))]
    ).jobs
    assert find_hangs(job) == []


def test_processes_of_one_log_without_a_communicator_of_all_are_told_apart(tmp_path):
    logs = [kernel_files.nccl_log(rank, 4 + (rank != 2)) for rank in range(4)]
    other = [
        text.replace("ad56", "ff56").replace("n0:", "n8:").replace("n1:", "n9:")
        for text in logs[:2]
    ]
    job = nccl_log_calls.read(write(tmp_path / "nccl.log", "".join([*logs, *other])))
    assert [(each.rank, each.host) for each in sorted(job.ranks, key=lambda each: each.rank)] == [
        (0, "n0"), (1, "n0"), (2, "n1"), (3, "n1"), (4, "n8"), (5, "n8"),
    ]  # fmt: skip
    assert len({each.rank for each in job.progress}) == 6


HOSTILE = (
    b"",
    b"{",
    b"[" * 100_000,
    b'{"traceEvents":' + b"[" * 100_000,
    b'{"traceEvents":[{"ts":1e999,"dur":1}]}',
    b'{"traceEvents":[{"ts":' + b"9" * 5000 + b',"dur":1}]}',
    b'{"traceEvents":[{"ts":NaN,"dur":-1}]}',
    b'{"traceEvents":[{"ts":1,"dur":-1}]}',
    b'{"traceEvents":[],"baseTimeNanoseconds":' + b"9" * 30 + b"}",
    b'{"traceEvents":[],"distributedInfo":{"rank":"a","world_size":1e9}}',
    b'{"traceEvents":[],"distributedInfo":{"rank":1' + b"0" * 3000 + b"}}",
    b'{"schema":"1","nodes":[{"name":"record_param_comms","inputs":{"values":[[],1,{},2,"allreduce"]}}]}',
    b'{"schema":"1","nodes":[{"name":"## process_group:init ##","inputs":["[{\\"group_size\\":1e9}]"]}]}',
    b'{"schema":"1","nodes":[{"name":"## process_group:init ##","inputs":["[{\\"group_size\\":999999999}]"]}]}',
    b'{"header":{"id":"0x1","rank":0,"n_ranks":999999999}}',
    b"\x1f\x8b\x08\x00garbage",
    b"\xff\xfe" * 50,
    b"\n" * 9000,
    b"n0:1:2 [0] NCCL INFO comm 0x1 rank 999999 nranks 999999 x commId 0x1 - Init COMPLETE\n",
)


@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_is_read_or_refused_by_a_value_error_and_no_other(reader, files, tmp_path):
    good, random_bytes = files[reader].read_bytes(), random.Random(48)  # noqa: S311 - no secrets
    damaged = [*HOSTILE, gzip.compress(good)[:-20]]
    for _ in range(60):
        cut = bytearray(
            good[: random_bytes.randrange(1, len(good))] if random_bytes.random() < 0.4 else good
        )
        for _ in range(random_bytes.randrange(0, 4)):
            cut[random_bytes.randrange(len(cut))] = random_bytes.randrange(256)
        damaged.append(bytes(cut))
    path, pages = tmp_path / "damaged", []
    for content in damaged:
        path.write_bytes(content)
        try:
            job = reader.read(path)
        except ValueError:
            continue
        jobs = [JobFindings(job, find_hangs(job), slow_parts(job))]
        assert [*trace_lines(jobs)]
        assert json.dumps(trace_record(jobs))
        pages.append(write_trace_page(jobs, [path], tmp_path / "pages" / str(len(pages))))
    assert pages


@pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of public traces"
)
def test_the_five_all_reduces_of_the_public_trace_of_resnet_are_read():
    (job,) = read_job([Path(os.environ["HPCCOLL_DATA"]) / "traces" / "resnet_2gpu_et.json.gz"]).jobs
    reduced = [each.bytes for each in job.operations if each.collective == "all_reduce"]
    assert reduced == 3 * [8196000, 31502336, 26255360, 26550272, 9724160]
    assert job.ranks[0].rank == 1
