"""Definitions of the report."""

from hpccoll.report.definitions import COLLECTIVE_DESCRIPTIONS
from hpccoll.spec.algorithm_registry import COLLECTIVES, WORKLOADS


def test_all_collectives_of_the_table_and_workloads_are_described():
    assert COLLECTIVE_DESCRIPTIONS.keys() == {*COLLECTIVES, *WORKLOADS}
