"""The registry: the table of collectives with the algorithms of all pages, and the workloads, which run them.

This is the only module that imports pages, each when an algorithm of it is first asked for. Code
that needs ``Collective.algorithms`` takes the table from here. Algorithms and workloads of
extensions follow those of hpccoll; their tables are read if a name is not one of hpccoll's own, or
all names are asked for. Those of other packages are looked for last.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module

from hpccoll.algorithms import PAGES, import_page
from hpccoll.cases.workload import workload
from hpccoll.common.errors import BadInputError, UnusableError, fault_with_line
from hpccoll.common.extensions import Extension, bundled_extensions, other_extensions
from hpccoll.schedule import COLLECTIVES, WORKLOADS, Emulation, collective, is_workload

__all__ = ["COLLECTIVES", "PLAN", "WORKLOADS", "collective", "emulations", "is_workload"]

PLAN = "file:"
"""What the name of an algorithm begins with that is read from a file, and registered for one command only."""

_TABLES: dict[tuple[str, str], str] = {}
"""The tables of extensions by what they bring: a collective and its algorithm, or a workload and ``WORKLOAD``."""

WORKLOAD = ""


def _register(family: str, algorithm: str, page: str) -> None:
    """Import the page that registers an algorithm.

    Raises:
        UnusableError: if the page, which a user may have added, cannot be imported or does not
            register it.
    """
    try:
        import_page(page)
    except Exception as error:
        raise UnusableError("hpccoll/algorithms", fault_with_line(error)) from error
    if not COLLECTIVES[family].has_registered(algorithm):
        raise UnusableError(
            "hpccoll/algorithms",
            f"{page}.py registers no algorithm {algorithm} of {family}, which PAGES names",
        )


def _register_of_extension(table: str, family: str, algorithm: str, page: str) -> None:
    """Import the module that registers an algorithm of an extension.

    Raises:
        UnusableError: if the module cannot be imported or does not register it.
    """
    try:
        import_module(page)
    except Exception as error:
        raise UnusableError(f"extension {table}", fault_with_line(error)) from error
    if not COLLECTIVES[family].has_registered(algorithm):
        raise UnusableError(
            f"extension {table}", f"{page} does not register the algorithm {algorithm} of {family}"
        )


def _announce_pages() -> None:
    for family, pages in PAGES.items():
        for algorithm, page in pages.items():
            COLLECTIVES[family].announce(algorithm, partial(_register, family, algorithm, page))
    for tables in (bundled_extensions, other_extensions):
        for family in PAGES:
            COLLECTIVES[family].announce_later(partial(_announce_algorithms, tables, family))
        WORKLOADS.announce_later(partial(_announce_workloads, tables))


def _announce_algorithms(tables: Callable[[], Mapping[str, Extension]], family: str) -> None:
    for table, extension in tables().items():
        if unknown := extension.algorithms.keys() - COLLECTIVES.keys():
            raise BadInputError(f"extension {table}: collective", min(unknown), COLLECTIVES)
        for algorithm, page in extension.algorithms.get(family, {}).items():
            if algorithm in PAGES[family] or (family, algorithm) in _TABLES:
                raise UnusableError(
                    f"extension {table}", f"{family} has an algorithm {algorithm} already"
                )
            register = partial(_register_of_extension, table, family, algorithm, page)
            COLLECTIVES[family].announce(algorithm, register)
            _TABLES[family, algorithm] = table


def _announce_workloads(tables: Callable[[], Mapping[str, Extension]]) -> None:
    for table, extension in tables().items():
        for name in extension.workloads:
            WORKLOADS.announce(name, partial(_make_row, name))
            _TABLES[name, WORKLOAD] = table


def _make_row(name: str) -> None:
    WORKLOADS[name] = workload(name).row


_announce_pages()


def extension_table(family: str, algorithm: str) -> str | None:
    """Return the table of the extension that brings a workload, or an algorithm; None for what is hpccoll's own.

    Both are names that this process has looked up.
    """
    return _TABLES.get((family, WORKLOAD)) or _TABLES.get((family, algorithm))


@cache
def emulations() -> dict[str, Emulation]:
    """Return by name the algorithms whose ranks stand in for hardware, and what reports print about them."""
    by_name = {}
    for row in COLLECTIVES.values():
        for algorithm in row.algorithms.values():
            if algorithm.emulation:
                by_name[algorithm.name] = algorithm.emulation
    return by_name
