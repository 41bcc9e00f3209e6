"""Which ranks come late to the collectives of a workload, in words."""

from collections.abc import Sequence

from hpccoll.common.text import first_few, join_words
from hpccoll.store.rows import Row
from hpccoll.store.waiting import is_lag


def late_words(row: Row) -> str:
    """Return which ranks of a workload are late; empty if that is not known."""
    if row.late_ranks:
        return are_late_words([f"rank {rank}" for rank in row.late_ranks])
    if row.last_share is None:
        return ""
    if is_lag(row.last_s, row.median_s):
        return "which rank is late is not clear"
    return "no rank is late"


def are_late_words(names: Sequence[str]) -> str:
    """Return that ranks with these names are late; of many, the first few are named."""
    verb = "is" if len(names) == 1 else "are"
    return f"{join_words(first_few(names, 3, 'rank'))} {verb} late"
