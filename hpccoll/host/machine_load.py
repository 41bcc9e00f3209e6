"""The load of this host: load average, stolen CPU time, and the CPU time of processes that are not ours, from /proc."""

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAX_NAMES = 5
"""The maximum number of processes that are named."""

LEAST_CORES = 0.01
"""The part of a core from which on a process is named."""

INFRASTRUCTURE = {
    "slurmd",
    "slurmstepd",
    "slurmctld",
    "slurmdbd",
    "srun",
    "sbatch",
    "squeue",
    "sacct",
    "scontrol",
    "munged",
    "snakemake",
}
"""Names of processes that belong to the launch of jobs, wherever they are among the processes."""

_TICKS = os.sysconf("SC_CLK_TCK")
_INIT, _KTHREADD = 1, 2


@dataclass(frozen=True, slots=True)
class _Process:
    """A process: its name without arguments, its parent, and its CPU time and that of its ended children, in ticks."""

    name: str
    parent: int
    ticks: int
    ended_ticks: int


@dataclass(frozen=True, slots=True)
class LoadSample:
    """Counters of a host at one moment of the monotonic clock, and the processes that are visible, by their ids.

    ``load_average`` is the mean number of runnable tasks of the last minute, our own included;
    ``total_ticks`` the time of all CPUs since the start, idle time included; ``stolen_ticks`` the
    part of it in which the host of a virtual machine ran something else.
    """

    seconds: float
    load_average: float
    total_ticks: int
    stolen_ticks: int
    processes: Mapping[int, _Process]


def read_load(root: Path = Path("/")) -> LoadSample | None:
    """Return the counters of this host, None if it shows none."""
    proc = root / "proc"
    try:
        average = float((proc / "loadavg").read_text().split()[0])
        # cpu user nice system idle iowait irq softirq steal guest guest_nice; user contains guest
        # (man 5 proc_stat)
        first_line = (proc / "stat").read_text().partition("\n")[0]
        ticks = [int(word) for word in first_line.split()[1:9]]
        return LoadSample(time.monotonic(), average, sum(ticks), ticks[7], dict(_processes(proc)))
    except (OSError, ValueError, IndexError):
        return None


def core_wait_ns(root: Path = Path("/")) -> int | None:
    """Return the time in which the main thread of this process could run and had no core; None if it is not counted.

    It is the second number of schedstat (Documentation/scheduler/sched-stats.rst of Linux); what a
    quota of CPU time holds back counts, too.
    """
    try:
        return int((root / "proc/self/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _processes(proc: Path) -> Iterator[tuple[int, _Process]]:
    for directory in proc.iterdir():
        with suppress(OSError, ValueError, IndexError):  # it may end at any moment
            pid = int(directory.name)
            text = (directory / "stat").read_text(errors="replace")
            # pid (name) state ppid ...; utime, stime, cutime and cstime are fields 14 to 17 (man 5
            # proc_pid_stat)
            name = text[text.index("(") + 1 : text.rindex(")")]
            fields = text.rpartition(")")[2].split()
            user, system, ended_user, ended_system = map(int, fields[11:15])
            printable = re.sub(r"[^\w.+:/@-]", "?", name)
            yield pid, _Process(printable, int(fields[1]), user + system, ended_user + ended_system)


def load_between(before: LoadSample, after: LoadSample, own: Collection[int]) -> dict[str, object]:
    """Return what else used this host between two samples, for provenance: names of processes, and no arguments.

    ``own`` are the ids of our processes; their ancestors, which launched them, and their
    descendants are ours, too.

    Returns:
        ``seconds``; the load average of the last minute before and after; ``stolen``, the share of
        the CPU time of this virtual machine; ``other_cores``, the CPU seconds per second of
        processes that are not ours; and the ``busiest`` of them.
    """
    seconds = max(after.seconds - before.seconds, 1e-9)
    total = after.total_ticks - before.total_ticks
    ours = _own_processes({**before.processes, **after.processes}, own)
    # by living ancestor: what its ended descendants had used before the first sample
    ended: Counter[int] = Counter()
    for pid, process in before.processes.items():
        if pid not in after.processes:
            ended[_living_ancestor(pid, before, after)] += process.ticks + process.ended_ticks
    cores: dict[str, float] = defaultdict(float)
    for pid in after.processes.keys() - ours:
        now = after.processes[pid]
        used = now.ticks
        used_by_ended = now.ended_ticks - ended[pid]
        then = before.processes.get(pid)
        if then:
            used -= then.ticks
            used_by_ended -= then.ended_ticks
        cores[now.name] += max(0, used + max(0, used_by_ended)) / _TICKS / seconds
    stolen = 0.0
    if total > 0:
        stolen = (after.stolen_ticks - before.stolen_ticks) / total
    return {
        "seconds": round(seconds, 3),
        "load_average": [before.load_average, after.load_average],
        "stolen": round(stolen, 5),
        "other_cores": round(sum(cores.values()), 3),
        "busiest": _busiest(cores),
    }


def _busiest(cores: Mapping[str, float]) -> list[dict[str, object]]:
    """Return the names with the most cores, and their cores, the busiest first."""
    names = sorted(cores, key=lambda name: -cores[name])[:MAX_NAMES]
    return [
        {"name": name, "cores": round(cores[name], 3)}
        for name in names
        if cores[name] >= LEAST_CORES
    ]


def _living_ancestor(pid: int, before: LoadSample, after: LoadSample) -> int:
    """Return the process to which the CPU time of an ended one was added when each parent in between ended, too."""
    seen: set[int] = set()  # process ids that are reused while /proc is read may form a cycle
    while pid not in after.processes and pid in before.processes and pid not in seen:
        seen.add(pid)
        pid = before.processes[pid].parent
    return pid


def _own_processes(processes: Mapping[int, _Process], own: Collection[int]) -> set[int]:
    """Return ``own``, their ancestors and descendants, launchers of jobs, init, and threads of the kernel.

    Threads of the kernel may work for our messages; init collects what others started.
    """
    ours = {_INIT, _KTHREADD, *own}
    for pid in own:
        while (process := processes.get(pid)) and pid not in (_INIT, _KTHREADD):
            ours.add(pid)
            pid = process.parent  # noqa: PLW2901
    roots = {_KTHREADD, *own}
    for pid, process in processes.items():
        lineage = [pid]
        while (
            (above := processes.get(lineage[-1]))
            and above.parent not in lineage
            and lineage[-1] not in roots
        ):
            lineage.append(above.parent)
        if lineage[-1] in roots or process.name in INFRASTRUCTURE:
            ours.add(pid)
    return ours
