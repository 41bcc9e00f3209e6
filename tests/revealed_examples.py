"""Records of revealed orders."""

from hpccoll.order.order_file import (
    CallEpoch,
    OrderOfCollective,
    OrderOfSizes,
    ProbedSize,
    RevealedOrder,
)

ONE = "((0 1) 2)"
CHAINS = ONE, "(0 (1 2))", "((0 2) 1)"


def epoch(first_call, last_call, trees=(), *, as_later=True):
    """Return calls that sum alike, by default as all later ones do."""
    return CallEpoch(first_call=first_call, last_call=last_call, as_later=as_later, trees=trees)


SAME = (epoch(1, 100),)
OTHERWISE = epoch(1, 4, ("(0 (1 2))",), as_later=False), epoch(5, 100)


def order_of_sizes(sizes, **changes):
    """Return a range of sizes with one tree."""
    values = {
        "sizes": tuple(ProbedSize(bytes=size, digest=f"{size:016x}") for size in sizes),
        "kinds": ("tree",),
        "trees": (ONE,),
        "blocks": ((0, 0),),
        "ranks_agree": True,
        "in_place_agrees": True,
        "in_place_trees": (),
        "repeats": True,
        "history": SAME,
        "as_scheduled": None,
        "same_bits_as": ("ring", "star"),
    }
    return OrderOfSizes(**{**values, **changes})


def ranges_of_chains():
    """Return a range with one tree, whose first calls add otherwise, and one with a chain for each block."""
    blocks = (0, 0), (4, 1), (8, 2)
    chains = order_of_sizes([48, 64], trees=CHAINS, blocks=blocks, same_bits_as=("ring",))
    return order_of_sizes([4, 8, 44], history=OTHERWISE), chains


def revealed(ranges=None, **changes):
    """Return the order of native all-reduces of three ranks."""
    values = {
        "algorithm": "native",
        "created": "2026-11-29T12:00:00+00:00",
        "hpccoll": "0.2.0",
        "library": "MPICH 5.0.2",
        "nccl": None,
        "thread_level": "funneled",
        "machine": "node1: 2 CPUs",
        "hosts": ("node1",),
        "ranks": 3,
        "nodes": 1,
        "ranks_per_node": (3,),
        "mapping": "block",
        "transport": "mpi",
        "device": "cpu",
        "dtype": "float32",
        "root": 0,
        "params": {},
        "variant": None,
        "variables": {},
        "collectives": (
            OrderOfCollective(collective="all_reduce", ranges=tuple(ranges or ranges_of_chains())),
        ),
    }
    return RevealedOrder(**{**values, **changes})
