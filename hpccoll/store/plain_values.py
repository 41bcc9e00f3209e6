"""Values of columns as files of one type for each column have them, such as Parquet."""

import json
from collections.abc import Mapping


def plain_value(value: object) -> object:
    """Return a mapping or a list as JSON text, because its keys differ from row to row; other values as they are."""
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, tuple | list):
        return json.dumps(value)
    return value
