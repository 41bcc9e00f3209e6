"""Algorithms from files: ``file:PATH`` names one, which is registered in this process under a name with a digest.

Extensions know the formats of such files. One rank reads a file for all ranks.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import UNSET, UnsetType

from hpccoll.cases.algorithm_registry import PLAN, extension_table
from hpccoll.cases.case import Case
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.extensions import contributions_of_tables, is_own_table
from hpccoll.common.files import read_text, with_digest, without_digest
from hpccoll.common.limits import NAME
from hpccoll.schedule import Layout

MAX_FILE_BYTES = 1 << 25


class FileAlgorithm(Protocol):
    """An algorithm that was read from a file. It is sent to other ranks: it can be pickled."""

    @property
    def layout(self) -> Layout:
        """The ranks that it is for."""

    def register(self, name: str) -> None:
        """Register it as an algorithm of its collective, unless the collective has registered one of this name."""


class AlgorithmFormat(NamedTuple):
    """A format of files with an algorithm, which an extension brings (``Extension.algorithm_formats``)."""

    name: str  # what a file of it is, with an article
    suffix: str  # how the names of such files end: ``.json``
    valid: str  # the name in more words, for whoever names a file of another format
    recognises: Callable[[str], bool]  # whether a text may be of this format, by its beginning
    read: Callable[[str, str], FileAlgorithm]
    """Returns the algorithm of a text, after its name in messages; raises BadInputError if the text is not valid."""


class ReadFile(NamedTuple):
    """A file that was read."""

    path: str
    algorithm: FileAlgorithm
    table: str  # of the extension that read it


_READ: dict[str, ReadFile] = {}
"""The files that were registered in this process, by the name of the algorithm."""


def check_format(path: Path, key: str) -> None:
    """Check that a file may be of a format that an extension brings.

    Raises:
        BadInputError: names ``key`` if it is of another format, or cannot be read.
    """
    _format_of(path, read_text(path, key, MAX_FILE_BYTES), key)


def _format_of(path: Path, text: str, key: str) -> tuple[str, AlgorithmFormat]:
    """Return the format of a text, after the table of the extension that brings it."""
    valid: list[str] = []
    for table, brought in contributions_of_tables("algorithm_formats"):
        if brought.recognises(text):
            return table, brought
        valid.append(brought.valid)
    if not valid:
        raise UnusableError(
            key, f"{path} is a file, and no extension that reads algorithms from files is installed"
        )
    raise BadInputError(key, str(path), " or ".join(valid))


@cache
def _read(digested: str) -> ReadFile:
    path = without_digest(digested)
    text = read_text(Path(path), "algorithm", MAX_FILE_BYTES)
    table, file_format = _format_of(Path(path), text, "algorithm")
    return ReadFile(path, file_format.read(PLAN + path, text), table)


def read_files(paths: Mapping[str, str]) -> dict[str, ReadFile]:
    """Return the algorithms of files by name, which has a digest of the content, from the paths of the files.

    Each file is read once in a process; one rank reads it for all.

    Raises:
        BadInputError: if a file cannot be read, its content is not valid, or its name has the
            digest of something else.
    """
    files: dict[str, ReadFile] = {}
    for name, path in paths.items():
        digest = name.removeprefix(without_digest(name))
        files[name] = _read(with_digest(path + digest, "algorithm", MAX_FILE_BYTES))
    return files


def register_files(files: Mapping[str, ReadFile]) -> None:
    """Register what was read as algorithms, by name; those that are registered stay."""
    _READ.update(files)
    for name, file in files.items():
        file.algorithm.register(name)


def with_files(names: Iterable[str], directory: Path = Path()) -> list[str]:
    """Register the files among ``names`` of algorithms, file:PATH from a directory; return each name once.

    That of a file is its name with a digest, file:PLAN.json#1a2b3c4d, and the same in every
    directory.

    Raises:
        BadInputError: if ``read_files`` raises it.
    """
    paths: dict[str, str] = {}
    registered: list[str] = []
    for name in names:
        if not name.startswith(PLAN):
            registered.append(name)
            continue
        path = (directory / name.removeprefix(PLAN)).absolute()
        digested = with_digest(str(path), "algorithm", MAX_FILE_BYTES)
        file_name = NAME.read("algorithm", PLAN + Path(digested).name)
        paths[file_name] = without_digest(digested)
        registered.append(file_name)
    register_files(read_files(paths))
    return list(dict.fromkeys(registered))


def file_layout(name: str) -> Layout | None:
    """Return the ranks that a file is for that was registered in this process under ``name``; None for other names."""
    return _READ[name].algorithm.layout if name in _READ else None


def file_paths(cases: Iterable[Case]) -> dict[str, str]:
    """Return where the files among the algorithms of cases are, by name: what a job file says of them."""
    paths: dict[str, str] = {}
    for case in cases:
        if case.algorithm in _READ:
            paths[case.algorithm] = _READ[case.algorithm].path
    return paths


def tables_of_cases(cases: Iterable[Case]) -> tuple[str, ...] | UnsetType:
    """Return the tables of the extensions that cases need on ranks, besides those that come with hpccoll.

    UNSET if they need none: a job file then has no such key.
    """
    tables: set[str] = set()
    for case in cases:
        table = _table_of_case(case)
        if table and not is_own_table(table):
            tables.add(table)
    return tuple(sorted(tables)) or UNSET


def _table_of_case(case: Case) -> str | None:
    if case.algorithm in _READ:
        return _READ[case.algorithm].table
    return extension_table(case.collective, case.algorithm)
