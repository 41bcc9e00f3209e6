"""Machines for predictions: a described cluster whose numbers have intervals, and what a fit of one looks like."""

from hpccoll.model.machine_file import MachineFile

LATENCY, LATENCIES = 1e-5, (5e-6, 4e-5)
RATE, RATES = 1e9, (5e8, 1.25e9)
SEGMENT = {
    "latency_s": {"value": LATENCY, "low": LATENCIES[0], "high": LATENCIES[1]},
    "bytes_per_s": {"value": RATE, "low": RATES[0], "high": RATES[1]},
}
EXACT = {"latency_s": LATENCY, "bytes_per_s": RATE}
"""The costs of messages without their intervals."""
NCCL = {
    "architecture": "hopper",
    "channels": 8,
    "intra_bytes_per_s": RATE / 8,
    "inter_bytes_per_s": RATE / 8,
}
MEASURED = {
    "kind": "measured",
    "machine": "here",
    "transport": "mpi",
    "executor": "compiled",
    "nodes": [2, 4],
    "ranks_per_node": [1],
    "smallest_bytes": 1024,
    "largest_bytes": 1 << 20,
    "files": ["a.h5"],
}


def cluster(**sections):
    """Return a described cluster: nodes of one rank, without contention, whose messages take n / RATE + LATENCY."""
    about = {
        "name": "paper",
        "kind": "described",
        "layout": {"ranks_per_node": 1},
        "tiers": {"rack": SEGMENT},
    }
    return MachineFile.of(**(about | sections))


def in_racks(**sections):
    """Return a cluster of nodes of two ranks, two in a rack, with the costs of all tiers."""
    tiers = dict.fromkeys(("node", "rack", "fabric"), SEGMENT)
    return cluster(
        **({"layout": {"ranks_per_node": 2, "nodes_per_rack": 2}, "tiers": tiers} | sections)
    )


def fitted(**sections):
    """Return a machine that was fitted to 2 and 4 nodes."""
    return cluster(**({"name": "here", "kind": "fitted", "measured": MEASURED} | sections))
