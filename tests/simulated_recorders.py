"""What recorders write of a simulated job (``simulated_jobs.py``, with the assumptions), as files of a directory."""

import json
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from simulated_jobs import Call, JobPlan, Simulation, simulate

EPOCH_NS = 1_790_857_026_000_000_000
WATCHDOG_S = 0.1
FIRST_PROCESS = 1000
FR_NAMES = {
    "all_reduce": "all_reduce",
    "all_gather": "_all_gather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
}
KINETO_NAMES = {
    "all_reduce": "allreduce",
    "all_gather": "_allgather_base",
    "reduce_scatter": "_reduce_scatter_base",
    "all_to_all": "all_to_allv",
    "broadcast": "broadcast",
}
NCCL_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
}
BATCHED = {
    "all_gather": ("_broadcast_oop", "Broadcast"),
    "reduce_scatter": ("_reduce_oop", "Reduce"),
}
"""What PyTorch calls for each rank, at once, if the blocks of a collective are unequal: its name, and NCCL's."""
SMALLEST_OF_INSPECTOR = 8192


def record_job(plan: JobPlan, out: Path) -> Simulation:
    """Simulate a job, and write its files."""
    job = simulate(plan)
    out.mkdir(parents=True)
    RECORDERS[plan.format](job, out)
    return job


class Clocks:
    """The clocks of hosts."""

    def __init__(self, job: Simulation) -> None:
        plan, chance = job.plan, job.chance
        hosts = -(-plan.ranks // plan.per_host)
        self.per_host, self.base_ns = plan.per_host, 0
        self.ahead_s = np.exp(chance.uniform(np.log(1e-3), np.log(5.0), hosts)) * chance.choice(
            [-1, 1], hosts
        )
        self.drift = chance.uniform(-20e-6, 20e-6, hosts)

    def host(self, rank: int) -> int:
        return rank // self.per_host

    def after_ns(self, rank: int, seconds: float) -> int:
        """Return a moment in ns since the base; the first step begins 10 s after it."""
        host = self.host(rank)
        return self.base_ns + round(
            ((1 + self.drift[host]) * seconds + self.ahead_s[host] + 10) * 1e9
        )


def calls_of(job: Simulation, rank: int) -> list[Call]:
    """Return the operations of a rank in the order in which it enqueued them."""
    return sorted(
        (call for call in job.calls if rank in call.begin_s), key=lambda call: call.place[rank]
    )


def late_begins(job: Simulation, most: int) -> dict[int, int]:
    """Return how many operations a few ranks did before their recorder began."""
    chance = job.chance
    if chance.random() < 0.6:
        return {}
    ranks = np.flatnonzero(chance.random(job.plan.ranks) < 0.3).tolist()
    return {rank: int(chance.integers(1, max(2, most))) for rank in ranks}


def write_kineto(job: Simulation, out: Path) -> None:
    """Write the traces of PyTorch's profiler."""
    plan, clocks = job.plan, Clocks(job)
    is_old = plan.format == "kineto of 2023"
    clocks.base_ns = EPOCH_NS if is_old else 0
    has_numbers = not is_old and job.chance.random() < 0.8
    begins = late_begins(job, 6) if has_numbers or plan.late is None else {}
    has_host = not is_old and job.chance.random() < 0.5
    for rank in job.everyone:
        calls = calls_of(job, rank)[begins.get(rank, 0) :]
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "x"}}
        ]
        for call in calls:
            events += (
                _old_kernel(call, rank, clocks)
                if is_old
                else [_kernel(call, rank, clocks, has_numbers)]
            )
        since = calls[0].enqueued_s[rank]
        for begin, end in job.spans[rank]:
            if begin >= since:
                events.append(
                    _event("kernel", "ampere_bf16_gemm", rank, begin, end, clocks, {}, tid=8)
                )
        ends = [0.0, *job.step_ends[rank]]
        for number, (begin, end) in enumerate(pairwise(ends)):
            if begin >= since or not begins:
                name = f"ProfilerStep#{number}"
                events.append(
                    _event("user_annotation", name, rank, begin, end, clocks, {}, pid=9, tid=9)
                )
        groups = {call.ring.name: call.ring for call in calls}
        info = {
            "backend": "nccl",
            "rank": rank,
            "world_size": plan.ranks,
            "pg_config": [
                {
                    "pg_name": ring.name,
                    "pg_desc": ring.description,
                    "pg_size": len(ring.members),
                    "ranks": list(ring.members),
                }
                for ring in groups.values()
            ],
        }
        trace: dict[str, Any] = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}
        if not is_old:
            trace["baseTimeNanoseconds"] = EPOCH_NS
        if has_host:
            trace["host_name"] = f"n{clocks.host(rank)}"
        (out / f"rank{rank}.pt.trace.json").write_text(json.dumps(trace))


