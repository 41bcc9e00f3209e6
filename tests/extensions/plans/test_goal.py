"""The text of GOAL, read by a small parser: messages are paired, it runs to its end, and it moves what is counted."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
from schedule_examples import ALGORITHMS, EXAMPLES, SUBJECTS, case_of, cases

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.plans.goal import goal_texts
from hpccoll.schedule import COLLECTIVES, Cut, Layout, count, out_of_place

HEAD = re.compile(r"// (?P<comment>.*)\nnum_ranks (?P<ranks>\d+)\n")
RANK = re.compile(r"rank (?P<rank>\d+) \{\n(?P<lines>(?:.+\n)+?)\}\n")
OPERATION = re.compile(
    r"(?P<label>l\d+): (?:calc (?P<cost>\d+)|(?P<kind>send|recv) (?P<bytes>\d+)b (?:to|from) "
    r"(?P<peer>\d+) tag (?P<tag>\d+))"
)
ORDER = re.compile(r"(?P<label>l\d+) (?P<kind>i?requires) (?P<other>l\d+)")


@dataclass
class Operation:
    """A line of GOAL that does something, and the operations of its rank whose end or start it requires."""

    kind: str
    cost: int = 0
    peer: int = -1
    nbytes: int = 0
    tag: int = -1
    requires: list["Operation"] = field(default_factory=list)
    irequires: list["Operation"] = field(default_factory=list)


def parse(text):
    """Return the operations of each rank, in the order of the text; a label is defined before it is used."""
    head = HEAD.match(text)
    ranks, at = [], head.end()
    while at < len(text):
        block = RANK.match(text, at)
        assert int(block["rank"]) == len(ranks)
        named = {}
        for line in block["lines"].splitlines():
            if order := ORDER.fullmatch(line):
                getattr(named[order["label"]], order["kind"]).append(named[order["other"]])
                continue
            found = OPERATION.fullmatch(line)
            assert found["label"] not in named
            named[found["label"]] = (
                Operation("calc", cost=int(found["cost"]))
                if found["cost"]
                else Operation(
                    found["kind"], 0, int(found["peer"]), int(found["bytes"]), int(found["tag"])
                )
            )
        ranks.append([*named.values()])
        at = block.end()
    assert len(ranks) == int(head["ranks"])
    return ranks


def messages(ranks):
    """Return the send and the receive of each message, after checking that there is one of each, of as many bytes."""
    ends = defaultdict(lambda: defaultdict(list))
    for me, operations in enumerate(ranks):
        for operation in operations:
            if operation.kind != "calc":
                pair = (me, operation.peer) if operation.kind == "send" else (operation.peer, me)
                ends[*pair, operation.tag][operation.kind].append(operation)
    for key, found in ends.items():
        assert (len(found["send"]), len(found["recv"])) == (1, 1), key
        assert found["send"][0].nbytes == found["recv"][0].nbytes > 0
    return [(found["send"][0], found["recv"][0]) for found in ends.values()]


def steps_of(ranks):
    """Run the text, where a message takes one step from when both of its ends have started, and return the steps.

    A send does not end before its receive has started, so this is the strictest machine: none of
    its buffers holds a message.
    """
    partner = {id(end): other for pair in messages(ranks) for end, other in (pair, pair[::-1])}
    left = [operation for operations in ranks for operation in operations]
    started, ended, known = {}, {}, -1
    while left:
        assert len(started) + len(ended) > known, "what is left waits for itself"
        known, waiting = len(started) + len(ended), []
        for operation in left:
            before = [ended.get(id(each)) for each in operation.requires]
            before += [started.get(id(each)) for each in operation.irequires]
            if None not in before:
                started[id(operation)] = max(before, default=0)
            other = partner.get(id(operation), operation)
            if {id(operation), id(other)} <= started.keys():
                ended[id(operation)] = max(started[id(operation)], started[id(other)]) + (
                    other is not operation
                )
            else:
                waiting.append(operation)
        left = waiting
    return max(ended.values(), default=0)


def cut_of(case, elements, channels=1, itemsize=4):
    return Cut(case.call, elements, case.slices[0].units, len(case.slices) * channels, itemsize)


def placed(case):
    """Return the schedules of a case in place where they can be."""
    in_place = case.call.collective.in_place
    return case.slices if in_place else tuple(out_of_place(case.call, each) for each in case.slices)


def text_of(case, elements=1000, channels=1, **options):
    return "".join(goal_texts(placed(case), cut_of(case, elements, channels), **options))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_text_of_every_algorithm_moves_and_reduces_what_is_counted_and_ends(name, channels):
    collective, algorithm = ALGORITHMS[name]
    for p in (1, 2, 3, 4, 6, 8):
        for case in cases(
            collective, algorithm, Layout.of(p, 2, aggregators=3 if algorithm.aggregates else 0)
        ):
            cut = cut_of(case, 1000, 1 if collective.uncut else channels)
            ranks = parse("".join(goal_texts(placed(case), cut, window=2, fold_cost=1)))
            counted = count(placed(case), cut)
            sent = [sum(each.nbytes for each in one if each.kind == "send") for one in ranks]
            sends = [sum(each.kind == "send" for each in one) for one in ranks]
            reduced = [sum(each.cost for each in one) for one in ranks]
            assert sent == counted.sent[:, 1:].sum(axis=1).tolist()
            assert sends == counted.messages[:, 1:].sum(axis=1).tolist()
            assert reduced == counted.reduced.tolist()
            steps_of(ranks)


@pytest.mark.parametrize("name", SUBJECTS)
def test_in_one_lane_it_takes_as_many_steps_as_are_counted(name):
    for p in (2, 3, 5, 8):
        case = case_of(name, p)
        if case and len(case.slices) == 1:
            assert steps_of(parse(text_of(case))) == count(placed(case), cut_of(case, 1000)).steps


def test_the_messages_of_a_step_start_in_listed_order_receives_first_and_none_waits_for_the_end_of_another():
    (operations, *_) = parse(text_of(EXAMPLES["all_at_once"].case(4)))
    assert [(each.kind, each.peer) for each in operations] == [
        ("recv", 3), ("recv", 2), ("recv", 1), ("send", 1), ("send", 2), ("send", 3),
    ]  # fmt: skip
    assert [each.irequires for each in operations] == [[], *([each] for each in operations[:-1])]
    assert not any(each.requires for each in operations)


def test_a_fold_waits_for_the_messages_of_its_step_and_the_next_step_for_the_fold():
    for operations in parse(text_of(case_of("all_reduce-recursive_doubling", 4), fold_cost=2.5)):
        recv, send, fold, then, *_ = operations
        assert (fold.kind, fold.cost, fold.requires) == ("calc", 10000, [recv, send])
        assert then.requires == [fold]


@pytest.mark.parametrize(("window", "expected"), [(1, 24), (2, 12), (3, 6), (5, 6)])
def test_the_channels_of_a_sequence_follow_one_another(window, expected):
    case = case_of("all_reduce-ring", 4)
    assert (
        steps_of(parse(text_of(case, 4096, channels=3 if window > 2 else 4, window=window)))
        == expected
    )


def test_a_rank_without_messages_computes_nothing_and_messages_without_bytes_are_left_out():
    for name, p in (("all_reduce-null", 3), ("all_reduce-ring", 1)):
        ranks = parse(text_of(case_of(name, p)))
        assert [[(each.kind, each.cost) for each in operations] for operations in ranks] == [
            [("calc", 0)]
        ] * p
    family = COLLECTIVES["all_reduce"]
    (case,) = cases(family, family.algorithm("ring"), Layout.of(2, aggregators=1))
    assert [len(operations) for operations in parse(text_of(case))] == [4, 4, 1]
    sizes = Counter(
        send.nbytes
        for send, _ in messages(parse(text_of(case_of("all_reduce-ring", 4), elements=3)))
    )
    assert sizes == {4: 18}


def test_a_text_that_would_be_too_large_is_refused_with_its_size_before_anything_is_yielded():
    case = case_of("all_reduce-ring", 64)
    with pytest.raises(
        BadInputError, match=r"about .* MiB of text, or more, for 64 ranks and 4096 lanes"
    ):
        next(goal_texts(case.slices, cut_of(case, 1 << 30, 4096), max_bytes=1 << 27))
