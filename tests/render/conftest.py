"""The rows, runs and results of reports."""

import pytest
from report_fixtures import *  # noqa: F403  fixtures

from hpccoll.render import chart_maps


@pytest.fixture(scope="module")
def small_maps():
    """Have maps of any number of columns, so that few rows make one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chart_maps, "LEAST_COLUMNS", 1)
        yield
