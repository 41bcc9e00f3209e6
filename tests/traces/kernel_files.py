"""Files as recorders of kernels and calls write them: Kineto, execution traces, NCCL's Inspector and log."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BASE_NS = 1_790_857_026_000_000_000
"""The base of Kineto's times."""


def kernel(
    name: str, sequence: int | None, begin_us: float, us: float, **more: Any
) -> dict[str, Any]:
    """Return the event of a kernel of NCCL with arguments; ``more`` are arguments by Kineto's names."""
    arguments = (
        {
            "Collective name": name,
            "In msg nelems": 1024,
            "Out msg nelems": 1024,
            "Group size": 2,
            "dtype": "Float",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
            "Process Group Ranks": "[0, 1]",
        }
        | ({} if sequence is None else {"Seq": sequence})
        | more
    )
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "ncclDevKernel_Generic",
        "pid": 0,
        "tid": 7,
        "ts": begin_us,
        "dur": us,
        "args": arguments,
    }


def computing(begin_us: float, us: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": "gemm",
        "pid": 0,
        "tid": 8,
        "ts": begin_us,
        "dur": us,
        "args": {},
    }


def step(number: int, begin_us: float, us: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": f"ProfilerStep#{number}",
        "pid": 9,
        "tid": 9,
        "ts": begin_us,
        "dur": us,
        "args": {},
    }


def old_kernel(name: str, begin_us: float, us: float, correlation: int) -> list[dict[str, Any]]:
    """Return the events of a kernel of 2023: its collective is in the annotation around its launch."""
    return [
        {"ph": "X", "cat": "user_annotation", "name": f"nccl:{name}", "pid": 5, "tid": 6, "ts": begin_us - 60,
         "dur": 40, "args": {"Input Dims": [[24], []], "Input type": ["long int", ""]}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 6, "ts": begin_us - 50,
         "dur": 9, "args": {"correlation": correlation}},
        {"ph": "X", "cat": "kernel", "name": "ncclKernel_SendRecv", "pid": 0, "tid": 7, "ts": begin_us, "dur": us,
         "args": {"correlation": correlation, "queued": 0}},
    ]  # fmt: skip


def write_kineto(
    path: Path,
    rank: int,
    events: Sequence[Mapping[str, Any]],
    ranks: int = 2,
    host: str | None = None,
    base_ns: int = BASE_NS,
) -> Path:
    """Write the trace of a rank."""
    trace: dict[str, Any] = {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": ranks,
            "pg_config": [
                {
                    "pg_name": "0",
                    "pg_desc": "default_pg",
                    "pg_size": ranks,
                    "ranks": [*range(ranks)],
                }
            ],
        },
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": "Spans", "tid": "a", "args": {"name": "x"}},
            *events,
        ],
    }
    trace |= ({"host_name": host} if host else {}) | (
        {"baseTimeNanoseconds": base_ns} if base_ns else {}
    )
    path.write_text(json.dumps(trace))
    return path


def inspector_line(
    rank: int,
    sequence: int,
    microseconds: float | str,
    process: tuple[str, int] | None = None,
    **more: Any,
) -> str:
    """Return a line of NCCL's Inspector; ``more`` replaces what is in its header, or of its operation."""
    host, pid = process or (f"n{rank // 2}", 70 + rank)
    header = {"id": "0x3f2a9c01d4e5b6", "rank": rank, "n_ranks": 4, "nnodes": 2}
    operation = {
        "coll": "AllGather",
        "coll_sn": sequence,
        "coll_msg_size_bytes": 1048576,
        "coll_exec_time_us": microseconds,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 41.943040,
        "coll_busbw_gbs": 31.457280,
    }
    operation |= {name: value for name, value in more.items() if name not in header}
    return json.dumps(
        {
            "header": header | {name: value for name, value in more.items() if name in header},
            "metadata": {
                "inspector_output_format_version": "v4.3",
                "dump_timestamp_us": 1790000000123456,
                "hostname": host,
                "pid": pid,
            },
            "coll_perf": operation,
        }
    )


