"""The tables with which communication libraries are tuned, as ``hpccoll tune`` knows them. Extensions bring them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.extensions import contributions
from hpccoll.common.files import read_text
from hpccoll.common.text import join_words

if TYPE_CHECKING:
    from hpccoll.store.rows import Results

MAX_TABLE_BYTES = 1 << 19
"""The most bytes of a table of a library: more rules than anybody writes."""

OWN_FORMAT = "json"
"""The format of our own tables."""


class LibraryTables(Protocol):
    """Tables of libraries in several formats, which an extension brings (``Extension.library_tables``)."""

    libraries: str  # the names of the libraries, for people
    written: Sequence[str]  # the formats that it writes
    read: Sequence[str]  # the formats that it checks
    formats_text: str  # what it checks, for whoever names another file

    def recognises(self, text: str) -> bool:
        """Return whether a text is of one of the formats, by its content."""

    def write(
        self, results: "Results", name: str, out: Path, *, no_default: bool, as_json: bool
    ) -> None:
        """Write a table of the best choices of results, in the format of a name; print what it has.

        With ``no_default``, it names an algorithm for every call that was measured, although the
        library's own choice may be as fast.

        Raises:
            BadInputError: if the results or the format do not allow it.
        """

    def lint(self, path: Path, name: str | None, *, as_json: bool) -> int:
        """Print what is wrong with a file, of the format of a name [as it looks], and return the exit code."""

    def verify(self, results: "Results", path: Path, name: str | None, *, as_json: bool) -> int:
        """Print whether the library did in results what a file says, and return the exit code.

        Raises:
            BadInputError: if the results do not show it.
        """


def tables_that_write(name: str) -> LibraryTables:
    """Return the tables with a format that can be written.

    Raises:
        BadInputError: if no extension writes this format.
    """
    names = [OWN_FORMAT]
    for tables in _library_tables():
        if name in tables.written:
            return tables
        names += tables.written
    raise BadInputError("--format", name, names)


def tables_that_read(path: Path, name: str | None, option: str) -> LibraryTables:
    """Return the tables with the format of a name, or else with that of the content of a file.

    Raises:
        BadInputError: if no extension knows the format, or the file cannot be read; it names
            ``option``, with which the user named the file.
    """
    brought = _library_tables()
    if name:
        return _with_format(brought, name)
    text = read_text(path, option, MAX_TABLE_BYTES)
    for tables in brought:
        if tables.recognises(text):
            return tables
    valid = "; ".join(tables.formats_text for tables in brought)
    raise BadInputError(option, str(path), f"{valid}; or name its format by --format")


def _with_format(brought: Sequence[LibraryTables], name: str) -> LibraryTables:
    names: list[str] = []
    for tables in brought:
        if name in tables.read:
            return tables
        names += tables.read
    raise BadInputError("--format", name, names)


def _library_tables() -> list[LibraryTables]:
    brought = list(contributions("library_tables"))
    if not brought:
        raise UnusableError("tune", "no extension with tables of libraries is installed")
    return brought


def words_of_tables() -> dict[str, str]:
    """Return what the help of ``hpccoll tune`` says of tables of libraries."""
    libraries: list[str] = []
    written: list[str] = []
    read: list[str] = []
    for tables in contributions("library_tables"):
        libraries.append(tables.libraries)
        written += tables.written
        read += tables.read
    only_read = [name for name in read if name not in written]
    return {
        "libraries": ", ".join(libraries) or "another library",
        "written": ", ".join(written) or "none is installed",
        "read": join_words(only_read, "and") if only_read else "none",
    }
