"""Rule files of Open MPI in numbers: the classic form of component tuned (versions 1 and 2), and that of component han.

Facts: ompi/mca/coll/tuned/coll_tuned_dynamic_file.c and coll/han/coll_han_dynamic_file.c of 5.0.9
and of 8efebee (6.1). Both readers take numbers as scanf's ``%li`` does, and ignore the whole file
if a number is not what they expect.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NoReturn

from hpccoll.cases.library_algorithms import default_parameters, library_algorithms, library_table
from hpccoll.extensions.tables.formats.tuning_rule import (
    MAX_INT,
    UNLIMITED,
    Span,
    TuningRule,
    TuningTable,
    rules_by_ranks,
    size_steps,
)

_TOKEN = re.compile(
    r"#[^\n]*|(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*))|(?P<other>[^\s#0-9+-]+|[+-])"
)
_VERSION = re.compile(r"rule-file-version-([0-9]+)")
_WORD = re.compile(r"(?:#[^\n]*+|\s)*+([^\s@\[\]#]+)")
_FIFTH = re.compile(r"[ \t]*([0-9]+)(?P<end>[ \t\r]*(?:[#\n]|\Z))?")
_DIGITS = re.compile("[0-9]+")
_OPTIONAL = re.compile(r"\s*@\S+|\s*\[[^\]]*\]")


class _FileIgnoredError(Exception):
    """What follows cannot be read; a finding says why."""


class _NumberReader:
    """The numbers of a text, and the words of han, as Open MPI reads them one after the other."""

    def __init__(self, text: str, table: TuningTable) -> None:
        self.text = text
        self.table = table
        self.place = 0
        self.line = 1
        self.counted = 0

    def number(self, meaning: str, last: int = UNLIMITED) -> int:
        """Return the next number; _FileIgnoredError if there is none, or it is not from 0 to ``last``."""
        skipped = list[str]()
        while match := _TOKEN.search(self.text, self.place):
            self._move(match.start(), match.end())
            if match["number"]:
                break
            skipped += [match["other"]] if match["other"] else []
        if skipped:
            self.table.add("skipped_text", self.line, " ".join(skipped))
        if not match:
            self.fail(
                meaning,
                "is missing at the end: a count above it is too high",
                "count the rules again",
            )
        digits = match["number"].lower()[:40]
        value = int(digits, 8 if re.match("[+-]?0[0-7]", digits) else 0)
        rest = _DIGITS.match(self.text, self.place)
        if digits.lstrip("+-").startswith("0") and (value or rest) and "x" not in digits:
            self.table.add(
                "octal", self.line, digits + (rest[0] if rest else ""), what=meaning, read=value
            )
        if not 0 <= value <= last:
            self.fail(value, f"as {meaning} is not from 0 to {last}", "correct it")
        return value

    def word(self, meaning: str, words: list[str], *, numbered: bool = True) -> str:
        """Return the next word, a known one or, if ``numbered``, the place of one; _FileIgnoredError for others."""
        match = _WORD.match(self.text, self.place)
        if not match:
            self.fail(
                meaning,
                "is missing at the end: a count above it is too high",
                "count the rules again",
            )
        self._move(match.start(1), match.end())
        word = match[1]
        if numbered and word.isdigit() and int(word) < len(words):
            return words[int(word)]
        if word not in words:
            self.fail(word, f"is not a valid {meaning}", f"choose from {', '.join(words)}")
        return word

    def fail(self, value: object, why: str, remedy: str) -> NoReturn:
        """Add the reason for which Open MPI ignores the file, and end its reading."""
        self.table.add("file_ignored", self.line, value, why=why, remedy=remedy)
        raise _FileIgnoredError

    def read_size(self, sizes: list[int]) -> None:
        """Add the next message size to those before it; the first one must be 0."""
        sizes.append(self.number("a message size", 2**63 - 1))
        if sizes[0]:
            self.fail(sizes[0], "as first message size is not 0", "begin with a rule for size 0")
        self.check_rising(sizes)

    def check_rising(self, sizes: list[int]) -> None:
        """Find a last size that is not above the one before it."""
        if len(sizes) > 1 and sizes[-1] <= sizes[-2]:
            self.table.add("not_rising", self.line, sizes[-1])

    def end(self) -> None:
        """Find what is behind the last rule that is read."""
        if match := _WORD.match(self.text, self.place):
            self._move(match.start(1), match.end())
            self.table.add("not_read", self.line, match[1])

    def _move(self, start: int, end: int) -> None:
        self.line += self.text.count("\n", self.counted, start)
        self.place = end
        self.counted = start


def read_openmpi_rules(text: str) -> TuningTable:
    """Read a rule file of component tuned, as Open MPI 5.0 does."""
    table = TuningTable("openmpi")
    reader = _NumberReader(text, table)
    version = 1
    if match := _VERSION.match(text):
        version, reader.place = int(match[1]), match.end()
        table.add("version_2", 1, match[0])
    names = library_table()["openmpi"]["ids"]
    try:
        for _ in range(reader.number("the number of collectives", len(names))):
            _read_collective(reader, names[reader.number("a collective", len(names) - 1)], version)
        reader.end()
    except _FileIgnoredError:
        pass
    by_han = {rule.collective for rule in table.rules} & {*library_table()["han"]["collectives"]}
    if by_han:
        table.add("han_outranks", 0, None, collectives=", ".join(sorted(by_han)))
    return table


def _read_collective(reader: _NumberReader, name: str, version: int) -> None:
    table = reader.table
    line = reader.line
    if name not in library_algorithms("openmpi"):
        table.add(
            "never_matches", line, name, why="component tuned has no algorithms of this collective"
        )
    if any(rule.collective == name for rule in table.rules):
        table.add("never_matches", line, name, why="it comes twice, and only the last rules count")
        table.rules = [rule for rule in table.rules if rule.collective != name]
    sizes = list[int]()
    read = list[list[TuningRule]]()
    for _ in range(reader.number(f"the number of communicator sizes of {name}", MAX_INT)):
        sizes.append(reader.number("a communicator size", MAX_INT))
        reader.check_rising(sizes)
        at = reader.line
        read.append(_read_sizes(reader, name, version))
        if len(sizes) == 1 and sizes[0] > 2 and any(rule.algorithm != "ignore" for rule in read[0]):
            table.add("no_guard", at, sizes[0], collective=name)
        elif len(sizes) == 2:
            table.add("sizes_in_6", at, sizes[1], collective=name)
    for ranks, rules in zip(_ranges([0, *sizes[1:]]), read, strict=False):
        for rule in rules:
            table.rules.append(replace(rule, ranks=ranks))
            table.check_ranks("openmpi", table.rules[-1])


def _read_sizes(reader: _NumberReader, name: str, version: int) -> list[TuningRule]:
    table = reader.table
    rules: list[TuningRule] = []
    sizes: list[int] = []
    algorithms = library_algorithms("openmpi").get(name, {})
    for _ in range(reader.number("the number of message sizes", MAX_INT)):
        reader.read_size(sizes)
        line = reader.line
        number = reader.number("an algorithm")
        algorithm = next(
            (candidate for candidate in algorithms.values() if candidate.id == number), None
        )
        if algorithm and algorithm.since > "4.1":
            table.add("newer_algorithm", line, number, name=algorithm.name, since=algorithm.since)
        elif number and algorithms and not algorithm:
            choices = f"choose from 0 to {len(algorithms)}"
            table.add(
                "unknown_algorithm",
                line,
                number,
                collective=name,
                outcome="its calls fail",
                known=choices,
            )
        parameters: dict[str, int | str] = {
            parameter: reader.number(parameter, MAX_INT) for parameter in ("faninout", "segsize")
        }
        if fifth := _FIFTH.match(reader.text, reader.place):
            if version > 1:
                parameters["max_requests"] = reader.number("max_requests", MAX_INT)
            elif fifth["end"] is not None:  # one alone; four are the next rule
                table.add("fifth_field", line, int(fifth[1][:40]))
        if algorithm:
            word = algorithm.name
        else:
            word = str(number or "ignore")
        rules.append(TuningRule(collective=name, algorithm=word, parameters=parameters, line=line))
    return [replace(rule, bytes=span) for rule, span in zip(rules, _ranges(sizes), strict=True)]


def _ranges(starts: Sequence[int]) -> list[Span]:
    """Return the ranges that begin at ascending numbers and end before the next one."""
    return [(first, after - 1) for first, after in pairwise((*starts, UNLIMITED + 1))]


def write_openmpi_rules(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return rules as a file of component tuned of 4.1 and 5.0; other calls get Open MPI's fixed decision.

    Args:
        rules: rules whose algorithms are names of Open MPI; of overlapping ones the first counts.
        comment: lines for the head, without #.
    """
    rules = [*rules]
    lines = (
        ["rule-file-version-2"] if any("max_requests" in rule.parameters for rule in rules) else []
    )
    lines += [f"# {line}" for line in comment.splitlines()]
    by_ranks = rules_by_ranks(rules)
    lines.append(f"{len(by_ranks)}  # collectives")
    for name, spans in by_ranks.items():
        lines += [
            f"{library_table()['openmpi']['ids'].index(name)}  # {name}",
            f"{len(spans)}  # communicator sizes",
        ]
        for (first, _), applying in spans:
            steps = size_steps(applying)
            lines += [f"{first}  # ranks and more", f"{len(steps)}  # message sizes"]
            for (size, _), rule in steps:
                parameters = (
                    {**default_parameters("openmpi", name, rule.algorithm), **rule.parameters}
                    if rule
                    else {}
                )
                number = 0
                if rule:
                    number = library_algorithms("openmpi")[name][rule.algorithm].id
                fields = [size, number, parameters.get("faninout", 0), parameters.get("segsize", 0)]
                fields += [parameters["max_requests"]] if "max_requests" in parameters else []
                lines.append(
                    f"{' '.join(map(str, fields))}  # {rule.algorithm if rule else 'the fixed decision'}"
                )
    return "\n".join((*lines, ""))