STATISTICS_LINE = json.dumps({
    "header": {"id": "0x3f2a9c01d4e5b6", "rank": 0, "n_ranks": 4}, "metadata": {"hostname": "n0", "pid": 70},
    "dump_stats": {"coll_records": 7, "coll_dropped_total": 0},
})  # fmt: skip
"""What v4.1 writes besides."""


def execution_trace(calls: Sequence[tuple[str, int, int, str]], rank: int = 1) -> dict[str, Any]:
    """Return an execution trace of 1.1.0: each call has a name, a number, elements and a type."""
    groups = json.dumps(
        [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2, "group_count": 1}]
    )
    nodes = [{"id": 4, "name": "## process_group:init ##", "inputs": {"values": [groups]}}]
    for name, number, elements, dtype in calls:
        tensor = [434, 435, 0, elements, 4, "cuda:1"]
        attributes = {
            "collective_name": name,
            "dtype": dtype,
            "in_msg_nelems": elements,
            "out_msg_nelems": elements,
        }
        root = 0 if name == "broadcast" else rank
        nodes.append(
            {
                "id": number,
                "name": "record_param_comms",
                "outputs": {"values": [[tensor]]},
                "inputs": {
                    "values": [[tensor], number, ["0", "default_pg"], root, name, [], [], 0, 1, 2]
                },
                "attrs": [
                    {"name": key, "type": "string", "value": value}
                    for key, value in attributes.items()
                ],
            }
        )
        nodes.append(
            {
                "id": 1,
                "name": "record_param_comms",
                "inputs": {"values": [number, ["", ""], rank, "wait", [], [], -1, -1, 1]},
            }
        )
    return {
        "schema": "1.1.0-chakra.0.0.4",
        "pid": "1",
        "nodes": [*nodes, {"id": 9, "name": "aten::mm"}],
    }


def old_execution_trace(rank: int, elements: int) -> dict[str, Any]:
    """Return an execution trace of 1.0.1 with one all-to-all of 64-bit integers."""
    tensor = [1062, 611, 0, elements, 8, "cuda:3"]
    return {
        "schema": "1.0.1",
        "pid": "1",
        "nodes": [
            {
                "name": "record_param_comms",
                "id": 1068,
                "inputs": [tensor, 148, 94398426290464, rank, "all_to_all", [], []],
                "input_types": ["Tensor(long int)", "Int"],
                "outputs": [tensor],
            }
        ],
    }


def begun_communicator(
    rank: int, ranks: int, event: str = "START", name: str = "commId 0x77e1"
) -> str:
    """Return the line with which a rank begins a communicator, or completes it."""
    who = f"n{rank // 2}:7{rank}:80 [{rank % 2}] NCCL INFO"
    place = f"comm 0x55f{rank} rank {rank} nranks {ranks} cudaDev {rank % 2} nvmlDev {rank % 2} busId {rank % 2 + 1}000"
    return f"{who} ncclCommInitRank {place} {name} - Init {event}\n"


def nccl_log(rank: int, calls: int, first: int = 0) -> str:
    """Return a log of one rank of four with all-reduces, the first of which has the number ``first``."""
    who = f"n{rank // 2}:7{rank}:80 [{rank % 2}] NCCL INFO"
    place = (
        f"comm 0x55f{rank} rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev {rank % 2} busId 1000"
    )
    lines = [f"{who} ncclCommInitRank {place} commId 0xad56c683b0c4ef12 - Init COMPLETE"]
    lines += [
        f"{who} AllReduce: opCount {number:x} sendbuff 0x7f00 recvbuff 0x7f00 acc (nil) count 1024 datatype 7 op 0 "
        f"root 0 comm 0x55f{rank} [nranks=4] stream 0x55"
        for number in range(first, first + calls)
    ]
    return "\n".join(lines) + "\n"
