"""Port counters as evidence: what they prove, contradict, and cannot decide."""

import pytest

from hpccoll.evidence.port_bytes import MIN_BYTES, PortBytes

MIB = 1 << 20


@pytest.mark.parametrize(
    ("ports", "significant", "proves", "contradicts"),
    [
        (PortBytes(MIB, 8, 8, None), False, False, False),
        (PortBytes(MIN_BYTES - 1, 8, 8, 1e9), False, False, False),
        (PortBytes(MIB, 8, 8, 1.02 * MIB), True, True, False),
        (PortBytes(MIB, 8, 8, 1.75 * MIB), True, False, True),
        (PortBytes(MIB, 8, 8, 0.85 * MIB), True, False, False),
        (PortBytes(MIB, 8, 2, 1.02 * MIB), True, False, False),
        (PortBytes(MIB, 2, 2, 1.0 * MIB), True, False, False),
    ],
    ids=["not counted", "small", "one vector", "a ring", "incomplete", "two nodes", "two ranks"],
)
def test_one_vector_on_three_nodes_proves_sharp_and_more_contradict_it(ports, significant, proves, contradicts):
    assert (ports.is_significant, ports.proves_sharp, ports.contradicts_sharp) == (significant, proves, contradicts)


def test_the_text_names_the_measured_and_the_expected_vectors():
    """The golden text of the renderer, for each case."""
    texts = [
        str(PortBytes(MIB, *of)) for of in ((4, 4, 1.5 * MIB), (16, 2, 1.875 * MIB), (8, 8, 0.5 * MIB), (8, 8, None))
    ]
    assert texts == [
        "1.50 vectors left a node for each operation, where SHARP sends 1 and anything else 1.50",
        "1.88 vectors left a node for each operation, where SHARP sends 1 and a ring 1.88",
        "0.50 vectors left a node for each operation, fewer than with any algorithm: the port counters are incomplete",
        "bytes per port are unknown",
    ]
    assert str(PortBytes(16, 32, 4, 180.0, 2.0)) == (
        "180 B in 2.0 packets left a node for each operation, too little to be significant"
    )
    assert str(PortBytes(512, 8, 8, 620.0, 2.0)) == (
        "1.12 vectors in 2.0 packets left a node for each operation, where SHARP sends 1 and anything else 1.75"
    )


@pytest.mark.parametrize(
    ("size", "sent", "packets", "proves"),
    [
        (512, 512 + 2 * 40, 2.0, True),
        (512, 512 + 2 * 40, None, False),
        (512, 1.75 * 512 + 4 * 24, 4.0, False),
        (8, 8 + 2 * 40, 2.0, False),
        (512, 400.0, 2.0, False),
    ],
    ids=["one vector", "packets not counted", "the least without SHARP", "headers dominate", "incomplete"],
)
def test_too_few_bytes_of_a_small_vector_prove_sharp_if_packets_are_counted(size, sent, packets, proves):
    ports = PortBytes(size, 8, 8, sent, packets)
    assert (ports.proves_sharp, ports.contradicts_sharp) == (proves, False)


@pytest.mark.parametrize("nodes", [1, 2, None])
def test_on_up_to_two_nodes_small_vectors_prove_nothing(nodes):
    assert not PortBytes(512, 8, nodes, 512 + 2 * 40, 2.0).proves_sharp
