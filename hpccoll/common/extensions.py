"""The door for extensions: packages that bring what the core of hpccoll does not know.

An extension is a package with a table of what it brings (``Extension``). Three come with hpccoll; a
site's own package names its table in its pyproject.toml, as an entry point::

    [project.entry-points."hpccoll.extensions"]
    site = "hpccoll_site:EXTENSION"

The core asks the door for the contributions of a kind, and imports what a table names when it is
needed. Ranks start by the thousand on one file system, so that they never look for entry points:
they know the extensions that come with hpccoll, and those that their job file names. A rank that a
person starts looks for them only if a name is unknown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from hpccoll.common.errors import PACKAGE, UnusableError, fault_with_line

ENTRY_POINTS = "hpccoll.extensions"
"""The group of entry points under which packages name their tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What a package brings. Each object is named ``module:object``, and imported when it is needed first.

    The room that asks for a kind of contribution defines its interface.
    """

    name: str  # for people; of one that comes with hpccoll, the name of its package
    workloads: Mapping[str, str] = field(default_factory=dict)
    """Each a ``cases.workload.Workload``, by the name that cases have as their collective."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """The sections of a workload in sweep files, a ``sweep.workload_section.WorkloadSections``, by its name."""
    job_commands: Mapping[str, str] = field(default_factory=dict)
    """Commands that ranks run, each a ``cli.extension_commands.JobCommand``; hpccoll's own extensions have them."""
    subcommands: Mapping[str, str] = field(default_factory=dict)
    """Commands of two words, such as ``predict step``, each a ``cli.command.Command``."""
    runners: Mapping[str, str] = field(default_factory=dict)
    """What runs a workload on ranks, a ``measure.run.workload_runner.WorkloadRunner``, by the name of the workload."""
    figures: Mapping[str, str] = field(default_factory=dict)
    """What makes the figures of a workload in rows, a ``store.workload_figures.WorkloadFigures``, by its name."""
    findings: Mapping[str, str] = field(default_factory=dict)
    """The findings of a workload: a function of a ``ChartGroup`` that returns them, by its name."""
    pages: Mapping[str, str] = field(default_factory=dict)
    """How a workload is shown, a ``render.workload_page.WorkloadPage``, by its name."""
    fitted_sections: Sequence[str] = ()
    """Functions of raw results that fit sections of a machine file, and return them by their keys."""
    algorithms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By collective and algorithm, the module of the page that registers it, as ``hpccoll.algorithms.PAGES``."""
    algorithm_formats: Sequence[str] = ()  # each a ``cases.algorithm_files.AlgorithmFormat``
    recognisers: Sequence[str] = ()  # each a ``measure.run.call_evidence.Recogniser``
    importers: Sequence[str] = ()  # each an ``interop.benchmark_output.Importer``
    # a ``cli.extension_commands.WordsCommand`` by name
    commands: Mapping[str, str] = field(default_factory=dict)
    library_tables: Sequence[str] = ()  # each a ``cli.library_tables.LibraryTables``
    # each a sequence of ``common.json_schema.OutputSchema``, of the JSON that its commands print
    schemas: Sequence[str] = ()
    schedule_formats: Sequence[str] = ()  # each a ``cli.schedule_formats.ScheduleFormat``


_OWN = "hpccoll.extensions."
"""How the names of the tables begin that come with hpccoll."""

_of_job: list[str] | None = None
"""On ranks, the tables that a job file names; None elsewhere, where entry points are looked for."""


def use_only(tables: Sequence[str]) -> None:
    """Use the extensions that come with hpccoll and these, each named as an entry point is; what ranks begin with."""
    global _of_job  # noqa: PLW0603  a process is a rank or it is not
    _of_job = list(tables)
    other_extensions.cache_clear()


def extensions() -> Iterator[tuple[str, Extension]]:
    """Yield the tables of all extensions, each after how an entry point names it.

    Those of hpccoll come first: who finds there what it looks for looks for no entry points.

    Raises:
        UnusableError: if a table cannot be imported.
    """
    yield from bundled_extensions().items()
    yield from other_extensions().items()


@cache
def bundled_extensions() -> Mapping[str, Extension]:
    """Return the tables of the packages in ``hpccoll/extensions``, by how an entry point would name them."""
    from pkgutil import iter_modules  # a rank whose names are all hpccoll's own needs no extension

    tables = {}
    for package in iter_modules([str(PACKAGE / "extensions")]):
        name = f"{_OWN}{package.name}:EXTENSION"
        tables[name] = _table(name)
    return tables


@cache
def other_extensions() -> Mapping[str, Extension]:
    """Return the tables of the other packages, by how entry points name them: on ranks, those of the job."""
    names = _installed_tables() if _of_job is None else _of_job
    tables = {}
    for name in names:
        tables[name] = _table(name)
    return tables


def is_own_table(table: str) -> bool:
    """Return whether a table is of an extension that comes with hpccoll: job files need not name it."""
    return table.startswith(_OWN)


def _installed_tables() -> list[str]:
    from importlib.metadata import entry_points  # it reads a file of each package that is installed

    return sorted(point.value for point in entry_points(group=ENTRY_POINTS))


def _table(name: str) -> Extension:
    table = imported_object(name)
    if not isinstance(table, Extension):
        raise UnusableError(f"extension {name}", "it is not a hpccoll.common.extensions.Extension")
    return table


def imported_object(name: str) -> Any:
    """Return the object that ``module:object`` names.

    Raises:
        UnusableError: if it cannot be imported.
    """
    module, _, path = name.partition(":")
    try:
        return getattr(import_module(module), path)
    except Exception as error:  # whatever the code of the extension raises
        raise UnusableError(f"extension {name}", fault_with_line(error)) from error


def contributed(kind: str, name: str) -> Any:
    """Return the object that an extension brings of a kind under a name; None if none does.

    Raises:
        UnusableError: if it cannot be imported.
    """
    return _contribution((extension for _, extension in extensions()), kind, name)


def bundled_contribution(kind: str, name: str) -> Any:
    """Return the object that an extension of hpccoll itself brings, without a look for other packages."""
    return _contribution(bundled_extensions().values(), kind, name)


def _contribution(tables: Iterable[Extension], kind: str, name: str) -> Any:
    for extension in tables:
        named = getattr(extension, kind)
        if name in named:
            return imported_object(named[name])
    return None


def contributed_names(kind: str) -> list[str]:
    """Return the names under which extensions bring objects of a kind."""
    names: list[str] = []
    for _, extension in extensions():
        names += getattr(extension, kind)
    return names


def bundled_names(kind: str) -> list[str]:
    """Return the names under which extensions of hpccoll itself bring objects of a kind."""
    names: list[str] = []
    for extension in bundled_extensions().values():
        names += getattr(extension, kind)
    return names


def contributions(kind: str) -> Iterator[Any]:
    """Yield the objects that extensions bring of a kind, a field of ``Extension``."""
    for _, brought in contributions_of_tables(kind):
        yield brought


def contributions_of_tables(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the objects that extensions bring of a kind, each after the table that names it."""
    for table, extension in extensions():
        named = getattr(extension, kind)
        names = named.values() if isinstance(named, Mapping) else named
        for name in names:
            yield table, imported_object(name)
