"""Port counters as evidence: what they prove, contradict, and cannot decide."""

import pytest

from hpccoll.evidence.port_bytes import MIN_BYTES, PortBytes

MIB = 1 << 20


@pytest.mark.parametrize(
    ("ports", "significant", "proves", "contradicts"),
    [
        ((MIB, 8, 8, None), False, False, False),
        ((MIN_BYTES - 1, 8, 8, 1e9), False, False, False),
        # a ring
        ((MIB, 8, 8, 1.02 * MIB), True, True, False),
        ((MIB, 8, 8, 1.75 * MIB), True, False, True),
        ((MIB, 8, 8, 0.85 * MIB), True, False, False),  # counters that are incomplete
        ((MIB, 8, 2, 1.02 * MIB), True, False, False),
        ((MIB, 2, 2, 1.0 * MIB), True, False, False),
        # a small vector in packets, not counted, the least without SHARP, headers that dominate,
        # incomplete counters
        ((512, 8, 8, 592, 2.0), False, True, False),
        ((512, 8, 8, 592), False, False, False),
        ((512, 8, 8, 1.75 * 512 + 96, 4.0), False, False, False),
        ((8, 8, 8, 88, 2.0), False, False, False),
        ((512, 8, 8, 400.0, 2.0), False, False, False),
        *(((512, 8, nodes, 592, 2.0), False, False, False) for nodes in (2, None)),
    ],
)
def test_one_vector_on_three_nodes_proves_sharp_and_more_contradict_it(
    ports, significant, proves, contradicts
):
    ports = PortBytes(*ports)
    assert (ports.is_significant, ports.proves_sharp, ports.contradicts_sharp) == (
        significant,
        proves,
        contradicts,
    )


def test_the_text_names_the_measured_and_the_expected_vectors():
    """The golden text of the renderer, for each case."""
    several = (
        (MIB, 4, 4, 1.5 * MIB),
        (MIB, 16, 2, 1.875 * MIB),
        (MIB, 8, 8, 0.5 * MIB),
        (MIB, 8, 8, None),
    )
    packets = (16, 32, 4, 180.0, 2.0), (512, 8, 8, 620.0, 2.0)
    assert [str(PortBytes(*each)) for each in (*several, *packets)] == [
        "1.50 vectors left a node for each operation, where SHARP sends 1 and anything else 1.50",
        "1.88 vectors left a node for each operation, where SHARP sends 1 and a ring 1.88",
        "0.50 vectors left a node for each operation, fewer than with any algorithm: the port counters are incomplete",
        "bytes per port are unknown",
        "180 B in 2.0 packets left a node for each operation, too little to be significant",
        "1.12 vectors in 2.0 packets left a node for each operation, where SHARP sends 1 and anything else 1.75",
    ]
