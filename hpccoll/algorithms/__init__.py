"""The algorithms, one textbook page each. PAGES is the table of contents; a page is imported when it is needed.

On every page p is the number of ranks and S the bytes of the vector. A message costs alpha, a byte
that is sent beta, a byte that is folded gamma; a cost is that of the critical path, where a rank
sends and receives at once, and messages that leave together count one alpha. Channels are segments
of the vector, slices parts of a channel with schedules of their own, units the pieces that a
schedule cuts its slice into (schedule/lanes.py). The actions of a Step happen at once: sends read
the buffers as they were before it.
"""

from importlib import import_module

PAGES = {
    "all_reduce": {
        "ring": "ring",
        "bidirectional_ring": "bidirectional_ring",
        "binomial_tree": "binomial",
        "recursive_doubling": "recursive_doubling",
        "swing": "swing",
        "bine": "bine",
        "bucket": "bucket",
        "direct": "direct",
        "double_binary_tree": "double_binary_tree",
        "hierarchical": "hierarchical",
        "null": "null",
        "rabenseifner": "rabenseifner",
        "recursive_multiplying": "recursive_multiplying",
        "reduce_scatter_all_gather": "reduce_scatter_all_gather",
        "sharp_emulated": "sharp_emulated",
        "star": "star",
        "torus": "torus",
    },
    "reduce_scatter": {
        "ring": "ring",
        "swing": "swing",
        "bine": "bine",
        "bucket": "bucket",
        "direct": "direct",
        "null": "null",
        "pat": "pat",
        "recursive_halving": "recursive_halving",
    },
    "all_gather": {
        "ring": "ring",
        "recursive_doubling": "recursive_doubling",
        "bine": "bine",
        "bruck": "bruck",
        "bucket": "bucket",
        "direct": "direct",
        "null": "null",
        "pat": "pat",
        "sparbit": "sparbit",
    },
    "broadcast": {
        "binomial": "binomial",
        "bine": "bine",
        "bine_large": "bine_large",
        "chain": "chain",
        "direct": "direct_rooted",
        "knomial": "knomial",
        "null": "null",
        "scatter_all_gather": "scatter_all_gather",
    },
    "reduce": {
        "binomial": "binomial",
        "bine": "bine",
        "bine_large": "bine_large",
        "direct": "direct_rooted",
        "knomial": "knomial",
        "null": "null",
        "rabenseifner": "rabenseifner",
        "reduce_scatter_gather": "reduce_scatter_gather",
    },
    "gather": {
        "binomial": "binomial",
        "bine": "bine",
        "direct": "direct_rooted",
        "null": "null",
    },
    "scatter": {
        "binomial": "binomial",
        "bine": "bine",
        "direct": "direct_rooted",
        "null": "null",
    },
    "all_to_all": {
        "bruck": "bruck",
        "direct": "direct",
        "null": "null",
        "pairwise": "pairwise",
    },
    "all_to_all_v": {
        "null": "null",
        "pairwise": "pairwise",
    },
    "barrier": {
        "dissemination": "dissemination",
        "null": "null",
    },
    "send_recv": {
        "ping_pong": "point_to_point",
        "null": "null",
        "train": "train",
    },
    "bidirectional": {
        "exchange": "point_to_point",
        "null": "null",
    },
    "multi_pair": {
        "ping_pong": "multi_pair",
        "exchange": "multi_pair",
        "null": "null",
    },
}
"""The page of each algorithm, by collective and name: what names an algorithm need not import the others.

Lists of algorithms have this order.
"""


def import_page(page: str) -> None:
    """Import a page, which registers its algorithms."""
    import_module(f"{__name__}.{page}")
