import numpy as np
import pytest

from hpccoll.schedule import DTYPES, REDUCTIONS


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_average_divides_at_the_end_and_integers_round_down(dtype):
    values = np.array([6, 7, -7]).astype(dtype)
    REDUCTIONS["avg"].scale(values, 2)
    assert values.tolist() == ([3, 3, -4] if values.dtype.kind == "i" else [3, 3.5, -3.5])


def test_only_an_average_is_scaled():
    for name in set(REDUCTIONS) - {"avg"}:
        values = np.array([6.0])
        REDUCTIONS[name].scale(values, 2)
        assert values.tolist() == [6.0]
