"""Rows as an Apache Parquet file, for DuckDB, pandas and data lakes."""

import io
from dataclasses import fields
from types import NoneType, UnionType
from typing import get_args

from hpccoll.common.errors import UnusableError
from hpccoll.render.row_record import row_record
from hpccoll.store.plain_values import plain_value
from hpccoll.store.rows import ROW_COLUMNS, Results, Row


def parquet_bytes(results: Results) -> bytes:
    """Return a Parquet file with a column for each field of a row, in order and in SI units.

    A field that is a mapping or a list is JSON text, because its keys differ from row to row.

    Raises:
        UnusableError: if pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise UnusableError("--format", "parquet needs: pip install 'hpccoll[export]'") from None

    types: dict[object, object] = {float: pa.float64(), int: pa.int64(), bool: pa.bool_()}
    types_of_fields = {field.name: _without_none(field.type) for field in fields(Row)}
    records = [row_record(row) for row in results.rows]
    columns = {}
    for name in ROW_COLUMNS:
        values = [plain_value(record[name]) for record in records]
        columns[name] = pa.array(values, type=types.get(types_of_fields[name], pa.string()))
    file = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), file)
    return file.getvalue()


def _without_none(field_type: object) -> object:
    """Return the type of a field that may be None."""
    if isinstance(field_type, UnionType):
        return next(part for part in get_args(field_type) if part is not NoneType)
    return field_type
