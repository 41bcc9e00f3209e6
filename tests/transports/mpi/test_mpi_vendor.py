"""The library's own calls on one process."""

from types import SimpleNamespace

import numpy as np
import pytest

from hpccoll.schedule import all_to_all_v
from hpccoll.transports.mpi.library_calls import CallArguments


@pytest.mark.parametrize(("count", "dtype"), [(2**31 - 1, "int32"), (2**31, "int64")])
def test_counts_of_unequal_blocks_are_as_wide_as_they_must_be(count, dtype):
    arguments, call = object.__new__(CallArguments), all_to_all_v.call(1, traffic="zipf")
    arguments.operation, arguments.comm = (
        SimpleNamespace(call=call, count=count),
        SimpleNamespace(rank=0),
    )
    assert {numbers.dtype for numbers in arguments._unequal_blocks()} == {np.dtype(dtype)}
