"""Folds, copies and divisions in GPU memory between messages of MPI, as launches of the fold kernel.

CuPy's ufuncs would flush subnormal numbers to zero, because CuPy compiles with -ftz=true
(cupy/cuda/compiler.py of CuPy 14.2); the fold kernel keeps them. One launch does all work of a step
that does not depend on other work of it.
"""

from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from hpccoll.executor.lowered_step import (
    LocalCall,
    LocalCopy,
    LocalFold,
    LocalScale,
    LocalWork,
    LoweredStep,
)
from hpccoll.schedule.operation import Array, Operation
from hpccoll.transports.nccl.fold import Fold, fold_waves, launches_at
from hpccoll.transports.shared_lowering import Span
from hpccoll.transports.transport_interface import address

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

MEMORY = "memory"
"""The buffer of all spans: the whole address space, whose first element is at address 0."""


def launch_folds(gpu: "Gpu", operation: Operation, steps: Sequence[LoweredStep]) -> None:
    """Replace the work of ``steps`` by calls that queue it on the stream of ``gpu``; one copy uploads all tables."""
    phases: list[list[LocalWork]] = []
    for step in steps:
        phases += [step.before, step.after]
    waves_of_phases = [fold_waves(map(_as_fold, phase)) for phase in phases]
    all_waves = list(chain.from_iterable(waves_of_phases))
    launches = iter(_launches(gpu, operation, all_waves))
    for phase, waves in zip(phases, waves_of_phases, strict=True):
        phase[:] = islice(launches, len(waves))


def division(gpu: "Gpu", operation: Operation, values: Array) -> Callable[[], object]:
    """Return the call that queues the division of a sum by the number of workers, in place."""
    fold = _as_fold(LocalScale(operation.reduction, values, operation.layout.workers))
    (launch,) = _launches(gpu, operation, [[fold]])
    return launch.function


def _launches(gpu: "Gpu", operation: Operation, waves: Sequence[Sequence[Fold]]) -> list[LocalCall]:
    dtype = operation.dtype
    launches = launches_at(
        gpu, dtype.name, operation.reduction.name, dtype.itemsize, {MEMORY: 0}, waves
    )
    return list(map(LocalCall, launches))


def _as_fold(work: LocalWork) -> Fold:
    """Return the fold that does the work of a step.

    Raises:
        TypeError: for a call, which is work of the host.
    """
    match work:
        case LocalCopy():
            return Fold(_span(work.target), (_span(work.source),))
        case LocalFold():
            return Fold(_span(work.target), (_span(work.a), _span(work.b)))
        case LocalScale():
            span = _span(work.target)
            return Fold(span, (span,), work.workers)
    raise TypeError(f"{work} is not work in GPU memory")


def _span(array: Array) -> Span:
    start = address(array) // array.dtype.itemsize
    return Span(MEMORY, start, start + len(array))
