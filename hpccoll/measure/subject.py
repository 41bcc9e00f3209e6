"""The subject: a case made ready to run, with the buffers it runs on and the check of its result.

The only place that knows algorithms and transports both.
"""

from collections.abc import Mapping

import numpy as np
from mpi4py import MPI

import hpccoll.algorithms  # noqa: F401  fills the registry
from hpccoll.case import Case, Parameter
from hpccoll.errors import BadInputError
from hpccoll.measure.payload import Check, Payload
from hpccoll.schedule import DTYPES, REDUCTIONS, Algorithm, Collective, Layout, collective, count
from hpccoll.transports.mpi import Mpi, default_channels
from hpccoll.transports.operation import Operation, Transport
from hpccoll.transports.vendor import VendorMpi

NATIVE = "native"
"""The name of the library's own collective among the algorithms."""

TRANSPORTS = ("mpi",)
DEVICES = ("cpu",)
PLAN_PARAMETERS = ("channels", "window")
"""Parameters of every scheduled case: the pieces that advance independently, and how many of them at once."""


def check_case(case: Case) -> None:
    """See that every word of ``case`` is known.

    Raises:
        BadInputError: names the word, and the ones that would do.
    """
    family = collective(case.collective)
    choices = {
        "algorithm": (case.algorithm, (*family.algorithms, NATIVE)),
        "transport": (case.transport, TRANSPORTS),
        "device": (case.device, DEVICES),
        "dtype": (case.dtype, DTYPES),
        "op": (case.op, tuple(REDUCTIONS) if family.reduces else (None,)),
    }
    for key, (value, valid) in choices.items():
        if value not in valid:
            raise BadInputError(key, value, valid)
    if family.elements(case.bytes, np.dtype(case.dtype).itemsize, 1) < 1:
        raise BadInputError("bytes", case.bytes, f"at least one {case.dtype}, {np.dtype(case.dtype).itemsize} bytes")
    algorithm = None if case.algorithm == NATIVE else family.algorithm(case.algorithm)
    for name, value in case.params.items():
        known = (*PLAN_PARAMETERS, *algorithm.parameters) if algorithm else ()
        if name not in known:
            raise BadInputError(f"parameter of {case.algorithm}", name, known or "it has no parameters")
        if name in PLAN_PARAMETERS and not (isinstance(value, int) and value > 0):
            raise BadInputError(f"parameter {name}", value, "a whole number from 1 up")


def unmet(case: Case, layout: Layout) -> str | None:
    """Return why ``case`` cannot run on ``layout``, or None where it can."""
    if case.algorithm == NATIVE:
        return None
    return collective(case.collective).algorithm(case.algorithm).unmet(layout)


def memory_needed(case: Case) -> int:
    """Return the bytes that one rank takes for ``case``: both buffers, scratch, what is expected, and the check."""
    return int(case.bytes * (6 + 1 / np.dtype(case.dtype).itemsize))


class CaseSubject:
    """A case compiled for the ranks of ``comm``, with its buffers; close it when it is measured."""

    def __init__(self, comm: MPI.Intracomm, layout: Layout, case: Case) -> None:
        self.case, self.layout = case, layout
        self.family: Collective = collective(case.collective)
        self.algorithm: Algorithm | None = None if case.algorithm == NATIVE else self.family.algorithm(case.algorithm)
        self.floor = self.algorithm is not None and self.algorithm.floor
        dtype, p = np.dtype(case.dtype), layout.workers
        elements = self.family.elements(case.bytes, dtype.itemsize, p)
        self.bytes = elements * self.family.blocks(p) * dtype.itemsize
        reduction = REDUCTIONS[case.op or "sum"]
        self.params = self._parameters(p)
        own = {name: value for name, value in case.params.items() if name not in PLAN_PARAMETERS}
        self.operation = Operation(
            collective=self.family,
            layout=layout,
            schedules=self.algorithm.slices(layout, **own) if self.algorithm else (),
            count=elements,
            dtype=dtype,
            reduction=reduction,
            in_place=case.in_place or self.floor,  # nothing is nothing in either place
            channels=int(self.params.get("channels", 1)),
            window=int(self.params.get("window", 1)),
        )
        transport: Transport = Mpi(comm) if self.algorithm else VendorMpi(comm)
        self.payload = Payload(self.family, reduction, dtype, elements, p, comm.rank, self.floor)
        self.src = transport.empty(self.operation.elements("src"), dtype)
        self.dst = transport.empty(self.operation.elements("dst"), dtype)
        check = Check(self.payload, self.src, self.dst, in_place=case.in_place)
        self.plan = transport.plan(self.operation, self.src, self.dst)
        # Bound once: a call through this object would be timed.
        self.reset, self.run, self.wrong, self.close = check.reset, self.plan.run, check.wrong, self.plan.close

    def _parameters(self, p: int) -> Mapping[str, Parameter]:
        """Return all parameters with their values, defaults included."""
        if self.algorithm is None or self.floor:
            return dict(self.case.params)
        channels = int(self.case.params.get("channels", default_channels(self.bytes, p)))
        return {"channels": channels, "window": min(channels, 2), **self.algorithm.parameters, **self.case.params}

    def diagnose(self) -> str | None:
        """Return what is wrong with the buffer as it is now, in words."""
        return self.payload.diagnose(self.dst, in_place=self.case.in_place)

    def wire_bytes(self) -> int | None:
        """Return the bytes between nodes per operation by count; None for a library's own algorithm."""
        if self.algorithm is None:
            return None
        if self.layout.nodes == 1 or not self.operation.schedules:
            return 0
        return count(self.operation.schedules, self.operation.cut).wire_bytes

    def evidence(self) -> tuple[str, str | None]:
        """Return the algorithm that ran, as far as can be told, and how it can be told."""
        if self.algorithm is None:
            return "unknown", None
        return self.algorithm.name, "its schedule was run by hpccoll; all ranks agreed on the messages before the start"
