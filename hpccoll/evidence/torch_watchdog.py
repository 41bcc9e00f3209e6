"""Lines of PyTorch's watchdog, which lie between those of NCCL: in which operation ranks timed out.

Each rank whose collective does not end within its timeout logs one, and then aborts. A rank that
never called the operation logs none, nor does one whose process is gone. Forms of PyTorch 2.0 to
2.9 (ProcessGroupNCCL.cpp): the rank in the brackets is that of the group; from 2.3 on ``[rank3]:``
before them is that of the job.
"""

import re
from collections import defaultdict

from hpccoll.common.limits import RANKS
from hpccoll.evidence.log_message import LogMessage
from hpccoll.evidence.log_parser import ParserState, Rule, rule
from hpccoll.evidence.log_record import CollectiveTimeout

DEFAULT_GROUP = re.compile(r"(?:PG ID 0 PG GUID 0(?:\(default_pg\))? |PG 0 )?")
"""What names the group of all ranks, or no group, before the rank."""


def _add_timeout(state: ParserState, match: re.Match[str], _message: LogMessage) -> None:
    is_default_group = DEFAULT_GROUP.fullmatch(match["group"]) is not None
    rank = int(match["job_rank"] or match["rank"])
    call = match["operation"], int(match["number"]), int(match["timeout_ms"]) / 1000
    state.timeouts.setdefault(call, {}).setdefault(rank, is_default_group)


RULES: tuple[Rule, ...] = (
    rule(
        r"(?=.*Watchdog caught collective)(?:.*?\[rank(?P<job_rank>\d{1,9})\]:)?.*?"
        r"\[(?P<group>[^][]*?)Rank (?P<rank>\d{1,9})\] *Watchdog caught collective operation timeout: "
        r"WorkNCCL\(SeqNum=(?P<number>\d{1,18}), OpType=(?P<operation>\w{1,40}),.*?"
        r"Timeout\(ms\)=(?P<timeout_ms>\d{1,12})\)",
        _add_timeout,
    ),
)
"""The rules for lines without a header of NCCL."""


def add_timeouts(state: ParserState) -> None:
    """Add the operations in which ranks timed out, with the ranks of the job that did not report any."""
    if not state.timeouts:
        return
    reported = {rank for ranks in state.timeouts.values() for rank in ranks}
    silent = _silent_ranks(state, reported)
    hosts = _host_of_rank(state)
    silent_hosts = tuple(dict.fromkeys(hosts[rank] for rank in silent or () if rank in hosts))
    for (operation, number, timeout_s), ranks in state.timeouts.items():
        timeout = CollectiveTimeout(
            operation=operation,
            number=number,
            timeout_s=timeout_s,
            ranks=tuple(sorted(ranks)),
            silent=silent,
            silent_hosts=silent_hosts,
        )
        state.add("timeouts", timeout)


def _silent_ranks(state: ParserState, reported: set[int]) -> tuple[int, ...] | None:
    """Return the ranks of the largest communicator that reported no timeout; None if another group timed out."""
    for in_default_group in state.timeouts.values():
        if not all(in_default_group.values()):
            return None
    if not state.ranks or not RANKS.accepts(state.ranks) or max(reported) >= state.ranks:
        return None
    return tuple(sorted(set(range(state.ranks)) - reported))


def _host_of_rank(state: ParserState) -> dict[int, str]:
    """Return the hosts of the ranks of the largest communicator, where all lines agree on them."""
    hosts = defaultdict[int, set[str]](set)
    for (_, size), members in state.members.items():
        for host, ranks in members.items():
            if host is not None and size == state.ranks:
                for rank, _ in ranks:
                    hosts[rank].add(host)
    return {rank: names.pop() for rank, names in hosts.items() if len(names) == 1}
