"""The registry: the table of collectives with every algorithm of the list of pages registered.

This is the only module that imports the pages, and the workloads, which run their algorithms. Code that needs
``Collective.algorithms`` takes the table from here.
"""

from hpccoll.common.errors import UnusableError, fault_with_line

try:
    import hpccoll.algorithms
except Exception as error:  # of a page that a user has added
    raise UnusableError("hpccoll/algorithms", fault_with_line(error)) from error
import hpccoll.training.workload  # noqa: F401  likewise the workloads
from hpccoll.schedule import COLLECTIVES, WORKLOADS, collective

__all__ = ["COLLECTIVES", "EMULATIONS", "PLAN", "WORKLOADS", "collective"]

PLAN = "file:"
"""What the name of an algorithm begins with that is a plan of another program, registered for one command only."""

EMULATIONS = {
    algorithm.name: algorithm.emulation
    for row in COLLECTIVES.values()
    for algorithm in row.algorithms.values()
    if algorithm.emulation
}
"""By name, the algorithms whose ranks stand in for hardware."""
