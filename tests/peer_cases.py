"""The element types and reductions with which ranks run the peer kernel: each of both at least once."""

from hpccoll.schedule import BFLOAT16, DTYPES, REDUCTIONS

_ELEMENTS = (*DTYPES, BFLOAT16)
DTYPES_AND_OPS = [
    (dtype, list(REDUCTIONS)[number % len(REDUCTIONS)]) for number, dtype in enumerate(_ELEMENTS)
]
DTYPES_AND_OPS.append(("uint8", "max"))  # barriers move tokens
