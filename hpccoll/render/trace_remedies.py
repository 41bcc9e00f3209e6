"""What to do next about each finding of a recorded job, with the ranks, processes and hosts that it names."""

from collections.abc import Mapping, Sequence

from hpccoll.common.text import first_few, join_words
from hpccoll.common.units import format_cpu_list
from hpccoll.traces.hangs import Hang, Reason
from hpccoll.traces.late import Lag
from hpccoll.traces.recorded_job import Rank, RecordedJob

MAX_PROCESSES = 4
"""The most processes that a remedy names, and the most hosts."""

GPUS = (
    "{on_hosts} look for Xid errors ('dmesg -T | grep -i xid'), and run 'hpccoll diagnose --here'"
)

REMEDIES: Mapping[Reason, str] = {
    "not created": "look for 'NCCL WARN' in the log of {ranks}, and where the code is: {stacks}",
    "not joined": "look at the end of the log of {ranks}, and where the code is: {stacks}",
    "behind": GPUS,
    "failed": f"look at the end of the log of {{ranks}}; if the process lives, {{stacks}}; {GPUS}",
    "circle": "make all ranks call in one order; where the code is: {stacks}",
    "mismatch": "make all ranks make the same call; where the code is: {stacks}",
    "unrecorded": "read the files of {ranks}, too; without any, look where the code is: {stacks}",
    "launched": f"{GPUS}; 'hpccoll diagnose' tests the network between hosts",
}
"""What to do about each reason of a hang; the sentence of older files says it."""


UNNAMED_REMEDY = "read the output of 'ncclras -v', which names more ranks"
"""What to do about ranks that a report counts and does not name."""


def hang_remedy(hang: Hang, job: RecordedJob) -> str:
    """Return what to do next about a hang; empty if its sentence says that."""
    if hang.reason not in REMEDIES:
        return ""
    ranks = _concerned(hang, job)
    return REMEDIES[hang.reason].format(
        ranks=_ranks_text(ranks), stacks=_stack_commands(ranks), on_hosts=_on_hosts(ranks)
    )


def late_remedy(lag: Lag, host: str | None) -> str:
    """Return what to do next about a late rank."""
    where = _on_hosts([Rank(lag.rank, host)])
    return (
        f"profile what rank {lag.rank} does between its operations, such as loading data; {where} run"
        " 'hpccoll diagnose --here'"
    )


def _concerned(hang: Hang, job: RecordedJob) -> list[Rank]:
    """Return the ranks to look at, without a process and a host if these are not recorded."""
    if hang.reason == "failed":
        failed = [rank for rank in job.ranks if rank.status == hang.status]
        if failed:
            return failed  # a report may name a process without its rank
    numbers = hang.ranks
    if hang.reason == "mismatch":
        numbers = tuple(ranks[0] for ranks, _ in hang.called)
    if not numbers and hang.group:
        numbers = hang.group.ranks
    recorded = {rank.rank: rank for rank in job.ranks}
    return [recorded.get(number, Rank(number)) for number in numbers]


def _ranks_text(ranks: Sequence[Rank]) -> str:
    numbers = [rank.rank for rank in ranks if rank.rank >= 0]
    if not numbers:
        return "the process"
    noun = "ranks" if len(numbers) > 1 else "rank"
    return f"{noun} {format_cpu_list(numbers)}"


def _stack_commands(ranks: Sequence[Rank]) -> str:
    """Return the commands that print the Python stacks of ranks, each with its host if that is known."""
    commands = []
    unknown = []
    for rank in ranks:
        if rank.pid is None:
            unknown.append(rank)
            continue
        commands.append(f"'py-spy dump --pid {rank.pid}' on {rank.host or 'its host'}")
    if unknown:
        where = "on its host" if len(unknown) == 1 else "on their hosts"
        if any(rank.host for rank in unknown):
            where = _on_hosts(unknown)
        commands.append(f"'py-spy dump --pid PID' of {_ranks_text(unknown)} {where}")
    return join_words(first_few(commands, MAX_PROCESSES, "rank"))


def _on_hosts(ranks: Sequence[Rank]) -> str:
    """Return on which hosts ranks are: ``on n1 and n2``, ``on the host of rank 3``."""
    hosts = dict.fromkeys(rank.host for rank in ranks if rank.host)
    if hosts:
        return f"on {join_words(first_few(filter(None, hosts), MAX_PROCESSES, 'host'))}"
    noun = "host" if len(ranks) == 1 else "hosts"
    return f"on the {noun} of {_ranks_text(ranks)}"
