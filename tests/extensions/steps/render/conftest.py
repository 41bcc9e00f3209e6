"""The rows, runs and results of reports."""

from report_fixtures import *  # noqa: F403  fixtures
