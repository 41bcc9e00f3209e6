"""The trees of forced algorithms of MPICH 5.0 and Open MPI 5.0, as their sources have them, for root 0.

MPICH: src/mpi/coll/{allreduce,reduce,reduce_scatter_block}; Open MPI: ompi/mca/coll/base. Algorithms
whose tree follows from several settings or segments have none here.
"""

from collections.abc import Callable, Sequence

from hpccoll.schedule.summation_tree import SummationTree, chain, leaf, node

Trees = Sequence[SummationTree]


def folded_pairs(p):
    """Return the sums with which a power of two of ranks goes on: ranks 2i and 2i + 1 of the first ones add first."""
    power = 1 << p.bit_length() - 1
    excess = p - power
    pairs = [node(leaf(2 * i), leaf(2 * i + 1)) for i in range(excess)]
    return [*pairs, *(leaf(rank) for rank in range(2 * excess, p))]


def doubling(sums):
    """Return the tree of an exchange at distance 1, then 2, 4, ..."""
    while len(sums) > 1:
        sums = [node(sums[i], sums[i + 1]) for i in range(0, len(sums), 2)]
    return sums[0]


def halving(sums):
    """Return the tree of an exchange at half the ranks, then a quarter, ..."""
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [node(sums[i], sums[i + half]) for i in range(half)]
    return sums[0]


def recursive_doubling(p):
    return [doubling(folded_pairs(p))]


def recursive_halving(p):
    return [halving(folded_pairs(p))]


def excess_onto_first(p):
    """Rank p' + i adds to rank i first, where p' is the largest power of two: MPICH's recursive_multiplying."""
    power = 1 << p.bit_length() - 1
    pairs = [node(leaf(i), leaf(power + i)) for i in range(p - power)]
    return [doubling([*pairs, *(leaf(rank) for rank in range(p - power, power))])]


def ring_from(first):
    """Return the trees of a ring in which the sum of block b begins at rank b + first."""
    return lambda p: [chain((block + first + k) % p for k in range(p)) for block in range(p)]


def pairwise(p):
    """Rank r adds what ranks r - 1, r - 2, ... send."""
    return [chain((rank - k) % p for k in range(p)) for rank in range(p)]


def from_the_last(p):
    """The root adds the last rank first, or the sum travels from the last rank to the first."""
    return [chain(reversed(range(p)))]


def binomial(p):
    """A rank adds the subtree at distance 1, then 2, 4, ..."""

    def subtree(rank, size):
        total, distance = leaf(rank), 1
        while distance < size:
            if rank + distance < p:
                total = node(total, subtree(rank + distance, distance))
            distance *= 2
        return total

    return [subtree(0, 1 << (p - 1).bit_length())]


