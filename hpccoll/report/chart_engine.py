"""The engine that draws charts: vl-convert, which runs Vega in V8."""

from types import ModuleType

from hpccoll.errors import check_address_space

V8_BYTES = 64 << 30
"""The address space that V8 reserves when it starts, measured with vl-convert 1.8; little of it is ever used."""


def chart_engine() -> ModuleType:
    """Return vl_convert after a check that V8 gets its address space: without it, V8 ends the process by a signal.

    Raises:
        ResourceError: if the limit of the address space is too low.
    """
    check_address_space("charts", V8_BYTES)
    import vl_convert

    return vl_convert
