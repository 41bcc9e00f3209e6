"""PyTorch's names of collectives and of types of elements, and ours."""

import re
from functools import lru_cache

_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all_v",
    "allreducebarrier": "barrier",
    "send": "send",
    "recv": "receive",
}
"""By the letters of the name without its form; other names are ours too: broadcast, reduce, gather, barrier."""

_FORM = re.compile(r"(base|into|tensor|single|coalesced|list)+$")

_DTYPES = {
    "float": ("float32", 4), "double": ("float64", 8), "half": ("float16", 2), "bfloat16": ("bfloat16", 2),
    "longint": ("int64", 8), "long": ("int64", 8), "int": ("int32", 4), "short": ("int16", 2),
    "shortint": ("int16", 2), "char": ("int8", 1), "signedchar": ("int8", 1), "byte": ("uint8", 1),
    "unsignedchar": ("uint8", 1), "bool": ("bool", 1), "float8_e4m3fn": ("float8_e4m3fn", 1),
    "float8_e5m2": ("float8_e5m2", 1), "complexfloat": ("complex64", 8), "complexdouble": ("complex128", 16),
}  # fmt: skip
"""Of c10::ScalarType, and of the C++ type, which profilers write: our name, and the bytes of an element."""


_NAMES = 1 << 10
"""The number of names that are remembered: every operation of a job has one of a few."""


@lru_cache(_NAMES)
def collective_of_torch(name: str) -> str:
    """Return our name of a collective of PyTorch, such as ``nccl:_all_gather_base``; an unknown one as it is."""
    bare = name.rpartition(":")[2].split(" ")[0]
    letters = _FORM.sub("", re.sub("[^a-z]", "", bare.lower()))
    return _COLLECTIVES.get(letters, bare.strip("_"))


@lru_cache(_NAMES)
def dtype_of_torch(name: str) -> tuple[str, int] | None:
    """Return the type of elements of PyTorch, such as ``BFloat16`` or ``long int``, and its bytes; None if unknown."""
    return _DTYPES.get(name.rpartition("::")[2].replace(" ", "").lower())
