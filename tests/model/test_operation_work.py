"""What a measured operation consists of, if its program did more than its schedule says."""

import pytest
from model_observations import observation

from hpccoll.model.critical_path import PathAddresses, PathMessage
from hpccoll.model.operation_work import has_habits, operation_work
from hpccoll.schedule import Layout
from hpccoll.store.schema import (
    ADDRESSES,
    ADDRESSES_OF_ALL,
    COPIED,
    IN_TURN,
    NOTHING_COPIED,
    PARTS_COPIED,
    PEERS,
    PORT_USE,
    VECTOR_COPIED,
)

SIZE = 6 << 20


def ring(layout=Layout.of(8, 1), **params):  # noqa: B008  a layout is frozen
    """Return the observation of an all-reduce."""
    return observation("all_reduce", "ring", SIZE, 1.0, layout, **params)


def messages(case):
    """Return how many messages of how many bytes are on the path of an operation."""
    work, _ = operation_work(case)
    return {
        (message.nbytes, count) for message, count in work.items() if type(message) is PathMessage
    }


def test_ports_share_the_vector_and_those_used_in_turn_repeat_the_path():
    assert messages(ring()) == {(SIZE // 8, 14)}
    assert messages(ring(ports=6)) == {(SIZE // 6 // 8, 14)}
    assert messages(ring(ports=6, **{PORT_USE: IN_TURN})) == {(SIZE // 6 // 8, 6 * 14)}


@pytest.mark.parametrize(
    ("params", "ports_of_link"),
    [
        ({"torus": "8"}, 1),
        ({"torus": "8", "ports": 5}, 3),
        ({"torus": "8", "ports": 5, PORT_USE: IN_TURN}, 1),
        ({"torus": "8", "ports": 5, PEERS: "torus"}, 3),
        ({"torus": "8", PEERS: "torus"}, 0),
        ({"torus": "2x2"}, 0),
    ],
)
def test_ports_share_the_links_of_a_torus_of_the_nodes(params, ports_of_link):
    work, _ = operation_work(ring(**params))
    (message,) = (kind for kind in work if type(kind) is PathMessage)
    assert message.link_bytes == ports_of_link * message.nbytes


@pytest.mark.parametrize(
    ("copied", "nbytes"), [(NOTHING_COPIED, 0), (VECTOR_COPIED, SIZE), (PARTS_COPIED, SIZE // 6)]
)
def test_a_rank_copies_what_the_results_say(copied, nbytes):
    _, memory = operation_work(ring(ports=6, **{COPIED: copied}))
    assert memory.copied_bytes == nbytes


@pytest.mark.parametrize(
    ("layout", "tier"), [(Layout.of(8, 1), "rack"), (Layout.of(8, 8), "node")], ids=["8x1", "1x8"]
)
def test_addresses_come_before_the_messages_of_the_schedule(layout, tier):
    work, _ = operation_work(ring(layout, **{ADDRESSES: ADDRESSES_OF_ALL}))
    told = {kind for kind in work if isinstance(kind, PathAddresses)}
    assert told == {PathAddresses(tier, 16 << k, 0) for k in range(3)}
    assert messages(ring(layout, **{ADDRESSES: ADDRESSES_OF_ALL})) == messages(ring(layout))


@pytest.mark.parametrize(
    ("params", "more"),
    [
        ({}, False),
        ({"ports": 2}, False),
        ({"ports": 2, "torus": "8"}, False),
        ({"ports": 4, "torus": "8"}, True),
        ({"segment": 4096}, True),
        ({"segment": 4096, "channels": 4}, False),
        ({COPIED: NOTHING_COPIED}, True),
        ({ADDRESSES: ADDRESSES_OF_ALL}, True),
    ],
)
def test_a_program_does_more_if_its_results_say_so(params, more):
    assert has_habits(ring(**params)) == more
