"""A schedule in GOAL of another program: its messages are paired, its chain is counted, its faults are named."""

from collections import Counter

import pytest
from cli_runner import invoke
from plan_machine import ROUND_TRIPS, is_registered_for
from schedule_examples import ALGORITHMS, case_of

from hpccoll.cases.requested_schedule import requested_operation
from hpccoll.common.errors import BadInputError
from hpccoll.interop.goal import goal_texts
from hpccoll.interop.goal_reader import _COMMENT, critical_path, read_goal
from hpccoll.schedule import Copy, Cut, Layout, Send, count, out_of_place

TREE = """
num_ranks 4 /* a comment
of two lines */
rank 0 {
l1: send 8b to 1 tag 7
send 8b to 2 tag 7 cpu 1 nic 0   // without a label
}
rank 1 {
l1: recv 8b from 0 tag 7
l2: calc 100 cpu 0
l3: send 24b to 3
l2 requires l1
l3 irequires l2
}
rank 2 {
l1: recv 8b from 0 tag 7
}
rank 3 {
l1: recv 24b from 1
}
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "a.goal").write_text(text)
        return read_goal(tmp_path / "a.goal")

    return read


def required(schedule):
    """Return by operation those whose end it requires, those whose start, and the send of its message or None."""
    links = zip(schedule.operations, schedule.before[::2], schedule.before[1::2], strict=True)
    return {
        one: (
            [schedule.operations[event // 2] for event in start if event % 2],
            [schedule.operations[event // 2] for event in start if not event % 2],
            next((schedule.operations[event // 2] for event in end[1:]), None),
        )
        for one, start, end in links
    }


def test_operations_have_their_bytes_tags_and_costs_and_what_they_require(read):
    schedule = read(TREE)
    operations = {(each.rank, each.line): each for each in schedule.operations}
    assert schedule.ranks == 4
    assert [(each.rank, each.peer, each.nbytes, each.tag) for each in schedule.sends] == [
        (0, 1, 8, 7), (0, 2, 8, 7), (1, 3, 24, 0),
    ]  # fmt: skip
    first, compute, last = (operations[1, line] for line in (9, 10, 11))
    links = required(schedule)
    assert (compute.cost, links[compute], links[last]) == (100, ([first], [], None), ([], [compute], None))
    assert links[first] == ([], [], operations[0, 5])
    assert critical_path(schedule) == (2, 32)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_written_of_every_algorithm_is_read_again_and_matched(read, name):
    case = case_of(name, 8)
    slices = case.slices if case.call.collective.in_place else [out_of_place(case.call, each) for each in case.slices]
    cut = Cut(case.call, 1024, slices[0].units, len(slices), 4)
    counted = count(slices, cut)
    schedule = read("".join(goal_texts(slices, cut)))
    assert schedule.ranks == slices[0].layout.ranks
    assert sum(each.nbytes for each in schedule.sends) == counted.sent[:, 1:].sum()
    longest = critical_path(schedule)
    assert longest.messages <= counted.rounds * cut.lanes
    if name in ("all_reduce-ring", "all_gather-bruck"):
        assert (longest.messages, longest.nbytes) == (counted.rounds, counted.critical_bytes)


def steps_read(schedule, rank):
    """Return the sequences of a rank of GOAL: a step starts where an operation requires all of the step before it."""
    sequences, links = [], required(schedule)
    for one in (each for each in schedule.operations if each.rank == rank and each.kind != "calc"):
        after_end, after_start, _ = links[one]
        if after_start:
            assert (after_start, after_end) == ([sequences[-1][-1][-1]], [])
            sequences[-1][-1].append(one)
        elif after_end:
            assert after_end == sequences[-1][-1]
            sequences[-1].append([one])
        else:
            sequences.append([[one]])
    return sequences


def steps_written(operation, rank):
    """Return the sequences of a rank of ours, receives first: whether it sends, the peer, the bytes."""
    found = []
    for lane, each in enumerate(operation.schedules):
        steps = []
        for step in each.steps(rank):
            placed = [
                (isinstance(one, Send), int(one.peer), sum(b - a for a, b in operation.cut.spans(lane, rank, one.part)))
                for one in step.actions
                if not isinstance(one, Copy) and one.peer >= 0
            ]
            steps.append(sorted((one for one in placed if one[2]), key=lambda one: one[0]))
        found.append([[(kind, peer, 4 * units) for kind, peer, units in step] for step in steps if step])
    return [each for each in found if each]


@pytest.mark.parametrize(("collective", "name"), ROUND_TRIPS)
def test_what_is_written_on_2_to_8_ranks_is_read_again_step_for_step_and_each_message_meets_its_receive(
    collective, name, tmp_path
):
    path, tried = tmp_path / "a.goal", [p for p in range(2, 9) if is_registered_for(collective, name, p, 2 - p % 2)]
    assert len(tried) > 2
    for p in tried:
        node = "--ranks-per-node", 2 - p % 2
        options = "-c", collective, "-p", p, *node, "-b", "1M", "--format", "goal", "--out", path
        assert invoke("show", name, *options).code == 0
        operation = requested_operation(name, collective, Layout.of(p, node[1]), 1 << 20, parameters={})
        schedule = read_goal(path)
        place, earlier = {}, Counter()
        for rank in range(p):
            read, written = steps_read(schedule, rank), steps_written(operation, rank)
            assert [
                [[(one.kind == "send", one.peer, one.nbytes) for one in step] for step in steps] for steps in read
            ] == written
            for lane, step in ((lane, step) for lane, steps in enumerate(read) for step in steps):
                listed = Counter()
                for one in step:
                    ends = (rank, one.peer) if one.kind == "send" else (one.peer, rank)
                    k = listed[one.kind, ends]
                    place[one] = lane, ends, k, earlier[lane, one.kind, ends, k]
                    listed[one.kind, ends] += 1
                    earlier[lane, one.kind, ends, k] += 1
        received = {one: send for one, (*_, send) in required(schedule).items() if send}
        assert received
        assert all(place[one] == place[send] for one, send in received.items())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rank 0 {\n}", "line 1: it begins neither with num_ranks"),
        ("", "it begins neither with num_ranks"),
        ("num_ranks 0", "num_ranks: '0' is not valid"),
        ("num_ranks 2\nrank 2 {\n}", "line 2: rank 2 is not one of ranks 0 to 1"),
        ("num_ranks 2\nrank 0 {\nsend 1b to 9\n}", "line 3: rank 9 is not one of ranks 0 to 1"),
        ("num_ranks 2\nrank 0 {\nrecv 1b from -1\n}", "a receive from any rank"),
        ("num_ranks 2\nrank 0 {\nrecv 1b from 1 tag -1\n}", "a receive of any tag"),
        ("num_ranks 2\nrank 0 {\nsend 1 to 1\n}", "line 3: 'send 1 to 1' is not send"),
        ("num_ranks 2\nrank 0 {\nl1: calc 1\nl1 requires l2\n}", "line 4: there is no operation l2"),
        ("num_ranks 2\nrank 0 {\nl1: calc 1", "no closing bracket"),
        (TREE.replace("send 24b", "send 25b"), "line 11 sends 25 bytes, and line 19 receives 24"),
        (TREE.replace("l1: recv 24b from 1\n", "calc 1\n"), "rank 1 sends 1 message of tag 0 to rank 3"),
        (TREE.replace("from 1\n", "from 1 tag 1\n"), "rank 1 sends 1 message of tag 0 to rank 3, which receives 0"),
        ("num_ranks 2\nrank 0 {\nrecv 1b from 1 tag 4294967295\n}", "a receive of any tag"),
        ("num_ranks 2\nrank 1 {\n}\nrank 0 {\n}", "line 2: rank 1 is not the next one"),
        ("num_ranks 2\nrank 0 {\n}\nrank 0 {\n}", "line 4: rank 0 is not the next one"),
        ("num_ranks 2\nrank 0 {\n}", "rank 1 is missing"),
        ("num_ranks 1\nrank 0 {\nl2 requires l1\nl1: calc 1\nl2: calc 1\n}", "line 3: there is no operation l2"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(read, text, words):
    with pytest.raises(BadInputError) as error:
        read(text)
    assert words in str(error.value)


RANK = "num_ranks 2\nrank 0 {{\n{}\n}}\nrank 1 {{\n}}\n"
"""A text whose rank 0 has the operations named."""


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ("l1\t:send 8 b to 0 tag 3 cpu 1 nic 2\r\nrecv 8b\tfrom 0 tag 3 nic 1", True), ("l_1:calc 5 cpu 1", True),
        ("a: calc 1\nb: calc 1\nb irequires a\nb\trequires a", True), ("requires: calc 1", True), ("", True),
        ("send 8b from 0", False), ("recv 8b to 0", False), ("send 8b to -1", False), ("calc 1 nic 3", False),
        ("send 8b to 0 nic 1 cpu 1", False), ("calc 1 cpu 1 cpu 2", False), ("send 8b to 0 cpu 1 tag 1", False),
        ("rank: calc 1", False), ("send: calc 1", False), ("_a: calc 1", False), ("calc 1 }", False),
        ("calc\u0661", False), ("\u00e9: calc 1", False), ("calc5", False), ("a: calc 1 a requires a", False),
    ],
)  # fmt: skip
def test_it_is_read_what_txt2bin_reads(read, line, is_read):
    for text in (RANK.format(line), RANK.format(line).replace("{\n", "{ ").replace("rank ", "rank\t")):
        if is_read:
            read(text)
        else:
            with pytest.raises(BadInputError, match=r"line [23]: .* is not send, recv"):
                read(text)


def test_a_label_that_is_given_twice_is_that_of_the_first(read):
    schedule = read("num_ranks 1\nrank 0 {\na: calc 1\na: calc 2\nb: calc 3\nb requires a\n}")
    first, _, last = schedule.operations
    assert required(schedule)[last] == ([first], [], None)


NO_ORDERS = ("", "c requires a\nc requires b", "a requires c\nb requires c")
ORDERS = ("b requires a", "b irequires a", "c requires a\nb requires c", "a requires b", *NO_ORDERS)


@pytest.mark.parametrize("sent", ORDERS)
@pytest.mark.parametrize("received", ORDERS)
def test_messages_of_one_tag_meet_in_the_order_in_which_they_require_one_another(read, sent, received):
    one, other = (8, 16) if (sent == "a requires b") == (received == "a requires b") else (16, 8)
    text = (
        f"num_ranks 2\nrank 0 {{\na: send 8b to 1\nb: send 16b to 1\nc: calc 1\n{sent}\n}}\n"
        f"rank 1 {{\na: recv {{}}b from 0\nb: recv {{}}b from 0\nc: calc 1\n{received}\n}}\n"
    )
    if {sent, received} & {*NO_ORDERS}:
        with pytest.raises(BadInputError, match=r"line \d+ and line \d+ have one peer and one tag, and neither"):
            read(text.replace("{}b", "8b"))
    else:
        read(text.replace("{}", str(one), 1).replace("{}", str(other)))
        with pytest.raises(BadInputError, match=r"sends \d+ bytes, and line \d+ receives"):
            read(text.replace("{}", str(other), 1).replace("{}", str(one)))


def test_a_comment_without_an_end_is_refused_where_it_begins_and_not_searched_again_from_each_other_one(read):
    assert [found.span() for found in _COMMENT.finditer("/* " * 1000)] == [(0, 3000)]  # without a second beginning
    with pytest.raises(BadInputError, match="line 2: a comment has no end"):
        read("num_ranks 2\n" + "/* " * 1000)


def test_operations_that_wait_for_one_another_are_named(read):
    one = "rank {} {{\na: recv 1b from {}\nb: send 1b to {}\nb requires a\n}}\n"
    with pytest.raises(BadInputError, match=r"a.goal, rank 0, line 3: 'a: recv 1b from 1' never ends"):
        read("num_ranks 2\n" + one.format(0, 1, 1) + one.format(1, 0, 0))


def test_show_says_what_a_file_holds_and_that_it_is_not_proven(tmp_path):
    path = tmp_path / "tree.goal"
    path.write_text(TREE)
    shown = invoke("show", path)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"{path}: 4 ranks, 3 messages, 40 B together\n")
    assert shown.out.splitlines()[-1].startswith("matched, not proven")
    assert invoke("show", tmp_path / "none.goal").is_bad_input("none.goal", "No such file")


@pytest.mark.parametrize(
    "option",
    [
        ("--workers", 4), ("--collective", "all_reduce"), ("--ranks-per-node", 2), ("--racks", 2), ("--aggregators", 1),
        ("--root", 1), ("--param", "radix=2"), ("--unit", 0), ("--format", "goal"), ("--bytes", "1M"),
        ("--fold-cost", 1.5), ("--out", "a.svg"), ("--racks", 1),
    ],
)  # fmt: skip
def test_an_option_of_an_algorithm_is_refused_beside_a_file_even_with_its_default(tmp_path, option):
    path = tmp_path / "tree.goal"
    path.write_text(TREE)
    assert invoke("show", path, *option).is_bad_input(f"option {option[0]}", "algorithm")


def test_xml_of_msccl_is_said_to_be_not_read(tmp_path):
    (tmp_path / "a.xml").write_text('<algo name="a" nchunksperloop="2"></algo>')
    assert invoke("show", tmp_path / "a.xml").is_bad_input("a.xml", "XML", "MSCCL", "GOAL")
