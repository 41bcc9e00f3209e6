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
    assert str(PortBytes(16, 32, 4, 180.0)) == "bytes per port are not significant for so small a vector"
