"""How the cost of ``evidence``, ``trace`` and ``diagnose --links`` grows with logs, recordings and nodes.

By hand, with the table and the options of growth.py:

    python tests/benchmarks/growth_recordings.py                 # all stages, some minutes
    python tests/benchmarks/growth_recordings.py logs --most 2   # the smallest two sizes of one

Inputs have the forms that are recorded in tests, in made-up numbers of processes, calls and events,
from a seed. Each ``trace`` runs in one process, so that all of its CPU counts.
"""

import json
import pickle
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # simulated_machine.py

import growth
from growth import SEED, Size, Stage

PER_NODE = 8
CHANNELS = 16
EPOCH_NS = 1_790_857_026_000_000_000


def logs_size(processes: int, kilobytes: int) -> Size:
    """Return the size of the logs of a job, one for each process."""
    about = {"processes": processes, "bytes": 1000 * kilobytes}
    return Size(f"{processes:,} logs of {kilobytes:,} KB", processes * kilobytes, about)


def write_logs(size: Size, directory: Path) -> None:
    """Write logs of NCCL with the subsystems INIT, ENV, GRAPH, NET and COLL."""
    for rank in range(size.about["processes"]):
        host = f"gpu-{rank // PER_NODE:04d}"
        pid = 1000 + rank % PER_NODE
        length = 0
        with (directory / f"nccl.{host}.{pid}.log").open("w") as file:
            for thread, text in messages_of_rank(rank, size.about["processes"]):
                line = f"{host}:{pid}:{pid + thread} [{rank % PER_NODE}] NCCL INFO {text}\n"
                length += len(line)
                if length > size.about["bytes"]:
                    break
                file.write(line)


def messages_of_rank(rank: int, ranks: int) -> Iterator[tuple[int, str]]:
    """Yield the messages of a rank, without end, each with the number of its thread."""
    begun = (
        f"ncclCommInitRank comm 0x55d0 rank {rank} nranks {ranks} cudaDev {rank % PER_NODE} nvmlDev {rank % PER_NODE} "
        f"busId {rank % PER_NODE}000 commId 0xabc123"
    )
    me, before, after = rank, (rank - 1) % ranks, (rank + 1) % ranks
    yield 20, "NCCL_ALGO set by environment to Ring,Tree"
    yield 20, "NET/Plugin: Could not find: libnccl-net.so."
    yield 20, "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>"
    yield 20, "Using network IB"
    yield 20, f"{begun} - Init START"
    yield (
        20,
        "Trees "
        + " ".join(f"[{channel}] {after}/-1/-1->{me}->{before}" for channel in range(CHANNELS)),
    )
    for channel in range(CHANNELS):
        yield (
            21,
            f"Channel {channel:02d}/0 : {before}[0] -> {me}[1] [receive] via NET/IB/{channel % 4}/GDRDMA",
        )
        yield 21, f"Channel {channel:02d}/0 : {me}[1] -> {after}[2] via P2P/CUMEM/read"
    yield 21, "Connected all rings, use ring PXN 0 GDR 1"
    yield 20, f"{begun} - Init COMPLETE"
    number = 0
    while True:
        count = 1 << number % 24
        buffers = f"sendbuff 0x7f{number % 97:04x}00 recvbuff 0x7f80"
        group = f"root 0 comm 0x55d0 [nranks={ranks}] stream 0x1"
        yield 0, f"AllReduce: opCount {number:x} {buffers} count {count} datatype 7 op 0 {group}"
        if rank == 0:
            yield (
                0,
                f"AllReduce: {4 * count} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}",
            )
        number += 1


def dumps_size(ranks: int, entries: int) -> Size:
    """Return the size of a job's dumps of the Flight Recorder."""
    about = {"ranks": ranks, "entries": entries}
    return Size(f"{ranks:,} ranks x {entries:,} entries", ranks * entries, about)


def write_dumps(size: Size, directory: Path) -> None:
    """Write dumps of a job with one group, whose ranks differ by up to a millisecond."""
    ranks, entries = size.about["ranks"], size.about["entries"]
    chance = random.Random(SEED)  # noqa: S311
    counts = dict.fromkeys(
        ("last_enqueued_collective", "last_started_collective", "last_completed_collective"),
        entries,
    )
    for rank in range(ranks):
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str([*range(ranks)])}},
            "pg_status": {"0": counts},
            "entries": [entry(number, ranks, chance) for number in range(entries)],
        }
        (directory / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))


def entry(number: int, ranks: int, chance: random.Random) -> dict[str, Any]:
    """Return an entry of a dump."""
    name, elements_in, elements_out = (
        ("nccl:all_reduce", 1 << 20, 1 << 20), ("nccl:_all_gather_base", 4096, 4096 * ranks),
        ("nccl:_reduce_scatter_base", 4096 * ranks, 4096),
    )[number % 3]  # fmt: skip
    created_ns = EPOCH_NS + number * 10**8 + chance.randrange(10**6)
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": name,
        "time_created_ns": created_ns,
        "input_sizes": [[elements_in]],
        "input_dtypes": ["Float"],
        "output_sizes": [[elements_out]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": created_ns + 10**6,
        "time_discovered_completed_ns": created_ns + 10**7,
        "duration_ms": chance.uniform(4, 6),
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
    }


def trace_size(megabytes: int) -> Size:
    """Return the size of a trace of PyTorch's profiler."""
    return Size(f"{megabytes:,} MB", megabytes, {"bytes": megabytes * 10**6})


