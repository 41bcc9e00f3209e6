"""Which logs are of one launch. The lines are written after documented shapes; nothing of them was recorded."""

from hypothesis import given
from hypothesis import strategies as st

from hpccoll.evidence.log_parser import split_messages
from hpccoll.evidence.log_set import split_launches

NCCL = "{}:{} [0] NCCL INFO {}"
SHARP = "[{}:0:{} - comm.c:400][x] INFO [group#:0] tree_type:LLT group size:2"


def made(host, pid, of, parent=""):
    words = (
        f"ncclCommInitRank comm 0x5 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 7000 {parent}commId 0x{of} - Init START"
    )
    return NCCL.format(host, f"{pid}:{pid + 20}", words)


def ran(host, pid):
    return NCCL.format(host, f"{pid}:{pid}", "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}")


def found(**logs):
    """Return for each launch its logs, and how many messages of each are of it."""
    read = {name: [*split_messages(lines)] for name, lines in logs.items()}
    return [{name: len(lines) for name, lines in launch.items()} for launch in split_launches(read)]


def test_processes_that_share_a_communicator_are_of_one_launch_whatever_their_logs():
    assert found(a=[made("n1", 1, "abc")], b=[made("n2", 1, "abc"), ran("n2", 1)]) == [{"a": 1, "b": 2}]


def test_logs_that_share_nothing_are_of_launches_of_their_own():
    assert found(a=[made("n1", 1, "abc")], b=[made("n1", 1, "def")]) == [{"a": 1}, {"b": 1}]
    assert found(a=[ran("n1", 1)], b=[ran("n2", 2)]) == [{"a": 1}, {"b": 1}]


def test_a_log_that_was_written_on_by_a_second_launch_is_cut_between_their_processes():
    lines = [made("n1", 1, "abc"), made("n1", 2, "abc"), ran("n1", 1), made("n1", 8, "def"), ran("n1", 8), ran("n1", 2)]
    assert found(a=lines) == [{"a": 4}, {"a": 2}]


def test_communicators_of_one_process_are_of_one_launch_and_a_split_joins_nobody():
    two = [made("n1", 1, "abc"), made("n1", 1, "def"), made("n2", 1, "def")]
    assert found(a=two) == [{"a": 3}]
    split = "ncclCommSplit parent 0x5 "
    first, second = ([made("n1", pid, of), made("n1", pid, "0", split)] for pid, of in ((1, "abc"), (2, "def")))
    assert found(a=first, b=second) == [{"a": 2}, {"b": 2}]


def test_what_a_process_writes_into_another_log_by_another_library_is_of_its_launch():
    other = [SHARP.format("n1", 1), SHARP.format("n2", 1)]
    assert found(nccl=[made("n1", 1, "abc")], launch=other) == [{"nccl": 1, "launch": 2}]
    assert found(launch=other[:1], a=[made("n1", 1, "abc")], b=[made("n1", 2, "def")]) == [
        {"launch": 1, "a": 1}, {"b": 1}
    ]  # fmt: skip


def test_a_process_of_a_number_that_several_launches_have_is_that_of_the_logs_beside_it_or_nobodys():
    one, two, other = [made("n1", 1, "abc")], [made("n1", 1, "def")], [SHARP.format("n1", 1)]
    assert found(**{"a/x": one, "b/x": two, "b/y": other}) == [{"a/x": 1}, {"b/x": 1, "b/y": 1}]
    assert found(**{"a/x": one, "a/z": two, "a/y": other}) == [{"a/x": 1}, {"a/z": 1}, {"a/y": 1}]


def test_lines_of_nobody_are_of_the_launch_of_their_log_and_of_none_where_there_are_several():
    plain = "a program's own output"
    assert found(a=[made("n1", 1, "abc"), plain, ran("n9", 9)]) == [{"a": 3}]
    assert found(a=[made("n1", 1, "abc"), made("n1", 2, "def"), plain]) == [{"a": 1}, {"a": 1}]
    assert found(a=[plain]) == []


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 5), st.sampled_from("abc")), max_size=12))
def test_two_are_of_one_launch_if_and_only_if_communicators_lead_from_one_to_the_other(told):
    logs = {}
    for log, pid, of in told:
        logs.setdefault(log, []).append(made("n1", pid + 10 * "xyz".index(log), of))
    read = {name: [*split_messages(lines)] for name, lines in logs.items()}
    groups = [{(line.process, line.text) for lines in one.values() for line in lines} for one in split_launches(read)]
    processes = [{process for process, _ in group} for group in groups]
    ids = [{text.partition("commId ")[2] for _, text in group} for group in groups]
    for sets in (processes, ids):
        assert sum(map(len, sets)) == len(set().union(*sets))
    assert all(_connected(group) for group in groups)


def _connected(group):
    """Return whether each process of a group is reached from the first by what they share."""
    left = set(group)
    reached = {left.pop()}
    while more := {one for one in left if any(one[0] == it[0] or one[1][-24:] == it[1][-24:] for it in reached)}:
        reached |= more
        left -= more
    return not left
