"""The algorithms of other libraries, by the names of their tuning tables. The table is ``library_algorithms.toml``."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

_WORD = re.compile(r"(?P<name>[^:=@]+)(?::(?P<needs>[^=@]+))?(?:=(?P<schedule>[^@]+))?(?:@(?P<since>.+))?")


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
    return {
        collective: {word.name: word for word in _words(text, first)}
        for collective, text in library_table()[library]["algorithms"].items()
    }


def library_collective(library: str, collective: str) -> str | None:
    """Return a library's name of the call that measures one of our collectives; None if it has no algorithms for it.

    Of reduce_scatter that is the call with blocks of equal size, where a library has one.
    """
    table = library_table()
    names = table["nccl"]["collectives"] if library == "nccl" else [*table[library]["algorithms"]]
    ours = table["collectives"]
    return next((name for name in reversed([*ours]) if ours[name] == collective and name in names), None)


def default_parameters(library: str, collective: str, algorithm: str) -> Mapping[str, int | str]:
    """Return the parameters that a table must give an algorithm, in the library's words, as the library forces it."""
    found: Mapping[str, int | str] = library_table()[library]["parameters"].get(collective, {}).get(algorithm, {})
    return found


@cache
def algorithms_by_word(library: str) -> Mapping[str, Mapping[str, LibraryAlgorithm]]:
    """Return the algorithms of an MPI library that a variant can force, by word and by our name of the collective."""
    found: dict[str, dict[str, LibraryAlgorithm]] = {}
    for ours in dict.fromkeys(library_table()["collectives"].values()):
        for each in library_algorithms(library)[library_collective(library, ours) or ""].values():
            if not each.inter:
                found.setdefault(each.name, {})[ours] = each
    return found


def forcing_variable(library: str, collective: str, algorithm: LibraryAlgorithm) -> tuple[str, str]:
    """Return the variable that forces an algorithm on a collective of ours, and its value."""
    names, call = library_table()["variants"][library], library_collective(library, collective) or ""
    return names["variable"].format(call=call, CALL=call.upper()), names["value"].format(**asdict(algorithm))


def _words(text: str, first: int) -> list[LibraryAlgorithm]:
    found, inter = list[LibraryAlgorithm](), False
    for word in text.split():
        if word == "|":
            inter = True
        elif match := _WORD.fullmatch(word):
            needs = tuple(filter(None, (match["needs"] or "").split("+")))
            rest = match["schedule"] or "", match["since"] or "", inter
            found.append(LibraryAlgorithm(match["name"], first + len(found), needs, *rest))
    return found