def _event(
    category: str,
    name: str,
    rank: int,
    begin_s: float,
    end_s: float,
    clocks: Clocks,
    arguments: Mapping[str, Any],
    pid: int = 0,
    tid: int = 7,
) -> dict[str, Any]:
    begin = clocks.after_ns(rank, begin_s)
    duration = clocks.after_ns(rank, end_s) - begin
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": round(begin / 1e3, 3),
        "dur": round(duration / 1e3, 3),
        "args": arguments,
    }


def _kernel(call: Call, rank: int, clocks: Clocks, has_numbers: bool) -> dict[str, Any]:
    """Return the event of a kernel."""
    elements, name = call.elements[rank], KINETO_NAMES.get(call.collective, "")
    kernel = {"all_to_all": "ncclDevKernel_SendRecv", "message": "ncclDevKernel_SendRecv"}
    if call.is_message:
        name = "send" if rank == call.root else "recv"
    elif call.collective in BATCHED and call.is_uneven:
        block = min(elements)  # PyTorch multiplies its own block by the ranks
        name = {"all_gather": "all_gather", "reduce_scatter": "reduce_scatter"}[call.collective]
        elements = (block, block * len(call.ring.ranks))
    ring = call.ring
    arguments = {
        "Collective name": name,
        "In msg nelems": elements[0],
        "Out msg nelems": elements[1],
        "Group size": len(ring.members),
        "dtype": "BFloat16",
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": ring.name,
        "Process Group Description": ring.description,
        "Process Group Ranks": str(list(ring.members)),
    }
    if call.is_message:
        first, second = ring.ranks
        peer = second if rank == first else first
        arguments |= {"Src Rank": call.root, "Dst Rank": peer if rank == call.root else rank}
    if has_numbers:
        arguments["Seq"] = call.number
    title = kernel.get(
        call.collective, f"ncclDevKernel_{NCCL_NAMES.get(call.collective)}_Sum_bf16_RING_LL"
    )
    return _event("kernel", title, rank, call.begin_s[rank], call.end_s[rank], clocks, arguments)


def _old_kernel(call: Call, rank: int, clocks: Clocks) -> Iterator[dict[str, Any]]:
    """Yield the events of a kernel of 2023: its annotation, its launch, and the kernel."""
    correlation = call.place[rank] + 1
    name = FR_NAMES.get(call.collective, "recv" if rank != call.root else "send")
    if call.collective in BATCHED and call.is_uneven:
        name = call.collective
    launched, begin, end = call.enqueued_s[rank], call.begin_s[rank], call.end_s[rank]
    shape = {"Input Dims": [[call.elements[rank][0]]], "Input type": ["c10::BFloat16"]}
    yield _event(
        "user_annotation",
        f"nccl:{name}",
        rank,
        launched - 4e-6,
        launched + 2e-6,
        clocks,
        shape,
        pid=5,
        tid=6,
    )
    launch = {"correlation": correlation}
    yield _event(
        "cuda_runtime",
        "cudaLaunchKernel",
        rank,
        launched,
        launched + 1e-6,
        clocks,
        launch,
        pid=5,
        tid=6,
    )
    kernels = {
        "all_to_all": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
        "message": "ncclKernel_SendRecv",
    }
    title = kernels.get(
        call.collective, f"ncclKernel_{NCCL_NAMES.get(call.collective)}_RING_LL_Sum_float"
    )
    yield _event("kernel", title, rank, begin, end, clocks, launch)


