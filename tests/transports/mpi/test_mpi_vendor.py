"""The library's own calls on one process."""

import numpy as np
from mpi4py import MPI

from hpccoll.schedule import REDUCTIONS, Layout, all_to_all_v
from hpccoll.schedule.operation import Operation
from hpccoll.schedule.unequal_blocks import blocks
from hpccoll.transports.mpi.vendor import MpiVendorTransport


def test_counts_of_unequal_blocks_are_64_bit():
    call = all_to_all_v.call(1, traffic="zipf")
    asked = Operation(call, Layout.of(1), (), 4, np.dtype("int8"), REDUCTIONS["sum"], in_place=False)
    plan = MpiVendorTransport(MPI.COMM_SELF).plan(asked, np.arange(4, dtype=np.int8), np.zeros(4, np.int8))
    (_, there, _), (_, here, _) = plan._call.args
    assert {numbers.dtype for numbers in (*there, *here)} == {np.dtype("int64")}
    assert blocks("zipf", 2, 2**31)[0, 0] > 2**31
    plan.run()
    assert plan.result.tolist() == [0, 1, 2, 3]
