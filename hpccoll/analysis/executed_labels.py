"""Labels of the executed algorithm: rows of the library are named after what ran, not after what was requested."""

from hpccoll.evidence.verdict import OFFLOADED, UNKNOWN
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row


def executed_name(row: Row) -> str:
    """Return the name of the executed algorithm; ``unknown`` without evidence."""
    return row.executed.partition(" ")[0]


def offloaded(row: Row) -> bool:
    """Return whether the evidence shows that switches reduced: busbw then assumes bytes that no rank sent."""
    return executed_name(row) in OFFLOADED


def fell_back(row: Row) -> bool:
    """Return whether the library ran something other than the request, or left no evidence that it ran the request.

    ``executed`` may have two names: ``sharp (collnet_direct)``.
    """
    return row.requested is not None and f"({row.requested})" not in (
        f"({executed_name(row)})",
        row.executed.partition(" ")[2],
    )


def requested_note(row: Row) -> str:
    """Return what ran, in brackets, with the request if that differs; empty without a request."""
    if row.requested is None:
        return ""
    executed = "not shown" if executed_name(row) == UNKNOWN else f"{executed_name(row)} ran"
    return f"({row.requested} asked, {executed})" if fell_back(row) else f"({executed_name(row)})"


def executed_note(row: Row) -> str:
    """Return what the library ran, for a tooltip; empty for our own schedules, whose name says it."""
    return row.executed if row.algorithm == NATIVE and (row.requested or executed_name(row) != UNKNOWN) else ""