def write_han_rules(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return a file of component han of 5.0 that hands the calls of rules of component tuned to that component.

    Between nodes with several ranks each han takes the calls first; without such a file, tuned sees
    parts of them.

    Args:
        rules: the rules of component tuned, each for one number of ranks.
        comment: lines for the head, without #.
    """
    facts = library_table()["han"]
    lines = [f"# {line}" for line in comment.splitlines()]
    by_ranks = {
        name: spans for name, spans in rules_by_ranks(rules).items() if name in facts["collectives"]
    }
    lines.append(f"{len(by_ranks)}  # collectives")
    for name, spans in by_ranks.items():
        lines += [name, "1  # levels", "global_communicator", f"{len(spans)}  # communicator sizes"]
        for (first, _), applying in spans:
            steps = size_steps(applying)
            blocks = first if name in facts["sizes_of_a_block"] else 1
            lines += [f"{max(first, 1)}  # ranks and more", f"{len(steps)}  # message sizes"]
            for (size, _), rule in steps:
                size_of_block = -(-size // max(blocks, 1))
                component = "tuned" if rule else "han"
                lines.append(f"{size_of_block} {component}")
    return "\n".join((*lines, ""))


def read_han_rules(text: str) -> TuningTable:
    """Read a rule file of component han of Open MPI 5.0; the algorithm of a rule is a component."""
    table = TuningTable("han")
    reader = _NumberReader(text, table)
    try:
        for _ in range(reader.number("the number of collectives")):
            _read_han_collective(reader)
        reader.end()
    except _FileIgnoredError:
        pass
    return table


def _read_han_collective(reader: _NumberReader) -> None:
    facts = library_table()["han"]
    rules = reader.table.rules
    name = reader.word("collective", library_table()["openmpi"]["ids"])
    if name not in facts["collectives"]:
        reader.table.add(
            "never_matches", reader.line, name, why="han does not have this collective"
        )
    for _ in range(reader.number("the number of levels")):
        level = reader.word("level", facts["levels"])
        sizes = list[int]()
        read = list[list[TuningRule]]()
        for _ in range(reader.number("the number of configurations")):
            sizes.append(reader.number("a configuration size"))
            if sizes[0] != 1:
                reader.fail(
                    sizes[0],
                    "as first configuration size is not 1",
                    "begin with a configuration of size 1",
                )
            reader.check_rising(sizes)
            begins = list[int]()
            size_rules = list[TuningRule]()
            for _ in range(reader.number("the number of message sizes")):
                reader.read_size(begins)
                meaning = "component of 5.0, whose reader takes no numbers"
                component = reader.word(meaning, facts["components"], numbered=False)
                line = reader.line
                while match := _OPTIONAL.match(reader.text, reader.place):
                    reader.place = match.end()
                size_rules.append(
                    TuningRule(collective=name, algorithm=component, conditions=(level,), line=line)
                )
            read.append(
                [
                    replace(rule, bytes=span)
                    for rule, span in zip(size_rules, _ranges(begins), strict=True)
                ]
            )
        for span, size_rules in zip(_ranges(sizes), read, strict=True):
            between = level == "inter_node"
            rules += [
                replace(rule, nodes=span) if between else replace(rule, ranks=span)
                for rule in size_rules
            ]
