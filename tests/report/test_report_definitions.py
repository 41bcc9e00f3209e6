"""Definitions of the report."""

from hpccoll.report.definitions import COLLECTIVE_DESCRIPTIONS
from hpccoll.spec.algorithm_registry import COLLECTIVES


def test_all_collectives_of_the_table_are_described():
    assert COLLECTIVE_DESCRIPTIONS.keys() == COLLECTIVES.keys()
