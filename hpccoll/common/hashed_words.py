"""Words that look random and can be computed anywhere: from a seed, a rank and a position."""

import numpy as np
from numpy.typing import NDArray


def hashed_words(
    seed: int, origin: int | NDArray[np.int64], positions: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return hashes (the finaliser of SplitMix64: Steele, Lea, Flood, OOPSLA 2014).

    Args:
        seed: words of different seeds are independent.
        origin: the rank whose words they are, or an array of ranks.
        positions: the positions of the words; their shape and that of ``origin`` are broadcast.
    """
    stream = np.atleast_1d(np.asarray(origin, np.uint64)) + np.uint64((seed << 20) + 1)
    x: NDArray[np.uint64] = positions.astype(np.uint64) + stream * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
