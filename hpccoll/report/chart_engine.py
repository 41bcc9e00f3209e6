"""The engine that draws charts: vl-convert, which runs Vega in V8."""

import errno
import mmap
from types import ModuleType

from hpccoll.errors import ResourceError, describe_errno

V8_BYTES = 64 << 30
"""The address space that V8 reserves when it starts, measured with vl-convert 1.8; little of it is ever used."""


def chart_engine() -> ModuleType:
    """Return vl_convert after a check that V8 gets its address space: without it, V8 ends the process by a signal.

    Raises:
        ResourceError: if the limit of the address space is too low.
    """
    try:
        mmap.mmap(-1, V8_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()  # reserved, not used
    except OSError as error:
        reason = describe_errno(error.errno or errno.ENOMEM)
        remedy = f"they need {V8_BYTES >> 10} KiB of address space; do: ulimit -v unlimited"
        raise ResourceError("charts", f"{reason}; {remedy}") from None
    import vl_convert

    return vl_convert
