"""Events that are read one after the other: in pieces of any size, and in files that were made to do harm."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.traces import event_stream
from hpccoll.traces.event_stream import EventStream

ANY = re.compile(b"")

values = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
events = st.dictionaries(st.text(), values, max_size=4)


def read(content, wanted=ANY):
    """Return the events of a file, and what is around them."""
    stream = EventStream(io.BytesIO(content))
    found = [json.loads(event) for batch in stream.read(wanted) for event in batch]
    return found, json.loads(stream.around)


@given(
    st.lists(events, max_size=5),
    st.dictionaries(st.text(), values, max_size=2),
    st.integers(1, 50),
    st.booleans(),
)
def test_events_are_those_of_the_file_with_pieces_of_any_size(
    listed, others, piece_bytes, is_indented
):
    content = {"a": 1, **others, "traceEvents": listed, "z": [{"b": [{}, {}]}]}
    text = json.dumps(content, indent=1 if is_indented else None, ensure_ascii=False).encode(
        errors="replace"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_stream, "PIECE_BYTES", piece_bytes)
        found, around = read(text)
    assert found == json.loads(text)["traceEvents"]
    assert around == {**json.loads(text), "traceEvents": []}


def test_only_events_in_which_the_pattern_is_found_are_returned():
    listed = [
        {"cat": "kernel", "n": number} if number % 3 else {"name": "kernel"}
        for number in range(5000)
    ]
    found, _ = read(json.dumps({"traceEvents": listed}).encode(), re.compile(rb'"cat": "kernel"'))
    assert found == [event for event in listed if "cat" in event]


@pytest.mark.parametrize(
    "text",
    [
        b'{"traceEvents": [1, 2]}',
        b'{"traceEvents": [{"a": 1}',
        b'{"traceEvents": [{"a": "',
        b'{"traceEvents": [',
        b'{"traceEvents": [' + b'{"a":' * 20 + b"1" + b"}" * 20 + b"]}",
        b'{"traceEvents": [' + b"{" * 1_000_000,
        b'{"traceEvents": [{"a": "' + b"x" * 3_000_000 + b'"}]}',
        b'{"traceEvents": [{}]' + b" " * 3_000_000 + b"}",
        b'{"traceEvents": [' + b'{"a": "\\"' * 100_000 + b"]}",
        b'{"a": "' + b"x" * 3_000_000 + b'"}',
    ],
)
def test_what_is_no_list_of_objects_of_usual_size_is_refused(text, monkeypatch):
    monkeypatch.setattr(event_stream, "MAX_PART_BYTES", 2_000_000)
    monkeypatch.setattr(event_stream, "PIECE_BYTES", 100_000)
    with pytest.raises(ValueError, match=r"its events|it has an event"):
        read(text)
