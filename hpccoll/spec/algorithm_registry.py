"""The registry: the table of collectives with every algorithm of the list of pages registered.

This is the only module that imports the pages. Code that needs ``Collective.algorithms`` takes the table from here.
"""

import hpccoll.algorithms  # noqa: F401  to import the list of pages is to register their algorithms
from hpccoll.schedule import COLLECTIVES, collective

__all__ = ["COLLECTIVES", "EMULATIONS", "collective"]

EMULATIONS = {
    algorithm.name: algorithm.emulation
    for row in COLLECTIVES.values()
    for algorithm in row.algorithms.values()
    if algorithm.emulation
}
"""By name, the algorithms whose ranks stand in for hardware."""
