"""The engine that draws charts: vl-convert, which runs Vega in V8."""

from functools import cache
from types import ModuleType

from hpccoll.common.errors import check_resources

V8_BYTES = 64 << 30
"""The address space that V8 reserves when it starts, measured with vl-convert 1.8; little of it is ever used."""
FILES, THREADS = 16, 16
"""More files than V8 and the runtime around it open, and about as many threads as they start."""


@cache  # V8 has reserved its address space once it has started
def chart_engine() -> ModuleType:
    """Return vl_convert after a check that V8 can start: it ends the process by a signal otherwise.

    Raises:
        ResourceError: if a limit of the process is too low.
    """
    check_resources("charts", V8_BYTES, files=FILES, threads=THREADS)
    import vl_convert

    return vl_convert
