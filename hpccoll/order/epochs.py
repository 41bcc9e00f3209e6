"""Epochs: calls on a communicator, one after the other, that sum alike."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Epoch(NamedTuple):
    """Calls, numbered from 1, that sum alike."""

    first: int
    last: int
    is_final: bool  # whether they sum as all later calls do


def epochs_of_flags(continues: NDArray[np.integer], is_final: NDArray[np.integer]) -> list[Epoch]:
    """Return the epochs of calls.

    Args:
        continues: whether each call has the bits of the one before [call].
        is_final: whether it has those of all later calls [call].
    """
    changes = np.flatnonzero(continues[1:] == 0) + 1
    starts = [0, *changes.tolist(), len(continues)]
    return [Epoch(first + 1, last, bool(is_final[first])) for first, last in pairwise(starts)]