def write_trace(size: Size, directory: Path) -> None:
    """Write a trace of one rank: 50 kernels of computing for each of NCCL."""
    head = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": EPOCH_NS,
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 64},
    }
    length = 0
    with (directory / "rank_0.json").open("w") as file:
        file.write(
            json.dumps(head)[:-1] + ', "traceEvents": [\n{"ph": "M", "name": "process_name"}'
        )
        for event in events_of_rank():
            if length > size.about["bytes"]:
                break
            length += file.write(f",\n{json.dumps(event)}")
        file.write('\n], "displayTimeUnit": "ms"}\n')


def events_of_rank() -> Iterator[dict[str, Any]]:
    """Yield events of a profiler, without end."""
    number = 0
    while True:
        us = 1000 + 10.5 * number
        on_host = {"ph": "X", "pid": 5, "tid": 6}
        on_gpu = {"ph": "X", "cat": "kernel", "pid": 0}
        if number % 1000 == 0:
            step = {
                "cat": "user_annotation",
                "name": f"ProfilerStep#{number // 1000}",
                "ts": us,
                "dur": 9000.0,
            }
            yield on_host | step
        shapes = {
            "Input Dims": [[4096], [8192, 1024], [1024, 4096]],
            "Input type": ["float", "float", "float"],
        }
        launch = {"External id": number, "cbid": 211, "correlation": number}
        grid = {
            "registers per thread": 230,
            "blocks per SM": 1.9,
            "grid": [32, 8, 1],
            "block": [128, 1, 1],
        }
        kernel = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(cutlass_80::Params)"
        yield on_host | {
            "cat": "cpu_op",
            "name": "aten::addmm",
            "ts": us,
            "dur": 30.125,
            "args": shapes,
        }
        yield on_host | {
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": us + 3,
            "dur": 5.5,
            "args": launch,
        }
        yield {
            "ph": "s",
            "id": number,
            "pid": 5,
            "tid": 6,
            "ts": us + 3,
            "cat": "ac2g",
            "name": "ac2g",
        }
        yield on_gpu | {"name": kernel, "tid": 7, "ts": us + 20, "dur": 8.2, "args": launch | grid}
        yield {
            "ph": "f",
            "id": number,
            "pid": 0,
            "tid": 7,
            "ts": us + 20,
            "cat": "ac2g",
            "name": "ac2g",
            "bp": "e",
        }
        if number % 50 == 0:
            call = {
                "Collective name": "allreduce",
                "In msg nelems": 1 << 20,
                "Out msg nelems": 1 << 20,
                "Group size": 64,
                "dtype": "Float",
                "Process Group Name": "0",
                "Process Group Description": "default_pg",
                "Process Group Ranks": "[0, 1, 2, ..., 63]",
                "Seq": number // 50 + 1,
            }
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
            yield on_gpu | {"name": name, "tid": 20, "ts": us + 21, "dur": 100.5, "args": call}
        number += 1


def trace_in_one_process(_size: Size, directory: Path) -> None:
    """Run ``hpccoll trace`` without processes that read for it."""
    from hpccoll.cli.main import main
    from hpccoll.traces import read_job

    read_job.LONG_BYTES = sys.maxsize
    sys.argv = ["hpccoll", "trace", str(directory)]
    main()


def nodes_size(nodes: int) -> Size:
    """Return the size of a machine; all of its pairs are diagnosed."""
    return Size(f"{nodes:,} nodes", nodes, {"nodes": nodes})


def diagnose_links(size: Size, _directory: Path) -> None:
    """Diagnose a simulated machine with a slow link; a third of the time is that of the simulation."""
    import numpy as np
    from simulated_machine import Environment, SimulatedMachine, components

    from hpccoll.diagnosis.procedure import complete, diagnose
    from hpccoll.diagnosis.slot_records import Component

    link = Component("link", (2, 6))
    machine = SimulatedMachine(
        size.about["nodes"], Environment(), [(link, 20)], np.random.default_rng(SEED)
    )
    found = complete(diagnose(machine.nodes, seed=SEED, links=True), machine.measure)
    if components(found) != {link}:
        raise SystemExit(f"found {components(found)}")


STAGES: Mapping[str, Stage] = {
    "logs": Stage(
        sizes=(logs_size(1, 8), logs_size(8, 1000), logs_size(32, 1000), logs_size(128, 1000)),
        steps={"write": write_logs, "evidence": ("evidence", "{}")},
    ),
    "many logs": Stage(
        sizes=(logs_size(1, 8), logs_size(64, 32), logs_size(256, 32), logs_size(1024, 32)),
        steps={"write": write_logs, "evidence": ("evidence", "{}")},
    ),
    "dumps": Stage(
        sizes=(dumps_size(2, 5), dumps_size(256, 200), dumps_size(64, 2000), dumps_size(2048, 200),
               dumps_size(2048, 2000)),
        steps={"write": write_dumps, "trace": trace_in_one_process},
        usual=4,
    ),
    "profiler": Stage(
        sizes=(trace_size(0), trace_size(120), trace_size(480), trace_size(1000)),
        steps={"write": write_trace, "trace": trace_in_one_process},
    ),
    "links": Stage(
        sizes=tuple(map(nodes_size, (16, 1024, 2048, 4096, 8192))), steps={"diagnose": diagnose_links}
    ),
}  # fmt: skip
"""The stages by their names."""


if __name__ == "__main__":
    growth.STAGES = STAGES  # with the options and the table of the other stages
    growth.__file__ = __file__  # which processes of steps run
    growth.main()
