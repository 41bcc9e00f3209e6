"""Files as PyTorch's Flight Recorder and NCCL's RAS write them, small, of jobs whose fault is known."""

import json
import pickle
from collections import defaultdict
from dataclasses import dataclass

BEGIN_NS = 1_790_000_000_000_000_000
FRAMES = (
    {
        "name": "all_reduce",
        "filename": "/venv/lib/python3.11/site-packages/torch/distributed/c.py",
        "line": 7,
    },
    {"name": "step", "filename": "train.py", "line": 42},
)


@dataclass(frozen=True)
class Ring:
    """A process group."""

    name: str
    ranks: tuple
    description: str = "dp"


@dataclass(frozen=True)
class Call:
    """A collective of a group, or a message between two of its ranks, in the order in which a rank calls it."""

    group: Ring
    name: str = "all_reduce"
    elements: int = 1024
    peer: int | None = None  # in the group; then name is "send" or "recv"


def dump(rank, calls, completed, *, active=True, backend="nccl", groups=(), thread=None):
    """Return the dump of a rank that has enqueued ``calls``, of which some, by their places, have completed.

    Messages and collectives of a group count apart; its status has the number of the last one of
    either kind.
    """
    counts, last, done = defaultdict(int), {}, {}
    entries = []
    known = sorted({*groups, *(call.group for call in calls)}, key=lambda group: int(group.name))
    ids = {group: 3 + 2 * number for number, group in enumerate(known)}
    for place, call in enumerate(calls):
        group, is_message = call.group, call.peer is not None
        counts[group, is_message] += 1
        number = last[group] = counts[group, is_message]
        if place in completed:
            done[group] = number
            if active:
                continue
        me = group.ranks.index(rank)
        name = (
            f"{call.name} {me}{'->' if call.name == 'send' else '<-'}{call.peer}"
            if is_message
            else call.name
        )
        outputs = call.elements * (len(group.ranks) if "gather" in call.name else 1)
        inputs = call.elements * (len(group.ranks) if "scatter" in call.name else 1)
        entries.append(
            {
                "record_id": place,
                "pg_id": ids[group],
                "process_group": (group.name, group.description),
                "collective_seq_id": counts[group, False],
                "p2p_seq_id": counts[group, True],
                "op_id": place,
                "profiling_name": f"{backend}:{name}",
                "time_created_ns": BEGIN_NS + 1000 * place + rank,
                "input_sizes": [[inputs]],
                "input_dtypes": ["BFloat16"],
                "output_sizes": [[outputs]],
                "output_dtypes": ["BFloat16"],
                "state": "completed" if place in completed else "scheduled",
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": None,
                "retired": place in completed,
                "timeout_ms": 600000,
                "is_p2p": is_message,
                "frames": [dict(frame) for frame in FRAMES],
                **({"thread_id": str(thread)} if thread else {}),
            }
        )
    return {
        "version": "2.10",
        "pg_config": {
            group.name: {
                "name": group.name,
                "desc": group.description,
                "ranks": str([*group.ranks]),
            }
            for group in ids
        },
        "pg_status": {
            str(number): {
                "last_enqueued_collective": last.get(group, -1),
                "last_started_collective": -1,
                "last_completed_collective": done.get(group, -1),
            }
            for group, number in ids.items()
        },
        "entries": entries,
    }


def as_pickle(content):
    return pickle.dumps(content, protocol=2)


def as_json(content):
    """Return the JSON form, which has no frames, 0 for absent times, and texts in the status of groups."""
    status = {
        key: {name: str(value) for name, value in each.items()}
        for key, each in content["pg_status"].items()
    }
    entries = [
        {key: 0 if value is None else value for key, value in entry.items() if key != "frames"}
        for entry in content["entries"]
    ]
    return json.dumps(
        {**content, "pg_status": status, **({"entries": entries} if entries else {})}
    ).encode()


def write_dumps(directory, dumps, write=as_pickle, name="nccl_trace_rank_{}"):
    directory.mkdir(exist_ok=True, parents=True)
    for rank, content in dumps.items():
        (directory / name.format(rank)).write_bytes(write(content))
    return directory


@dataclass(frozen=True)
class Timed:
    """A collective of a group in a rank's recording, with its times in ms."""

    call: Call
    started_ms: float
    ended_ms: float


def timed_dump(rank, timed):
    """Return the dump of a rank whose collectives have all completed, with what the watchdog noticed of their times."""
    content = dump(rank, [each.call for each in timed], {*range(len(timed))}, active=False)
    for entry, each in zip(content["entries"], timed, strict=True):
        entry["time_created_ns"] = entry["time_discovered_started_ns"] = BEGIN_NS + round(
            each.started_ms * 1e6
        )
        entry["time_discovered_completed_ns"] = BEGIN_NS + round(each.ended_ms * 1e6)
        entry["duration_ms"] = each.ended_ms - each.started_ms
    return content


def ras(counts, *, missing=(), time="2026-01-02 03:04:05", digits="0xab12", places=None):
    """Return a report: ``counts[rank]`` is the number of all-reduces, or a number for each type."""
    places = places or {rank: ("10.0.0.1", 100 + rank, rank) for rank in (*counts, *missing)}
    keys = dict.fromkeys(("init_state", "async_error"), 0) | dict.fromkeys(
        ("finalize_called", "abort_flag"), False
    )

    def member(rank, more):
        host, pid, gpu = places[rank]
        return {"rank": rank, "host": host, "pid": pid, "cuda_dev": gpu, "nvml_dev": gpu, **more}

    return {
        "nccl_version": "2.28.9",
        "timestamp": time,
        "communicators_count": 1,
        "communicators": [
            {
                "hash": digits,
                "secondary_hash": "0x1:0x2",
                "size": len(counts) + len(missing),
                "ranks_count": len(counts),
                "missing_ranks_count": len(missing),
                "ranks": [
                    member(
                        rank,
                        {
                            "status": keys,
                            "collective_counts": count
                            if isinstance(count, dict)
                            else {"AllReduce": count},
                        },
                    )
                    for rank, count in counts.items()
                ],
                "missing_ranks": [
                    member(rank, {"status": {"unresponsive": True, "considered_dead": False}})
                    for rank in missing
                ],
            }
        ],
        "ras": {"collection_time_sec": 0.001, "timeouts_count": 0},
    }


def as_nccl_2_28(report):
    """Return a report as NCCL 2.28.7 to 2.28.9 write it, which is no JSON if ranks are missing."""
    text = json.dumps(report, indent=2)
    begin, key, end = text.partition('"missing_ranks": [')
    lines = end.split("\n")
    return "\n".join(
        [
            begin + key + lines[0],
            *(line.rstrip(",") if "nvml_dev" in line else line for line in lines[1:]),
        ]
    )
