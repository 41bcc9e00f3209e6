"""The algorithm ``auto``: a tune table replaces an ``auto`` case by a concrete one before its plan is compiled."""

from collections.abc import Sequence
from dataclasses import replace

from hpccoll.analysis.choice_table import VALID_TABLE, TuneTable
from hpccoll.analysis.setting import Setting
from hpccoll.cases.case import Case
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import format_size
from hpccoll.schedule import WORKLOADS, Layout
from hpccoll.schedule.collective import AUTO


def check_table_given(key: str, table: str | None, algorithms: Sequence[str]) -> None:
    """Check that a table is given if, and only if, ``auto`` is requested; ``key`` is the option that takes it.

    Raises:
        BadInputError: if the table is missing, or not needed.
    """
    if AUTO in algorithms and table is None:
        raise BadInputError(key, None, f"{VALID_TABLE}, for the algorithm {AUTO} to choose by")
    if AUTO not in algorithms and table is not None:
        raise BadInputError(key, table, f"left out: it is for the algorithm {AUTO}, which is not requested")


def resolve_auto(
    case: Case, layout: Layout, table: TuneTable | None, variant: str | None = None, conditions: str | None = None
) -> tuple[Case, str | None]:
    """Return the concrete case for ``case`` on ``layout``, and for ``auto`` the reason of the choice.

    A training step remains as it is: the choice is made for each collective of it. If the ``conditions`` of this run
    (machine, MPI library and executor) are others than those of the table, the reason names both.

    Raises:
        BadInputError: if the case is ``auto`` and there is no table, or the table has no entry for this setting.
    """
    if case.algorithm != AUTO or case.collective in WORKLOADS:
        return case, None
    if table is None:
        raise BadInputError("table", None, VALID_TABLE)
    entry = table.entry(Setting.of_case(case, layout, variant))
    chosen = entry.range_of(case.bytes)
    least, most = entry.measured_limits
    inside = least <= case.bytes <= most
    outside = "" if inside else f", extrapolated: measured from {format_size(least)} to {format_size(most)}"
    measured_on = table.conditions(entry)
    differs = conditions is not None and bool(measured_on) and conditions not in measured_on
    other = f", made on {' and '.join(measured_on)}, not on {conditions}" if differs else ""
    reason = f"{chosen.choice.label} by the table of {table.created}, {chosen.label}{outside}{other}"
    params = {**case.params, **dict(chosen.choice.params)}
    return replace(case, algorithm=chosen.choice.algorithm, transport=chosen.choice.transport, params=params), reason
