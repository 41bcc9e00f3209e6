"""Definitions of the report."""

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS
from hpccoll.render.definitions import COLLECTIVE_DESCRIPTIONS


def test_all_collectives_of_the_table_and_workloads_are_described():
    assert COLLECTIVE_DESCRIPTIONS.keys() == {*COLLECTIVES, *WORKLOADS}
