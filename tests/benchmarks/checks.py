"""The kernels that fill buffers and count wrong elements: every fault of the matrix, and sizes to 1 GiB."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from here import Here
from verdicts import Verdict, holds, not_run, right

from hpccoll.common.units import format_size
from hpccoll.measure.run.payload import Payload
from hpccoll.measure.run.result_check_gpu import GpuCheck
from hpccoll.schedule import COLLECTIVES, REDUCTIONS, dtype_of

SIZES = 1, 17, 4096, (1 << 20) + 1, 64 << 20, 1 << 30
ELEMENTS = "float16", "int32", "float64"
"""Types of every size: which one of a size it is, only the values that fill a buffer know."""
MATRIX_RANKS = 3
FEW = SIZES[:4]
"""Those that the test library takes, whose kernels run one thread after the other."""


def filled(gpu: Any, element: str, nbytes: int) -> tuple[GpuCheck, Any]:
    """Return the check of a buffer of so many bytes, in place on one rank, and the buffer."""
    dtype = dtype_of(element)
    count = max(1, nbytes // dtype.itemsize)
    dst = gpu.empty(count, dtype)
    payload = Payload(COLLECTIVES["all_reduce"].call(1), REDUCTIONS["sum"], dtype, count, 0)
    return GpuCheck(payload, dst[:0], dst, dst, gpu, in_place=True), dst


def faults_missed(here: Here, element: str, nbytes: int) -> int:
    """Return how many of the wrong elements that are planted in a buffer are not counted, or counted twice."""
    gpu = here.gpu
    check, dst = filled(gpu, element, nbytes)
    missed, count = 0, len(dst)
    for turn in range(3):
        check.reset()
        missed += check.wrong()
        places = sorted({0, turn % count, count // 2, count - 1})
        for place in places:
            part = dst[place : place + 1].view(f"u{dst.dtype.itemsize}")
            part.set(gpu.download(part) ^ np.ones(1, part.dtype), stream=gpu.stream)
        missed += abs(check.wrong() - len(places))
    return missed


def check(here: Here) -> Iterator[Verdict]:
    """Single elements in buffers of every size, and the fault matrix of tests/injected_faults.py."""
    for nbytes in FEW if here.on_host else SIZES:
        missed = sum(faults_missed(here, element, nbytes) for element in ELEMENTS)
        yield right(
            f"fill and count of {format_size(nbytes)}, {', '.join(ELEMENTS)}: faults not counted",
            missed,
        )
    if not here.on_host:  # tests/measure/test_result_check_gpu.py has it
        yield from fault_matrix(here)


def fault_matrix(here: Here) -> Iterator[Verdict]:
    """Every fault of results of a few ranks, by types of every size; pytest -m gpu has the whole matrix."""
    from injected_faults import all_are_seen, settings

    for element in ELEMENTS:
        what = f"every fault of the matrix is counted, {MATRIX_RANKS} ranks, {element}"
        if here.seconds_left < 0:
            yield not_run(what, "no time was left")
            continue
        unseen = ""
        try:
            for setting, faults in settings(MATRIX_RANKS, element):
                all_are_seen(setting, faults, here.gpu)
        except AssertionError as error:
            unseen = str(error) or "a fault is not counted"
        yield holds(what, not unseen, unseen)
