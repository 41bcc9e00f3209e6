"""The algorithms of other libraries, by the names of their tuning tables. The table is ``library_algorithms.toml``."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_WORD = re.compile(
    r"(?P<name>[^:=@]+)(?::(?P<needs>[^=@]+))?(?:=(?P<schedule>[^@]+))?(?:@(?P<since>.+))?"
)


@dataclass(frozen=True, slots=True)
class LibraryAlgorithm:
    """An algorithm of a library for one collective."""

    name: str
    id: int  # its place in the library's list: a number of Open MPI from 1, of UCC from 0
    needs: tuple[str, ...] = ()  # of the table [needs]
    schedule: str = ""  # the schedule of ours that sends the same messages; empty if none does
    since: str = ""  # the first version that has it; empty for all
    inter: bool = False  # whether it is one of intercommunicators


@cache
def library_table() -> Mapping[str, Any]:
    """Return the whole table, as TOML has it."""
    import tomllib  # ranks never need it

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


@cache
def library_algorithms(library: str) -> Mapping[str, Mapping[str, LibraryAlgorithm]]:
    """Return the algorithms of a library by collective and name, in the library's words and order.

    Args:
        library: ``openmpi``, ``mpich``, ``ucc`` or ``ucc_hier``.
    """
    first = 1 if library == "openmpi" else 0
    by_collective = {}
    for collective, text in library_table()[library]["algorithms"].items():
        by_collective[collective] = {
            algorithm.name: algorithm for algorithm in _parse_algorithms(text, first)
        }
    return by_collective


def library_collective(library: str, collective: str) -> str | None:
    """Return a library's name of the call that measures one of our collectives; None if it has no algorithms for it.

    For reduce_scatter that is the call with blocks of equal size, where a library has one.
    """
    table = library_table()
    names = (
        table["nccl"]["collectives"] if library == "nccl" else table[library]["algorithms"].keys()
    )
    for name, ours in reversed(table["collectives"].items()):
        if ours == collective and name in names:
            return str(name)
    return None


def default_parameters(library: str, collective: str, algorithm: str) -> Mapping[str, int | str]:
    """Return the parameters that a table must give an algorithm, in the library's words, as the library forces it."""
    by_collective = library_table()[library]["parameters"]
    parameters: Mapping[str, int | str] = by_collective.get(collective, {}).get(algorithm, {})
    return parameters


@cache
def algorithms_by_word(library: str) -> Mapping[str, Mapping[str, LibraryAlgorithm]]:
    """Return the algorithms of an MPI library that a variant can force, by word and by our name of the collective."""
    by_word: dict[str, dict[str, LibraryAlgorithm]] = {}
    for ours in dict.fromkeys(library_table()["collectives"].values()):
        call = library_collective(library, ours) or ""
        for algorithm in library_algorithms(library)[call].values():
            if not algorithm.inter:
                by_word.setdefault(algorithm.name, {})[ours] = algorithm
    return by_word


def forcing_variable(library: str, collective: str, algorithm: LibraryAlgorithm) -> tuple[str, str]:
    """Return the variable that forces an algorithm on a collective of ours, and its value."""
    call = library_collective(library, collective) or ""
    names = library_table()["variants"][library]
    variable: str = names["variable"].format(call=call, CALL=call.upper())
    value: str = names["value"].format(**asdict(algorithm))
    return variable, value


def _parse_algorithms(text: str, first: int) -> list[LibraryAlgorithm]:
    """Return the algorithms of a line of the table; those after a bar are of intercommunicators."""
    algorithms: list[LibraryAlgorithm] = []
    inter = False
    for word in text.split():
        match = _WORD.fullmatch(word)
        if word == "|":
            inter = True
        elif match:
            needs = match["needs"].split("+") if match["needs"] else []
            algorithm = LibraryAlgorithm(
                name=match["name"],
                id=first + len(algorithms),
                needs=tuple(need for need in needs if need),
                schedule=match["schedule"] or "",
                since=match["since"] or "",
                inter=inter,
            )
            algorithms.append(algorithm)
    return algorithms
