"""What ran: a row of the library's own is named and drawn as what its evidence says, never as what was asked for."""

from hpccoll.evidence.verdict import OFFLOADED, UNKNOWN
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row


def executed_name(row: Row) -> str:
    """Return what ran in one word, ``unknown`` without evidence."""
    return row.executed.partition(" ")[0]


def offloaded(row: Row) -> bool:
    """Return whether switches reduced, as far as the evidence goes: busbw then supposes bytes that were not sent."""
    return executed_name(row) in OFFLOADED


def fell_back(row: Row) -> bool:
    """Return whether something else ran than was asked of the library, or nothing shows that it was that.

    What ran may be said in two words: ``sharp (collnet_direct)``.
    """
    return row.requested is not None and f"({row.requested})" not in (
        f"({executed_name(row)})",
        row.executed.partition(" ")[2],
    )


def requested_note(row: Row) -> str:
    """Return what ran, with what was asked where that is something else; nothing where nothing was asked."""
    if row.requested is None:
        return ""
    became = "not shown" if executed_name(row) == UNKNOWN else f"{executed_name(row)} ran"
    return f"({row.requested} asked, {became})" if fell_back(row) else f"({executed_name(row)})"


def executed_note(row: Row) -> str:
    """Return what is to be said of ``row`` beside its name: what the library ran; our schedules are their names."""
    return row.executed if row.algorithm == NATIVE and (row.requested or executed_name(row) != UNKNOWN) else ""
