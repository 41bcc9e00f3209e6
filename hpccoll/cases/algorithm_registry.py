"""The registry: the table of collectives with the algorithms of all pages, and the workloads, which run them.

This is the only module that imports pages, each when an algorithm of it is first asked for. Code that needs
``Collective.algorithms`` takes the table from here.
"""

from functools import cache, partial
from importlib import import_module

from hpccoll.algorithms import PAGES, import_page
from hpccoll.common.errors import UnusableError, fault_with_line
from hpccoll.schedule import COLLECTIVES, WORKLOADS, Emulation, collective
from hpccoll.training import TRAINING_STEP

__all__ = ["COLLECTIVES", "PLAN", "WORKLOADS", "collective", "emulations"]

PLAN = "file:"
"""What the name of an algorithm begins with that is a plan of another program, registered for one command only."""


def _register(family: str, algorithm: str, page: str) -> None:
    """Import the page that registers an algorithm.

    Raises:
        UnusableError: if the page, which a user may have added, cannot be imported or does not register it.
    """
    try:
        import_page(page)
    except Exception as error:
        raise UnusableError("hpccoll/algorithms", fault_with_line(error)) from error
    if not COLLECTIVES[family].has_registered(algorithm):
        raise UnusableError(
            "hpccoll/algorithms", f"{page}.py registers no algorithm {algorithm} of {family}, which PAGES names"
        )


def _import_workload() -> None:
    import_module("hpccoll.training.workload")


def _announce_all() -> None:
    for family, pages in PAGES.items():
        for algorithm, page in pages.items():
            COLLECTIVES[family].announce(algorithm, partial(_register, family, algorithm, page))
    WORKLOADS.announce(TRAINING_STEP, _import_workload)


_announce_all()


@cache
def emulations() -> dict[str, Emulation]:
    """Return by name the algorithms whose ranks stand in for hardware, and what reports print about them."""
    by_name = {}
    for row in COLLECTIVES.values():
        for algorithm in row.algorithms.values():
            if algorithm.emulation:
                by_name[algorithm.name] = algorithm.emulation
    return by_name
