"""Tables that tune other libraries: written from measured choices, checked for mistakes, and verified in their runs."""

from hpccoll.common.extensions import Extension

EXTENSION = Extension(
    name="tables",
    recognisers=["hpccoll.extensions.tables.recognition:recognise"],
    library_tables=["hpccoll.extensions.tables.tuning_formats:TUNING_FORMATS"],
    schemas=["hpccoll.extensions.tables.tuning_formats:SCHEMAS"],
)
