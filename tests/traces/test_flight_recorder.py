"""Dumps of PyTorch's Flight Recorder, read as pickles and as JSON."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hpccoll.traces import plain_pickle
from hpccoll.traces.flight_recorder import read, recognises
from hpccoll.traces.plain_pickle import read_plain_pickle
from tests.traces.recorded_files import Call, Ring, as_json, as_pickle, dump

WORLD, PIPELINE, SILENT = (
    Ring("0", (4, 5, 6), "default_pg"),
    Ring("31", (4, 6), "pp"),
    Ring("101", (5, 6), "ep"),
)
CALLS = [Call(WORLD), Call(WORLD, "_reduce_scatter_base", 100), Call(PIPELINE, "send", 8, peer=0)]


def written(tmp_path, content, write=as_pickle, name="nccl_trace_rank_6"):
    path = tmp_path / name
    path.write_bytes(write(content))
    assert recognises(path.read_bytes()[:1000])
    return path


def test_a_dump_gives_operations_progress_and_places_and_json_gives_the_same_but_for_the_places(
    tmp_path,
):
    content = dump(6, CALLS, {0}, active=False, groups=[SILENT])
    job = read(written(tmp_path, content))
    assert [
        (each.collective, each.sequence, each.bytes, each.state, each.peer)
        for each in job.operations
    ] == [
        ("all_reduce", 1, 2048, "completed", None),
        ("reduce_scatter", 2, 3 * 100 * 2, "enqueued", None),
        ("send", 1, 16, "enqueued", 4),
    ]
    assert {each.dtype for each in job.operations} == {"bfloat16"}
    assert {each.where for each in job.operations} == {"train.py:42 step"}
    assert [(each.group.name, each.enqueued, each.completed) for each in job.progress] == [
        ("0", 2, 1), ("31", 1, 0), ("101", 0, 0),
    ]  # fmt: skip
    assert [each.group.ranks for each in job.progress] == [(4, 5, 6), (4, 6), (5, 6)]
    other = read(written(tmp_path, content, as_json))
    assert other.progress == job.progress
    assert other.operations == [replace(each, where=None) for each in job.operations]


def test_groups_without_an_entry_are_paired_with_their_status_in_ascending_order_of_numbers(
    tmp_path,
):
    """Names 0, 31 and 101 as numbers, not as texts; the dump of a rank with locked threads has no entry at all."""
    content = dump(6, CALLS, {0, 1, 2}, groups=[SILENT])
    assert content["entries"] == []
    job = read(written(tmp_path, content))
    assert [(each.group.name, each.enqueued) for each in job.progress] == [
        ("0", 2),
        ("31", 1),
        ("101", 0),
    ]


def test_one_name_and_one_status_that_are_left_belong_together_also_if_names_are_no_numbers(
    tmp_path,
):
    content = json.loads(
        json.dumps(dump(6, [Call(WORLD), Call(PIPELINE, "all_gather")], {1})).replace(
            '"31"', '"a1b2"'
        )
    )
    job = read(written(tmp_path, content))
    assert [(each.group.name, each.enqueued) for each in job.progress] == [("0", 1), ("a1b2", 1)]


def test_a_status_without_a_name_is_said_and_not_guessed(tmp_path):
    content = dump(6, CALLS, {0}, groups=[SILENT])
    del content["pg_config"]["101"]
    job = read(written(tmp_path, content))
    assert [each.group.name for each in job.progress] == ["0", "31"]
    assert job.cannot_say == ("the names of 1 groups of rank 6",)


def test_versions_are_two_numbers(tmp_path):
    content = dump(6, CALLS, {0})
    for version in ("2.4", "2.9", "2.10", "3.0"):
        assert read(written(tmp_path, {**content, "version": version})).operations
    for version in ("2.3", "1.10", "", "two"):
        with pytest.raises(ValueError, match="version"):
            read(written(tmp_path, {**content, "version": version}))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_6", 6),
        ("fr_6_2026-11-25.json", 6),
        ("comm_lib_trace_rank_6.pkl", 6),
        ("fr_rank6_step4.pkl", 6),
        ("job77-rank5", 5),
    ],
)
def test_the_rank_is_the_last_number_of_the_name_that_is_a_rank_of_its_groups(tmp_path, name, rank):
    content = dump(6, [Call(WORLD)], ())
    assert read(written(tmp_path, content, name=name)).ranks[0].rank == rank


@pytest.mark.parametrize("name", ["dump", "nccl_trace_rank_9"])
def test_a_name_without_the_rank_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="name"):
        read(written(tmp_path, dump(6, [Call(WORLD)], ()), name=name))


@pytest.mark.parametrize(
    ("state", "expected"),
    [("scheduled", "enqueued"), ("completed", "completed"), (None, "completed")],
)
@pytest.mark.parametrize("is_message", [False, True])
def test_messages_of_a_batch_have_its_state_also_where_a_dump_of_active_ones_leaves_it_out(
    tmp_path, state, expected, is_message
):
    """In some versions of PyTorch the entry of a batch is no message; it has the numbers of the batch."""
    content = dump(
        6, [Call(PIPELINE, "send", peer=0), Call(PIPELINE, "recv", peer=0), Call(WORLD)], ()
    )
    first, second, _ = content["entries"]
    second["p2p_seq_id"] = first["p2p_seq_id"]
    if state:
        content["entries"].append(
            {**second, "profiling_name": "nccl:coalesced", "state": state, "is_p2p": is_message}
        )
    job = read(written(tmp_path, content))
    assert [(each.collective, each.state) for each in job.operations] == [
        ("send", expected), ("receive", expected), ("all_reduce", "enqueued"),
    ]  # fmt: skip


def test_the_first_message_of_a_batch_has_its_times(tmp_path):
    content = dump(
        6, [Call(PIPELINE, "send", peer=0), Call(PIPELINE, "recv", peer=0)], {0, 1}, active=False
    )
    first, second = content["entries"]
    second["p2p_seq_id"] = first["p2p_seq_id"]
    content["entries"].append(
        {
            **second,
            "profiling_name": "nccl:coalesced",
            "duration_ms": 50.0,
            "time_discovered_started_ns": 7,
            "time_discovered_completed_ns": 9,
        }
    )
    timed, other = read(written(tmp_path, content)).operations
    assert (timed.duration_s, timed.started_ns, timed.ended_ns, timed.bytes) == (0.05, 7, 9, None)
    assert (other.duration_s, other.started_ns, other.bytes) == (None, None, 2048)


def test_gloo_says_what_is_enqueued_only(tmp_path):
    content = dump(6, CALLS, {0}, active=False, backend="gloo")
    content["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    job = read(written(tmp_path, content))
    assert [
        (each.group.name, each.group.ranks, each.enqueued, each.completed) for each in job.progress
    ] == [
        ("0", (), 2, None),
        ("31", (), 1, None),
    ]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


@given(plain, st.sampled_from((2, 3, 4, 5)))
def test_a_pickle_of_plain_values_is_read_as_pickle_reads_it(value, protocol):
    assert read_plain_pickle(pickle.dumps(value, protocol)) == value


class Evil:
    def __reduce__(self):
        return print, ("executed",)


HOSTILE = {
    "a class": pickle.dumps(Evil(), 2), "a class in a list": pickle.dumps([1, Evil()], 4),
    "the oldest protocol": pickle.dumps(Evil(), 0), "os.system": b"\x80\x02cos\nsystem\nU\x04trueR.",
    "a persistent id": b"\x80\x02U\x01aQ.", "an extension": b"\x80\x02\x82\x01.", "a buffer": b"\x80\x05\x97.",
    "a memo of 16 GB": b"\x80\x02]r\xff\xff\xff\x7f.", "a text of 4 GB": b"\x80\x02X\xff\xff\xff\xffabc.",
    "a negative length": b"\x80\x02\x8b\xff\xff\xff\xff.", "a frame of 8 EB": b"\x80\x04\x95" + b"\xff" * 8 + b".",
    "a list in itself": b"\x80\x02]q\x00h\x00a.", "an empty stack": b"\x80\x02.", "no end": b"\x80\x02]",
    "no mark": b"\x80\x02K\x01K\x02e.", "a key that is a list": b"\x80\x02}]K\x01s.",
    "a key of a million tuples": b"\x80\x02})" + b"\x85" * 1_000_000 + b"K\x01s.",
    "five million lists": b"\x80\x02(" + b"]" * 5_000_000 + b"l.", "nothing behind a mark": b"\x80\x02(((((e.",
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_pickle_that_would_do_more_is_refused_and_nothing_is_executed(tmp_path, capfd, content):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(content)
    # a memo of 16 GB is that of one list: only its content is refused
    with pytest.raises(ValueError, match=r"\w"):
        read(path)
    assert capfd.readouterr().out == ""


def test_what_is_shared_in_a_pickle_counts_wherever_it_stands():
    text, shared = "x" * 100, [1]
    assert read_plain_pickle(pickle.dumps([text, text, shared, shared], 2)) == [
        text,
        text,
        shared,
        shared,
    ]
    for _ in range(40):
        shared = [shared, shared]
    with pytest.raises(ValueError, match="more than 4000000 values"):
        read_plain_pickle(pickle.dumps(shared, 2))


def deep_tuples(depth):
    """Return a pickle of a dictionary whose key is a tuple in so many tuples."""
    return b"\x80\x02})" + b"\x85" * depth + b"K\x01s."


HARMLESS = as_pickle(dump(0, [Call(Ring("0", (0, 1)))] * 3, completed={0}))


@pytest.mark.parametrize(
    ("content", "is_harmless"),
    [
        (HARMLESS, True),
        (b"\x80\x02]r\xff\xff\x1f\x00.", True),
        (b"\x80\x02]r\xff\xff\xff\x7f.", False),
        (b"\x80\x02]p4294967296\n.", False),
        (b"\x80\x02\x96\xff\xff\xff\xff\xff\0\0\0.", False),
        (b"\x80\x02cos\nsystem\n.", False),
        (b"\x80\x02\x82\x01.", False),
        (b"\x80\x02]Q.", False),
        (b"\x80\x02(K\x01oR.", False),
        (b"\x80\x02]X\xff\xff\xff\xffa.", False),
        (deep_tuples(200), True),
        (deep_tuples(1_000_000), False),
        (HARMLESS[:-1], False),
        (b"\x80\x02", False),
        (b"\x80\x04N.", False),
    ],
)
def test_only_pickles_that_can_do_no_harm_are_read_by_the_unpickler_in_c(content, is_harmless):
    assert plain_pickle._is_harmless(content) == is_harmless


@given(place=st.integers(0, len(HARMLESS) - 1), byte=st.integers(0, 255), cut=st.booleans())
def test_both_unpicklers_read_a_damaged_pickle_alike_or_refuse_it(place, byte, cut):
    content = HARMLESS[:place] + bytes([byte]) + HARMLESS[place + (not cut) :]
    values = []
    for is_harmless in (plain_pickle._is_harmless, lambda _content: False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plain_pickle, "_is_harmless", is_harmless)
            try:
                values.append(read_plain_pickle(content))
            except ValueError:
                continue
    assert repr(values[:1]) == repr(values[-1:])
