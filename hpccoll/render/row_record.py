"""A row as JSON has it."""

import math

from hpccoll.store.rows import ROW_COLUMNS, Row


def row_record(row: Row) -> dict[str, object]:
    """Return the fields of ``row`` in order, ready for JSON."""
    values = {name: getattr(row, name) for name in ROW_COLUMNS}
    values["params"] = dict(row.params)
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            values[name] = None
    return values