def write_flight_recorder(job: Simulation, out: Path) -> None:
    """Write dumps of PyTorch's Flight Recorder."""
    chance, clocks = job.chance, Clocks(job)
    clocks.base_ns = EPOCH_NS
    keeps = int(chance.choice([150, 500, 2000]))
    last_s = max(ends[-1] for ends in job.step_ends)
    is_running = job.plan.late is None and chance.random() < 0.4
    for rank in job.everyone:
        taken_s = last_s + 1
        if is_running:  # dumps of a running job, of different moments
            taken_s = last_s * (1 - float(chance.uniform(0, 0.3)))
        entries, status, groups = (
            list[dict[str, Any]](),
            dict[str, dict[str, int]](),
            dict[str, Any](),
        )
        for call in calls_of(job, rank):
            if call.enqueued_s[rank] > taken_s:
                continue
            ring = call.ring
            groups[ring.name] = ring
            known = status.setdefault(
                ring.name,
                {
                    "last_enqueued_collective": -1,
                    "last_started_collective": -1,
                    "last_completed_collective": -1,
                },
            )
            known["last_enqueued_collective"] = call.number
            if call.begin_s[rank] <= taken_s:
                known["last_started_collective"] = call.number
            if _noticed(call.end_s[rank], rank) <= taken_s:
                known["last_completed_collective"] = call.number
            entries += _entries(call, rank, taken_s, clocks, len(entries))
        ids = {name: 1 + 2 * number for number, name in enumerate(sorted(groups, key=int))}
        for entry in entries:
            entry["pg_id"] = ids[entry["process_group"][0]]
        dump = {
            "version": "2.10",
            "pg_config": {
                name: {"name": name, "desc": ring.description, "ranks": str(list(ring.members))}
                for name, ring in groups.items()
            },
            "pg_status": {str(ids[name]): known for name, known in status.items()},
            "entries": entries[-keeps:],
        }
        (out / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))


def _noticed(seconds: float, rank: int) -> float:
    """Return when the watchdog of a rank looks next."""
    phase = 0.013 * rank % WATCHDOG_S
    return float(np.ceil((seconds - phase) / WATCHDOG_S) * WATCHDOG_S + phase)


def _entries(
    call: Call, rank: int, taken_s: float, clocks: Clocks, number: int
) -> Iterator[dict[str, Any]]:
    """Yield the entry of an operation, or those of its batch."""
    begin, end, enqueued = call.begin_s[rank], call.end_s[rank], call.enqueued_s[rank]
    is_done = end <= taken_s
    begun = _noticed(begin, rank)
    noticed = _noticed(end, rank)
    state = "started" if begin <= taken_s else "scheduled"
    name = FR_NAMES.get(call.collective, "")
    if call.is_message:
        first, second = (call.ring.members.index(each) for each in call.ring.ranks)
        peer = second if rank == call.ring.ranks[0] else first
        me = call.ring.members.index(rank)
        name = f"send {me}->{peer}" if rank == call.root else f"recv {me}<-{peer}"
    size_in, size_out = call.elements[rank]
    entry = {
        "record_id": number,
        "pg_id": 0,
        "process_group": (call.ring.name, call.ring.description),
        "collective_seq_id": 0 if call.is_message else call.number,
        "p2p_seq_id": call.number * call.is_message,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": clocks.after_ns(rank, enqueued),
        "time_discovered_started_ns": clocks.after_ns(rank, begun) if begun <= taken_s else None,
        "time_discovered_completed_ns": clocks.after_ns(rank, noticed)
        if noticed <= taken_s
        else None,
        "duration_ms": float(np.float32(1e3 * (end - begin))) if is_done else None,
        "input_sizes": [[size_in]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[size_out]],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if is_done else state,
        "retired": noticed <= taken_s,
        "timeout_ms": 600000,
        "is_p2p": call.is_message,
        "frames": [],
    }
    if call.collective not in BATCHED or not call.is_uneven:
        yield entry
        return
    for member in call.ring.ranks:
        block = [[min(call.elements[member])]]
        yield entry | {
            "profiling_name": f"nccl:{BATCHED[call.collective][0]}",
            "duration_ms": None,
            "input_sizes": block,
            "output_sizes": block,
        }
    yield entry | {"profiling_name": "nccl:coalesced", "input_sizes": [], "output_sizes": []}


