"""The library's own calls on one process."""

from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from hpccoll.schedule import REDUCTIONS, Layout, all_to_all_v
from hpccoll.schedule.operation import Operation
from hpccoll.transports.mpi.library_calls import CallArguments
from hpccoll.transports.mpi.vendor import MpiVendorTransport

UNEQUAL = all_to_all_v.call(1, traffic="zipf")


def operation(count: int) -> Operation:
    return Operation(UNEQUAL, Layout.of(1), (), count, np.dtype("int8"), REDUCTIONS["sum"], in_place=False)


def test_unequal_blocks_arrive():
    plan = MpiVendorTransport(MPI.COMM_SELF).plan(operation(4), np.arange(4, dtype=np.int8), np.zeros(4, np.int8))
    plan.run()
    assert plan.result.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("count", "dtype"), [(2**31 - 1, "int32"), (2**31, "int64")])
def test_counts_of_unequal_blocks_are_as_wide_as_they_must_be(count, dtype):
    arguments = object.__new__(CallArguments)
    arguments.operation, arguments.comm = operation(count), SimpleNamespace(rank=0)
    assert {numbers.dtype for numbers in arguments._unequal_blocks()} == {np.dtype(dtype)}
