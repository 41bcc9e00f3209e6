"""The rows, runs and results of reports."""

from report_fixtures import (  # noqa: F401  fixtures
    make_bed_run,
    make_node_row,
    make_row,
    make_run,
    of_rows,
    results,
    rounds_row,
    testbed_results,
    valid,
)
