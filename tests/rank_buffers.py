"""The buffers of one rank of any collective with their check, as a prepared case has them, for tests of checks."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from hpccoll.measure.run.guards import guards_of
from hpccoll.measure.run.payload import Payload, concatenated
from hpccoll.measure.run.result_check import Check
from hpccoll.schedule import COLLECTIVES, DTYPES, REDUCTIONS, Layout, dtype_of
from hpccoll.schedule.operation import Operation
from hpccoll.schedule.unequal_blocks import PATTERNS
from hpccoll.transports.guarded_memory import allocate_guarded

AGGREGATORS = 1


def payload(name, p, me, *, root=0, op="sum", dtype="float32", count=40, **arguments):
    family = COLLECTIVES[name]
    call = family.call(p, root if family.rooted else None, **arguments)
    reduction = REDUCTIONS["max" if family.idempotent else op]
    return Payload(call, reduction, dtype_of(dtype), p if family.token else count, me)


@dataclass
class Bench:
    """The buffers of one rank, as a subject has them, and their check."""

    payload: Payload
    in_place: bool
    front: bool = True

    def __post_init__(self):
        one = self.payload
        self.operation = Operation(
            call=one.call,
            layout=Layout.of(one.p, aggregators=AGGREGATORS),
            slices=(),
            count=one.count,
            dtype=one.dtype,
            reduction=one.reduction,
            in_place=self.in_place,
        )
        self.guarded = [
            allocate_guarded(
                np.ones, self.operation.elements(name, one.me), one.dtype, front=self.front
            )
            for name in ("src", "dst")
        ]
        self.src, self.dst = (made.buffer for made in self.guarded)
        self.guards = [*guards_of(self.guarded, one.me)]
        self.filled_units = self.operation.span(
            "dst", one.filled_units(in_place=self.in_place), one.me
        )
        self.result = self.operation.result(self.dst, one.me)
        self.check = Check(
            one,
            self.src,
            self.dst[self.filled_units],
            self.result,
            in_place=self.in_place,
            guards=self.guards,
        )
        self.check.reset()
        self.right = self.expected()

    def expected(self, **other):
        """Return a right result, of this operation or of another one."""
        of = replace(self.payload, **{"generation": self.check.generation, **other})
        return concatenated(of.expected(in_place=self.in_place), of.dtype)

    def wrong(self, result):
        """Return how many elements the check finds wrong in ``result``."""
        np.copyto(self.result, result)
        return self.check.wrong()


@st.composite
def benches(
    draw, names=tuple(COLLECTIVES), least=1, *, workers_only=False, dtypes=DTYPES, most=150
):
    family = COLLECTIVES[draw(st.sampled_from(names))]
    p = draw(
        st.integers(max(least, 2 if family.arguments.keys() & {"peer", "concurrent"} else 1), 6)
    )
    root = draw(st.integers(0, p - 1))
    arguments = {}
    if "traffic" in family.arguments:
        arguments["traffic"] = draw(st.sampled_from([*PATTERNS]))
    if "peer" in family.arguments:
        arguments["peer"] = draw(st.integers(0, p - 1).filter(lambda peer: peer != root))
    if "concurrent" in family.arguments:
        arguments["concurrent"] = draw(st.integers(0, p // 2))
    one = payload(
        family.name,
        p,
        draw(st.integers(0, p - workers_only)),
        root=root,
        op=draw(st.sampled_from([*REDUCTIONS])),
        dtype=draw(st.sampled_from(dtypes)),
        count=draw(st.integers(32, most)),
        **arguments,
    )
    return Bench(one, family.in_place and draw(st.booleans()), front=draw(st.booleans()))
