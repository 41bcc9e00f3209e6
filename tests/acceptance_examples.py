"""Verdicts on rows, and what belongs to them, as the judge returns them."""

from row_examples import make_row

from hpccoll.judge.acceptance import Judged
from hpccoll.judge.acceptance_summary import AcceptanceSummary
from hpccoll.judge.causes import Cause
from hpccoll.judge.held import PUBLISHED, RATE, TIME, Expected, HeldVerdict

GB, MIB, GIB = 1e9, 1 << 20, 1 << 30
SOURCES = "nccl-tests#309", "nccl#2409", "dstackai/dstack@511c318", "OpenShift's guide of RDMA"
ACS = Cause(
    "ACS redirects transfers between GPU and NIC",
    "lspci -vvv | grep ACSCtl",
    "half of what is normal",
)
SPLIT = Cause(
    "messages are split over QPs", "env | grep NCCL_IB_SPLIT_DATA_ON_QPS", "half of what is normal"
)
ONE_SOURCE = "figures of one source are too few: two independent ones are needed"


def row_at(rate, nbytes=GIB, **more):
    """Return a row of NCCL on two nodes of 8 H100 with a bus bandwidth."""
    factor = 2 * 15 / 16
    shape = {
        "ranks": 16,
        "nodes": 2,
        "ranks_per_node": 8,
        "transport": "nccl",
        "device": "cuda",
        "kind": "imported",
    }
    return make_row("native", nbytes=nbytes, seconds=nbytes * factor / rate, **shape | more)


def judged(
    rate,
    low=None,
    high=None,
    nbytes=GIB,
    verdict=None,
    reason="",
    causes=(),
    sources=SOURCES,
    **more,
):
    """Return a row with its verdict: by the rules of the range, if it has one, unless another is given."""
    expected = low and Expected(low, (low + high) / 2, high, PUBLISHED, sources, 400 * GB)
    if verdict is None:
        share = rate / low if low else 0
        verdict = HeldVerdict.AS_EXPECTED if share >= 0.95 else HeldVerdict.CANNOT_TELL
        verdict = HeldVerdict.SLOWER if 0 < share < 0.85 else verdict
    return Judged(
        row=row_at(rate, nbytes, **more),
        quantity=RATE,
        measured=rate,
        expected=expected or None,
        verdict=verdict,
        reason=reason,
        causes=tuple(causes),
    )


def timed(seconds, low, high, nbytes=MIB, verdict=HeldVerdict.AS_EXPECTED, **more):
    """Return a row of ours whose time is judged."""
    row = make_row(
        "ring", nbytes=nbytes, seconds=seconds, ranks=4, nodes=4, ranks_per_node=1, **more
    )
    expected = Expected(low, (low * high) ** 0.5, high, "reference", ("a", "b", "c"))
    return Judged(row=row, quantity=TIME, measured=seconds, expected=expected, verdict=verdict)


def of_two_nodes(at_1_gib=180 * GB):
    """Return the verdicts on an output of two nodes of 8 H100, of which the class has figures from 64 MiB on."""
    is_low = at_1_gib < 445 * GB
    causes = (ACS, SPLIT) if is_low else ()
    return [
        judged(0.2 * GB, nbytes=64 << 10, reason="nothing was published of this size"),
        judged(20 * GB, nbytes=4 * MIB, reason="nothing was published of this size"),
        judged(268 * GB, 266 * GB, 273 * GB, 64 * MIB),
        judged(170 * GB if is_low else 390 * GB, 385 * GB, 395 * GB, 256 * MIB, causes=causes),
        judged(at_1_gib, 445 * GB, 459 * GB, GIB, causes=causes),
        judged(
            300 * GB,
            350 * GB,
            360 * GB,
            8 * GIB,
            HeldVerdict.CANNOT_TELL,
            ONE_SOURCE,
            sources=SOURCES[:1],
        ),
    ]


def acceptance(rows=None, **more):
    return AcceptanceSummary(of_two_nodes() if rows is None else rows, "8xh100-400g", **more)
