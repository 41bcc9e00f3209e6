"""The algorithms, one textbook page each. PAGES is the table of contents; a page that it names is registered.

On every page p is the number of ranks and S the bytes of the vector. A message costs alpha, a byte that is sent beta,
a byte that is folded gamma; a cost is that of the critical path, where a rank sends and receives at once, and messages
that leave together count one alpha. Channels are segments of the vector, slices parts of a channel with schedules of
their own, units the pieces that a schedule cuts its slice into (schedule/lanes.py). The actions of a Step happen at
once: sends read the buffers as they were before it.
"""

from importlib import import_module

PAGES = (
    "bidirectional_ring",
    "bine",
    "binomial",
    "bruck",
    "chain",
    "direct",
    "direct_rooted",
    "dissemination",
    "double_binary_tree",
    "hierarchical",
    "knomial",
    "multi_pair",
    "null",
    "pairwise",
    "pat",
    "point_to_point",
    "rabenseifner",
    "recursive_doubling",
    "recursive_halving",
    "recursive_multiplying",
    "reduce_scatter_all_gather",
    "ring",
    "scatter_all_gather",
    "sharp_emulated",
    "star",
    "swing",
    "torus",
    "train",
)

for page in PAGES:
    import_module(f"{__name__}.{page}")
