"""Damages correct outputs of other benchmarks, and checks that no import tells another number than was printed.

``python tests/fuzz.py outputs`` damages one place of an output at a time: a line is lost, doubled
or repeated, a device gets another number, a column is cut, digits are lost, or the end is missing.
In some cases another output follows. The reader may refuse the output, and may lose results. What
it returns must have the ranks, nodes, bytes and bandwidth of a result that was printed.
tests/interop/test_import_properties.py runs fewer.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from random import Random

from printed_outputs import SUITES, Output, Printed, output

from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import ForeignResult, SuppliedMetadata
from hpccoll.interop.import_results import read_output

Lines = list[str]
ROW = re.compile(r".*?(?:^|\s)\d+(?:\s+\S+)*?\s+\d+\.\d\d(?:\s.*)?")


def rows_of(lines: Sequence[str]) -> list[int]:
    """Return the positions of the lines of tables."""
    return [at for at, line in enumerate(lines) if ROW.fullmatch(line.strip()) and "#" not in line]


def devices_of(lines: Sequence[str]) -> list[int]:
    """Return the positions of the lines of devices."""
    return [at for at, line in enumerate(lines) if "#  Rank" in line]


def headers_of(lines: Sequence[str]) -> list[int]:
    """Return the positions of the other lines that the program began with ``#``."""
    return [at for at, line in enumerate(lines) if "#" in line and "#  Rank" not in line]


def lose(random: Random, lines: Lines, chosen: Sequence[int]) -> None:
    del lines[random.choice(chosen)]


def double(random: Random, lines: Lines, chosen: Sequence[int]) -> None:
    lines.insert(at := random.choice(chosen), lines[at])


def repeat(random: Random, lines: Lines, chosen: Sequence[int]) -> None:
    lines.insert(random.randrange(len(lines)), lines[random.choice(chosen)])


def renumber(random: Random, lines: Lines, chosen: Sequence[int]) -> None:
    at = random.choice(chosen)
    lines[at] = re.sub(r"(Rank +)\d+", rf"\g<1>{random.randrange(16)}", lines[at])


def lose_digits(random: Random, lines: Lines, chosen: Sequence[int]) -> None:
    """Lose one to three neighboring digits of a cell that keeps at least one."""
    at = random.choice(chosen)
    cells = [
        found for found in re.finditer(r"(?<!\S)[\d.]{2,}(?!\S)", lines[at]) if "-" not in found[0]
    ]
    if cells:
        cell = random.choice(cells)
        count = random.randrange(1, min(4, len(cell[0])))
        start = random.randrange(cell.start(), cell.end() - count + 1)
        lines[at] = lines[at][:start] + lines[at][start + count :]


def cut_column(random: Random, lines: Lines, chosen: Sequence[int]) -> None:
    """Cut a column, by characters, out of all lines of tables, with or without the lines of headings."""
    table = [
        *chosen,
        *(at for at, line in enumerate(lines) if re.search(r"#.*(ize|bytes|\(B\))", line)),
    ]
    table = chosen if random.random() < 0.5 else table
    ends = [found.end() for found in re.finditer(r"\S+", lines[random.choice(chosen)])]
    place = random.randrange(len(ends))
    first, last = ends[place - 1] if place else 0, ends[place]
    for at in table:
        lines[at] = lines[at][:first] + lines[at][last:]


def cut_end(random: Random, lines: Lines, chosen: Sequence[int]) -> None:
    at = random.choice(chosen)
    lines[at:] = [lines[at][: random.randrange(len(lines[at]))]]


Mutation = Callable[[Random, Lines, Sequence[int]], None]
MUTATIONS: dict[str, tuple[Mutation, Callable[[Sequence[str]], list[int]]]] = {
    "row lost": (lose, rows_of), "row doubled": (double, rows_of), "digits lost": (lose_digits, rows_of),
    "column cut": (cut_column, rows_of), "end cut": (cut_end, rows_of), "device lost": (lose, devices_of),
    "device doubled": (double, devices_of), "device repeated elsewhere": (repeat, devices_of),
    "device renumbered": (renumber, devices_of), "header lost": (lose, headers_of),
    "header doubled": (double, headers_of), "header repeated elsewhere": (repeat, headers_of),
}  # fmt: skip
"""The kinds of damage, and the lines that each may hit."""


def mutated(random: Random, suite: str) -> tuple[str, Output]:
    """Return an output, damaged, with the name of the damage; in one of three cases another output follows."""
    first = output(random, suite)
    name, lines, results = "", first.text.splitlines(keepends=True), first.results
    if random.random() < 0.3:
        second = output(random, suite, like=first)
        while second.given != first.given:  # what the user says must be true of both
            second = output(random, suite, like=first)
        name, lines, results = (
            "two outputs, ",
            lines + second.text.splitlines(keepends=True),
            (*results, *second.results),
        )
    possible = {each: at for each, (_, find) in MUTATIONS.items() if (at := find(lines))}
    chosen = random.choice(list(possible))
    MUTATIONS[chosen][0](random, lines, possible[chosen])
    return name + chosen, replace(first, text="".join(lines), results=results)


def imported(made: Output, path: Path) -> list[ForeignResult] | None:
    """Return the results that the import reads; None if it refuses the output."""
    path.write_text(made.text)
    known = {each.name for each in fields(SuppliedMetadata)}
    given = SuppliedMetadata(**{key: value for key, value in made.given.items() if key in known})
    try:
        read = read_output(path, given)
    except BadInputError:
        return None
    return read.results


def was_printed(result: ForeignResult, printed: Iterable[Printed]) -> bool:
    """Return whether a result is one of those that were printed, to 2 % or the last digit."""
    case = result.case
    return any(
        (case.collective, case.ranks, case.nodes, case.bytes, case.in_place)
        == (each.collective, each.ranks, each.nodes, each.bytes, each.in_place)
        and abs(result.seconds - each.seconds) <= 0.02 * each.seconds + 0.01e-6
        for each in printed
    )


def mistakes(seed: int, suite: str, path: Path) -> tuple[str, bool, list[str]]:
    """Return the damage of a seed, whether the output was refused, and the results that were not printed."""
    name, made = mutated(Random(f"{suite} {seed}"), suite)  # noqa: S311  no secret
    try:
        results = imported(made, path)
    except Exception as error:  # noqa: BLE001  any other exception is a defect
        return name, False, [f"{suite}, seed {seed}, {name}: {type(error).__name__}: {error}"]
    return (
        name,
        results is None,
        [
            f"{suite}, seed {seed}, {name}: {each.case.collective} {each.case.bytes} B, {each.case.ranks} ranks on "
            f"{each.case.nodes} nodes, {each.seconds * 1e6:.2f} us"
            for each in results or ()
            if not was_printed(each, made.results)
        ],
    )


def trials(
    seed: int, number: int, directory: Path, only: str | None = None
) -> Iterator[tuple[str, str, bool]]:
    """Yield the damage of outputs, the result of each, and whether that is a defect."""
    for each in range(seed * 1_000_000, seed * 1_000_000 + number):
        suite = only or list(SUITES)[each % len(SUITES)]
        name, refused, found = mistakes(each, suite, directory / "output.txt")
        yield (
            f"{suite}: {name}",
            found[0] if found else "refused" if refused else "read",
            bool(found),
        )
