"""Values of ranks in an array: tuples of 12 values of 16,384 GPUs take 6 MB for each case."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class RankValues(Sequence[Any]):
    """A value for each rank, None where it is unknown; equal to any sequence with the same values.

    Args:
        values: [rank].
        is_known: whether each of them is known, [rank].
    """

    __slots__ = "_is_known", "_values"
    __hash__ = None  # type: ignore[assignment] # as of the arrays

    def __init__(self, values: NDArray[Any], is_known: NDArray[np.bool]) -> None:
        self._values = values
        self._is_known = is_known

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self)[place]
        return self._values[place].item() if self._is_known[place] else None

    def __iter__(self) -> Iterator[Any]:
        values = self._values.astype(object)
        values[~self._is_known] = None
        return iter(values.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the values as numbers, NaN where they are unknown."""
        return np.where(self._is_known, self._values, np.nan).astype(dtype or np.float64)

    def __repr__(self) -> str:
        return repr(tuple(self))
