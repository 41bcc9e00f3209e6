"""NCCL's own collectives: constants and bad input. test_nccl_on_host.py and test_cases_on_cpu_as_gpu.py call them."""

import numpy as np
import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.schedule import COLLECTIVES, REDUCTIONS, Layout
from hpccoll.schedule.operation import Operation
from hpccoll.transports.nccl.communicator_config import NEWER_CALLS
from hpccoll.transports.nccl.vendor import CALLS, NCCL_OPS, NCCL_TYPES, NEWER, check_placement


def test_types_and_ops_equal_those_of_nccl_h():
    assert NCCL_TYPES == {
        "uint8": 1,
        "int32": 2,
        "int64": 4,
        "float16": 6,
        "float32": 7,
        "float64": 8,
        "bfloat16": 9,
    }
    assert {op: NCCL_OPS[op] for op in ("sum", "prod", "max", "min")} == {
        "sum": 0,
        "prod": 1,
        "max": 2,
        "min": 3,
    }
    assert NCCL_OPS["avg"] == NCCL_OPS["sum"]
    assert set(CALLS) == set(COLLECTIVES)
    assert set(NEWER) == set(NEWER_CALLS) < set(CALLS)


def test_all_to_all_in_place_is_bad_input():
    call = COLLECTIVES["all_to_all"].call(2)
    asked = Operation(
        call, Layout.of(2), (), 4, np.dtype("int32"), REDUCTIONS["sum"], in_place=True
    )
    with pytest.raises(BadInputError, match="in_place of all_to_all of native over nccl"):
        check_placement(asked)
