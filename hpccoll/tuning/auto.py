"""From an ``auto`` case to a concrete one, by a table: before a plan is compiled, and after that nobody knows of it."""

from collections.abc import Sequence
from dataclasses import replace

from hpccoll.errors import BadInputError
from hpccoll.schedule import Layout
from hpccoll.schedule.collective import AUTO
from hpccoll.spec.case import Case
from hpccoll.tuning.setting import Setting
from hpccoll.tuning.table import REMEDY, TuneTable
from hpccoll.units import format_size


def check_table(key: str, table: str | None, algorithms: Sequence[str]) -> None:
    """See that there is a table where ``auto`` is asked for, and only there.

    Raises:
        BadInputError: names the algorithm, or what makes a table.
    """
    if AUTO in algorithms and table is None:
        raise BadInputError(key, None, f"{REMEDY}, for the algorithm {AUTO} to choose by")
    if AUTO not in algorithms and table is not None:
        raise BadInputError(key, table, f"left out: it is for the algorithm {AUTO}, which is not asked for")


def concrete(
    case: Case, layout: Layout, table: TuneTable | None, variant: str | None = None, here: str | None = None
) -> tuple[Case, str | None]:
    """Return what ``case`` comes to on ``layout``, and for ``auto`` why, in words.

    Args:
        case: any.
        layout: of the ranks as they were launched.
        table: what ``auto`` chooses by.
        variant: the environment of a sweep's job.
        here: the conditions that it runs in; where the table was made in others, the words say so.

    Raises:
        BadInputError: where it is ``auto`` and there is no table, or it has no entry for this setting.
    """
    if case.algorithm != AUTO:
        return case, None
    if table is None:
        raise BadInputError("table", None, REMEDY)
    entry = table.entry(Setting.of(case, layout, variant))
    taken = entry.at(case.bytes)
    least, most = entry.measured
    inside = least <= case.bytes <= most
    beyond = "" if inside else f", measured from {format_size(least)} to {format_size(most)}"
    there = table.conditions(entry)
    strange = f", made on {' and '.join(there)}, not on {here}" if here and there and here not in there else ""
    words = f"{taken.choice.words} by the table of {table.created}, {taken.words}{beyond}{strange}"
    params = {**case.params, **dict(taken.choice.params)}
    return replace(case, algorithm=taken.choice.algorithm, transport=taken.choice.transport, params=params), words