def write_inspector(job: Simulation, out: Path) -> None:
    """Write files of NCCL's Inspector."""
    plan, chance, clocks = job.plan, job.chance, Clocks(job)
    clocks.base_ns = EPOCH_NS
    is_verbose = plan.format == "verbose inspector"
    is_sampled = plan.late is None and chance.random() < 0.3
    is_joined = chance.random() < 0.3
    interval_s = float(np.exp(chance.uniform(np.log(1e-3), np.log(2.0))))
    lost = late_begins(job, 8)  # records after the last dump
    version = str(chance.choice(["v4.0", "v4.1"]))
    texts = []
    for rank in job.everyone:
        lines = [*_inspector_lines(job, rank, clocks, is_verbose, version, interval_s)]
        if is_sampled:
            lines = [line for line in lines if chance.random() < 0.7]
        lines = lines[: len(lines) - lost.get(rank, 0)][-1024:]
        text = "".join(f"{line}\n" for line in lines)
        texts.append(text)
        if not is_joined and lines:
            (out / f"n{clocks.host(rank)}-pid{FIRST_PROCESS + rank}.log").write_text(text)
    if is_joined:
        (out / "all.log").write_text("".join(texts))


def _inspector_lines(
    job: Simulation, rank: int, clocks: Clocks, is_verbose: bool, version: str, interval_s: float
) -> Iterator[str]:
    counts = defaultdict[tuple[str, str], int](int)
    done = sorted(calls_of(job, rank), key=lambda call: call.end_s[rank])
    for call in done:
        ring = call.ring
        name = f"{call.ring.name} {call.ring.ranks}" if call.is_message else ring.name
        members = ring.ranks
        header = {
            "id": f"0x{hash_of(name, members):014x}",
            "rank": members.index(rank),
            "n_ranks": len(members),
            "nnodes": len({clocks.host(each) for each in members}),
        }
        written = np.ceil(call.end_s[rank] / interval_s) * interval_s
        metadata = {
            "inspector_output_format_version": version,
            "git_rev": "",
            "rec_mechanism": "nccl_profiler_interface",
            "dump_timestamp_us": clocks.after_ns(rank, float(written)) // 1000,
            "hostname": f"n{clocks.host(rank)}",
            "pid": FIRST_PROCESS + rank,
        }
        for prefix, operation in _inspected(call, rank, counts, job.plan.has_messages):
            if is_verbose and prefix == "coll":
                operation["event_trace_ts"] = _trace_times(job, call, rank, clocks)
            yield json.dumps({"header": header, "metadata": metadata, f"{prefix}_perf": operation})


@cache
def hash_of(name: str, members: tuple[int, ...]) -> int:
    """Return the hash of a communicator."""
    return (
        int.from_bytes(blake2b(f"{name} {members}".encode(), digest_size=6).digest(), "big")
        | 1 << 47
    )


