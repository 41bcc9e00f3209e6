"""The peer kernel on ranks that share GPUs: bits, graphs and aborts; and its times beside those of NCCL's calls."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from here import Here, last_words, launched
from runs import measured
from verdicts import MISSED, REACHED, WRONG, Verdict, bound, not_run, recorded

if TYPE_CHECKING:
    from hpccoll.store.rows import Row

PROGRAM = "transports/peer/peer_ranks.py"
CHECKED_COUNTS = (2, 8)
"""The ranks that hold bits, graphs and aborts against the contract, the fewest first: they show what fails at once."""

TIMED_COUNTS = (8, 4, 2)
"""The ranks that are timed, those whose times decide first."""

HOST_COUNTS = (2,)
"""The ranks of both on the host."""

MOST_S = 35
"""Seconds that one launch may take, so that one that hangs leaves time for the others."""

OTHER_BITS = "not what lockstep has"
"""What a rank says whose bits are wrong (tests/gpu/bits_of_plans.py)."""

SMALL_RING, PEER_SHARE = 64, 0.2
"""The bytes of the ring whose steps are counted, and the largest share of NCCL's time that is asked for."""

PROTOCOLS = "ll", "simple"
RUN: Sequence[str] = (
    *("--device", "cuda", "-t", "nccl,peer", "-a", "ring,direct", "--in-place"),
    *("--param", "graph=1", "--param", f"protocol={','.join(PROTOCOLS)}"),
    *("-b", "64", "-f", "256", "--seconds", "0.1", "--rounds", "1"),
)
LARGEST, HOST_LARGEST = "4M", "16K"
"""All-reduce of 64 B, 16 KiB and 4 MiB over NCCL, and in both protocols of the peer kernel."""

BLOCKS = 16
"""The most blocks of a rank where 8 ranks share the 132 multiprocessors of a GPU."""


def peer(here: Here) -> Iterator[Verdict]:
    """Bits, epochs, graphs and aborts of a few schedules, and rings of one kernel beside rings of NCCL's calls."""
    for count in HOST_COUNTS if here.on_host else CHECKED_COUNTS:
        what = f"one kernel on the memory of peers, {count} ranks: bits, graphs and aborts"
        if here.seconds_left < 0:
            yield not_run(what, "no time was left")
            continue
        verdict = contract(here, count, what)
        yield verdict
        if verdict.status == WRONG:
            return
    for count in HOST_COUNTS if here.on_host else TIMED_COUNTS:
        what = f"rings of one kernel and of NCCL's calls, {count} ranks: right rows"
        if here.seconds_left < 0:
            yield not_run(what, "no time was left")
            continue
        verdict, right = right_rows(here, count, what)
        yield verdict
        if verdict.status == WRONG:
            return
        yield from times_of_steps(here, count, right)
        yield from times_of_protocols(count, right)


def contract(here: Here, count: int, what: str) -> Verdict:
    """Return whether ranks keep the contract of the transport with a few schedules."""
    command = here.rank_program(count, PROGRAM, "few")
    code, output = launched(command, min(MOST_S, here.limit_left))
    if code == 0:
        return Verdict(what, REACHED, "all right", "all right")
    if code is None:
        return Verdict(what, MISSED, "it does not come to its end", "all right")
    status = WRONG if OTHER_BITS in output else MISSED
    return Verdict(what, status, last_words(output), "all right")


def right_rows(here: Here, count: int, what: str) -> "tuple[Verdict, list[Row]]":
    """Return whether all rows of a run are right, and those that are."""
    from hpccoll.cases.skip_reason import SAME_SCHEDULE

    largest = HOST_LARGEST if here.on_host else LARGEST
    arguments = (*RUN, "-e", largest, "--param", f"window={BLOCKS}")
    rows, planned, failure = measured(here, count, arguments, f"peer-{count}", probed=False)
    if failure or not rows:
        return bound(what, failure or "no row", "all", reached=False), []
    wrong = [row for row in rows if row.status == "wrong"]
    if wrong:
        return Verdict(what, WRONG, f"{len(wrong)} of {planned} are wrong", "all"), []
    right = [row for row in rows if row.status == "ok"]
    reasons = sorted({row.reason for row in rows if row.reason})
    # on 2 ranks, direct is a ring
    measured_once = [row for row in rows if (row.reason or "").startswith(SAME_SCHEDULE)]
    complete = len(right) + len(measured_once) == planned
    return bound(what, "; ".join(reasons) or len(right), f"{planned}", complete), right


def times_of_steps(here: Here, count: int, rows: "Sequence[Row]") -> Iterator[Verdict]:
    """Yield the time of a small ring by transport and protocol, and how the faster protocol compares with NCCL."""
    seconds: dict[str, float] = {}
    for row in rows:
        if row.bytes == SMALL_RING and row.algorithm == "ring" and row.median_s:
            seconds[way_of(row)] = row.median_s
    what = f"ring of {SMALL_RING} B on {count} ranks"
    steps = 2 * (count - 1)
    for way, median_s in sorted(seconds.items()):
        microseconds = median_s * 1e6
        got = f"{microseconds:.4g}, {microseconds / steps:.3g} a step"
        yield recorded(f"{what} over {way}: us", got)
    over_peer = [median_s for way, median_s in seconds.items() if way != "nccl"]
    if here.on_host or "nccl" not in seconds or not over_peer:
        return
    ratio = min(over_peer) / seconds["nccl"]
    yield bound(
        f"{what}: peer / nccl", f"{ratio:.3g}", f"at most {PEER_SHARE}", ratio <= PEER_SHARE
    )


def times_of_protocols(count: int, rows: "Sequence[Row]") -> Iterator[Verdict]:
    """Yield the time of each all-reduce over NCCL and in each protocol."""
    times: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        if row.median_s:
            words = f"{way_of(row)} {row.median_s * 1e6:.4g}"
            times.setdefault((row.algorithm, row.bytes), []).append(words)
    for (algorithm, nbytes), words in sorted(times.items()):
        yield recorded(f"{algorithm} of {nbytes} B on {count} ranks: us", ", ".join(sorted(words)))


def way_of(row: "Row") -> str:
    """Return the transport of a row, and its protocol if it has one."""
    protocol = row.params.get("protocol")
    return f"{row.transport} {protocol}" if protocol else row.transport
