"""GOAL, the text in which LogGOPSim and ATLAHS read schedules: what each rank sends, receives and computes.

A step of a rank becomes a chain: its receives and then its sends, each in listed order, as MPI
programs post them. The first one requires the end of the previous step; each other one requires
only the start (``irequires``) of the one before it. So all are in flight at once, and a simulator
with one port per rank starts them in a defined order. The step ends when all of them have ended,
and then, if a reduced byte costs time, a ``calc`` that requires them. Lanes are dealt
to sequences as the executors deal them: the lanes of a sequence follow one another, and sequences
share only the rank.

The two ends of a message have the same tag, and no other message from one to the other has it:
LogGOPSim pairs messages of one tag in no defined order. Copies on a rank, and messages without
bytes, are left out.

T. Hoefler, C. Siebert, A. Lumsdaine: Group Operation Assembly Language, ICPP 2009.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count, islice, pairwise

from hpccoll.common.errors import UnusableError
from hpccoll.common.units import format_size
from hpccoll.schedule import Copy, CopyReduce, Cut, Part, RecvReduce, Schedule, Send
from hpccoll.schedule.lanes import lane_sequences
from hpccoll.schedule.step import Step, drop_null_peers

MAX_FOLD_COST = 1e9
"""The maximum time of a reduced byte: 1 ms in picoseconds."""
MAX_PRINTED_BYTES, MAX_FILE_BYTES = 1 << 27, 1 << 32
"""The maximum size of a text that is printed, and of one in a file: 10 MB are written in a second."""
OPERATION_BYTES = 60
"""The usual length of the lines of a message: what it is, and what it requires."""


def goal_texts(
    schedules: Sequence[Schedule],
    cut: Cut,
    *,
    window: int = 1,
    fold_cost: float = 0.0,
    comment: str = "",
    max_bytes: int = MAX_FILE_BYTES,
) -> Iterator[str]:
    """Yield the text of one operation: its head, and then one rank after another.

    Args:
        schedules: the schedules of the slices, which the lanes of ``cut`` take in turn; out of
            place if blocks are unequal.
        cut: the positions of the units.
        window: the number of channels in flight at once, each with a lane for every slice.
        fold_cost: the time of a reduced byte, in the simulator's unit of time.
        comment: the first line.
        max_bytes: the maximum size of the text.

    Raises:
        UnusableError: if the text would be larger; nothing was yielded then.
    """
    ranks = schedules[0].layout.ranks
    _check_size(schedules, cut, ranks, max_bytes)
    yield f"// {comment}\nnum_ranks {ranks}\n"
    for me in range(ranks):
        # LogGOPSim reads its queue before it checks whether there is anything to do, so no rank is
        # left empty.
        lines = list(_rank_lines(schedules, cut, me, window, fold_cost)) or ["l1: calc 0"]
        yield "\n".join([f"rank {me} {{", *lines, "}\n"])


def _check_size(schedules: Sequence[Schedule], cut: Cut, ranks: int, max_bytes: int) -> None:
    """Check the size of the text, estimated from the first steps of some ranks as if no message were empty."""
    enough = max(64, max_bytes // OPERATION_BYTES // ranks)
    sampled = {ranks // 4, ranks // 2, 3 * ranks // 4}  # without rank 0, the root of most trees
    actions = 0
    for me in sampled:
        for schedule in schedules:
            actions += sum(len(step.actions) for step in islice(schedule.steps(me), enough))
    actions_of_rank = actions / len(sampled) / len(schedules)
    size = int(actions_of_rank * ranks * cut.lanes * OPERATION_BYTES)
    if size > max_bytes:
        size_text = (
            f"about {format_size(size)} of text, or more, for {ranks} ranks and {cut.lanes} lanes"
        )
        remedy = "fewer workers or channels"
        if size < MAX_FILE_BYTES:
            remedy += " or --out F"
        raise UnusableError(
            "goal", f"{size_text}, and at most {format_size(max_bytes)}; do: {remedy}"
        )


def _rank_lines(
    schedules: Sequence[Schedule], cut: Cut, me: int, window: int, fold_cost: float
) -> Iterator[str]:
    steps = [list(map(drop_null_peers, schedule.steps(me))) for schedule in schedules]
    labels = map("l{}".format, count(1))
    for lanes in lane_sequences(len(schedules), cut.lanes, window):
        ended: list[str] = []
        for lane in lanes:
            for operations, reduced in _lane_steps(steps[lane % len(steps)], cut, lane, me):
                chain = [next(labels) for _ in operations]
                yield from map("{}: {}".format, chain, operations)
                yield from (f"{chain[0]} requires {label}" for label in ended)
                yield from (f"{later} irequires {earlier}" for earlier, later in pairwise(chain))
                ended = chain
                if cost := round(reduced * fold_cost):
                    ended = [next(labels)]
                    yield f"{ended[0]}: calc {cost}"
                    yield from (f"{ended[0]} requires {label}" for label in chain)


def _lane_steps(
    steps: Sequence[Step], cut: Cut, lane: int, me: int
) -> Iterator[tuple[list[str], int]]:
    """Yield the receives and then the sends of rank ``me`` in each step that has any, and the bytes that it reduces.

    Both ends of a message find its tag by themselves. As ``match`` pairs them, the k-th message
    between two ranks in a step of the sender is the k-th one in a step of the receiver, and the
    n-th such step of one is the n-th such step of the other. With n and k counted from 0, (2n + 1)
    2^k - 1 is another number for each n and k.
    """
    earlier: dict[tuple[bool, int, int], int] = defaultdict(int)  # steps with such a message
    for step in steps:
        receives: list[str] = []
        sends: list[str] = []
        listed: dict[tuple[bool, int], int] = defaultdict(int)
        reduced = 0
        for action in step.actions:
            if isinstance(action, Copy):
                if isinstance(action, CopyReduce):
                    reduced += _part_bytes(cut, lane, me, action.target)
                continue
            out = isinstance(action, Send)
            peer = int(action.peer)
            k = listed[out, peer]
            n = earlier[out, peer, k]
            listed[out, peer], earlier[out, peer, k] = k + 1, n + 1
            nbytes = _part_bytes(cut, lane, me, action.part)
            if not nbytes:
                continue
            tag = (((2 * n + 1) << k) - 1) * cut.lanes + lane
            if out:
                sends.append(f"send {nbytes}b to {peer} tag {tag}")
            else:
                receives.append(f"recv {nbytes}b from {peer} tag {tag}")
                reduced += nbytes * isinstance(action, RecvReduce)
        if operations := receives + sends:
            yield operations, reduced


def _part_bytes(cut: Cut, lane: int, me: int, part: Part) -> int:
    return sum(stop - start for start, stop in cut.spans(lane, me, part)) * cut.itemsize
