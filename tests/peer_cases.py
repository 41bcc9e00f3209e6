"""What ranks run with the peer kernel: element types and reductions, and a few schedules of different kinds."""

from hpccoll.schedule import BFLOAT16, DTYPES, REDUCTIONS

_ELEMENTS = (*DTYPES, BFLOAT16)
DTYPES_AND_OPS = [
    (dtype, list(REDUCTIONS)[number % len(REDUCTIONS)]) for number, dtype in enumerate(_ELEMENTS)
]
DTYPES_AND_OPS.append(("uint8", "max"))  # barriers move tokens
"""Each element type and each reduction at least once."""

SOME = (
    "all_reduce-ring",
    "all_reduce-recursive_doubling",
    "all_reduce-direct",
    "broadcast-chain",
    "all_gather-bruck",
    "all_to_all-pairwise",
)