def _inspected(
    call: Call, rank: int, counts: dict[tuple[str, str], int], has_messages: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what Inspector has of an operation: its kernels, by NCCL's calls."""
    us = max(1, round(1e6 * (call.end_s[rank] - call.begin_s[rank])))
    members = call.ring.ranks
    if call.is_message or call.collective == "all_to_all":
        peers = [each for each in members if each != rank]
        names = (
            ("Send", "Recv") if not call.is_message else ("Send" if rank == call.root else "Recv",)
        )
        for name in names if has_messages else ():
            for peer in peers:
                counts[call.ring.name, name] += 1
                yield (
                    "p2p",
                    {
                        "p2p": name,
                        "p2p_sn": counts[call.ring.name, name],
                        "p2p_peer": members.index(peer),
                        "p2p_msg_size_bytes": 2 * call.elements[rank][0],
                        "p2p_exec_time_us": us,
                        "p2p_timing_source": "kernel_gpu",
                    },
                )
        return
    names = [NCCL_NAMES[call.collective]]
    if call.collective in BATCHED and call.is_uneven:
        names = [BATCHED[call.collective][1]] * len(members)
    for place, name in enumerate(names):
        counts[call.ring.name, name] += 1
        nbytes = 2 * min(call.elements[members[place] if len(names) > 1 else rank])
        if nbytes >= SMALLEST_OF_INSPECTOR:
            yield (
                "coll",
                {
                    "coll": name,
                    "coll_sn": counts[call.ring.name, name],
                    "coll_msg_size_bytes": nbytes,
                    "coll_exec_time_us": us,
                    "coll_timing_source": "kernel_gpu",
                    "coll_algobw_gbs": 1.0,
                    "coll_busbw_gbs": 1.0,
                },
            )


def _trace_times(job: Simulation, call: Call, rank: int, clocks: Clocks) -> dict[str, Any]:
    """Return the host's times: that of the end is when the proxy noticed it."""
    noticed = call.end_s[rank] + float(job.chance.exponential(30e-6))
    begun = call.begin_s[rank] + float(job.chance.exponential(30e-6))
    us = {
        name: clocks.after_ns(rank, seconds) // 1000
        for name, seconds in (
            ("enqueued", call.enqueued_s[rank]),
            ("begun", begun),
            ("noticed", noticed),
        )
    }
    kernel = {"channel_id": 0, "kernel_start_ts": us["begun"], "kernel_stop_ts": us["noticed"]}
    return {
        "coll_start_ts": us["enqueued"],
        "coll_stop_ts": us["enqueued"],
        "kernel_events": [kernel],
    }


def write_nccl_logs(job: Simulation, out: Path) -> None:
    """Write logs of NCCL with the calls of each rank."""
    clocks, begins = Clocks(job), late_begins(job, 40)
    for rank in job.everyone:
        who = f"n{clocks.host(rank)}:{FIRST_PROCESS + rank}:{2000 + rank} [{rank % clocks.per_host}] NCCL INFO"
        calls, counts, names = calls_of(job, rank), defaultdict[int, int](int), dict[str, int]()
        heads, lines = list[str](), list[str]()
        for call in calls:
            members = call.ring.ranks
            hashed = hash_of(call.ring.name, members)
            address = names.setdefault(f"{call.ring.name} {members}", 0x55F0 + len(names))
            if address not in counts:
                heads.append(
                    f"{who} ncclCommInitRankConfig comm {address:#x} rank {members.index(rank)} nranks {len(members)} "
                    f"cudaDev 0 nvmlDev 0 busId 1000 commId {hashed:#x} - Init COMPLETE"
                )
            for name in _called(call, rank):
                lines.append(
                    f"{who} {name}: opCount {counts[address]:x} sendbuff 0x7f00 recvbuff 0x7f00 acc (nil) count 1024 "
                    f"datatype 9 op 0 root 0 comm {address:#x} [nranks={len(members)}] stream 0x55"
                )
                counts[address] += name not in ("Send", "Recv")
        (out / f"rank{rank}.log").write_text(
            "".join(f"{line}\n" for line in (*heads, *lines[begins.get(rank, 0) :]))
        )


def _called(call: Call, rank: int) -> Iterator[str]:
    members = call.ring.ranks
    if call.is_message:
        yield "Send" if rank == call.root else "Recv"
    elif call.collective == "all_to_all":
        yield from ("Send", "Recv") * (len(members) - 1)
    elif call.collective in BATCHED and call.is_uneven:
        yield from [BATCHED[call.collective][1]] * len(members)
    else:
        yield NCCL_NAMES[call.collective]


RECORDERS: dict[str, Callable[[Simulation, Path], None]] = {
    "kineto": write_kineto,
    "kineto of 2023": write_kineto,
    "flight recorder": write_flight_recorder,
    "inspector": write_inspector,
    "verbose inspector": write_inspector,
    "nccl log": write_nccl_logs,
}