def knomial(p):
    """A rank adds the subtree of about half of the next ranks, then of a quarter, ...: MPICH's knomial_1, k = 2."""

    def subtree(first, ranks):
        total, following, left = leaf(first), first + 1, ranks - 1
        size = 1 << max(0, (ranks - 1).bit_length() - 1)
        while left:
            taken = min(size, left)
            total = node(total, subtree(following, taken))
            following, left, size = following + taken, left - taken, max(1, size // 2)
        return total

    return [subtree(0, p)]


ORDERS: dict[tuple[str, str], dict[str, Callable[[int], Trees]]] = {
    ("mpich", "all_reduce"): {
        "recursive_doubling": recursive_doubling,
        "reduce_scatter_allgather": recursive_doubling,
        "recexch": recursive_doubling,
        "k_reduce_scatter_allgather": recursive_doubling,
        "recursive_multiplying": excess_onto_first,
        "ring": ring_from(1),
        "tree": knomial,
    },
    ("mpich", "reduce"): {"binomial": binomial, "reduce_scatter_gather": recursive_doubling},
    ("mpich", "reduce_scatter"): {"pairwise": pairwise, "recursive_halving": recursive_halving},
    ("openmpi", "all_reduce"): {
        "basic_linear": from_the_last,
        "recursive_doubling": recursive_doubling,
        "ring": ring_from(0),
        "segmented_ring": ring_from(0),
        "rabenseifner": recursive_doubling,
    },
    ("openmpi", "reduce"): {
        "linear": from_the_last,
        "pipeline": from_the_last,
        "binomial": binomial,
        "rabenseifner": recursive_doubling,
    },
    ("openmpi", "reduce_scatter"): {"recursive_halving": recursive_halving},
}
"""By library and collective of ours, the trees of an algorithm on p ranks: one of all elements, or one of each."""


FEWEST_RANKS = {2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 4, 8: 8}
"""By number of ranks, the row of Open MPI's table that holds."""

OPEN_MPI_CHOICES: dict[str, dict[int, tuple[tuple[int, str], ...]]] = {
    "all_reduce": {
        2: (
            (0, "recursive_doubling"),
            (4 << 10, "ring"),
            (8 << 10, "recursive_doubling"),
            (16 << 10, "ring"),
            (64 << 10, "segmented_ring"),
            (256 << 10, "rabenseifner"),
        ),
        4: ((0, "recursive_doubling"), (8 << 10, "rabenseifner")),
        8: ((0, "recursive_doubling"), (8 << 10, "rabenseifner")),
    },
    "reduce": {
        2: (
            (0, "linear"),
            (8, "binary"),
            (16, "pipeline"),
            (32, "linear"),
            (256 << 10, "pipeline"),
            (512 << 10, "chain"),
            (1 << 20, "pipeline"),
        ),
        4: (
            (0, "binary"),
            (4 << 10, "chain"),
            (64 << 10, "binomial"),
            (256 << 10, "linear"),
            (512 << 10, "binomial"),
            (1 << 20, "linear"),
        ),
        8: ((0, "binary"), (8 << 10, "binomial")),
    },
    "reduce_scatter": {  # by bytes of a block
        2: (
            (0, "recursive_doubling"),
            (4, "butterfly"),
            (8, "recursive_halving"),
            (16, "butterfly"),
            (128, "recursive_halving"),
            (256, "butterfly"),
            (4 << 10, "recursive_halving"),
            (8 << 10, "butterfly"),
            (128 << 10, "basic_linear"),
        ),
        4: (
            (0, "recursive_halving"),
            (8, "recursive_doubling"),
            (32, "butterfly"),
            (256, "recursive_halving"),
            (8 << 10, "butterfly"),
            (16 << 10, "recursive_halving"),
            (1 << 20, "basic_linear"),
        ),
        8: (
            (0, "basic_linear"),
            (4, "recursive_halving"),
            (32, "butterfly"),
            (128, "recursive_halving"),
            (512 << 10, "basic_linear"),
        ),
    },
}
"""By collective and fewest ranks, the algorithm from a size on: ompi_coll_tuned_*_intra_dec_fixed of 5.0.

A ring or Rabenseifner's algorithm of fewer elements than ranks stands here as what Open MPI runs
instead: recursive doubling, or linear.
"""


def chosen_algorithms(library: str, collective: str, ranks: int) -> list[tuple[int, str]]:
    """Return which algorithm the table of a library chooses from which size of float32 on, up to 8 ranks of one node.

    MPICH: maint/tuning/coll/mpir/generic.json, for thread level multiple.
    """
    if library == "openmpi":
        rows = OPEN_MPI_CHOICES[collective][FEWEST_RANKS[ranks]]
        blocks = ranks if collective == "reduce_scatter" else 1
        return [(first * blocks, algorithm) for first, algorithm in rows]
    power = 1 << ranks.bit_length() - 1
    halves = max(12, 4 * power)  # an element for each of the power of two of ranks, and above 8 B
    return {
        "all_reduce": [(0, "recursive_doubling"), (halves, "reduce_scatter_allgather")],
        "reduce": [(0, "binomial"), ((2 << 10) + 4, "reduce_scatter_gather")],
        "reduce_scatter": [(0, "recursive_halving"), (512 << 10, "pairwise")],
    }[collective]
