"""The variables UCC_TL_UCP_TUNE and UCC_CL_HIER_TUNE (src/coll_score/ucc_coll_score.c of 8263de47).

``collectives:first-last:memory:[ranks]:score:@algorithm``, joined by ``#``; a token is what it
looks like, and only a score or an algorithm is required. Ranges end before their last size. Any
other token is an error of UCC, and so are two sections for one call: it adds the ranges of both,
which must not overlap.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from hpccoll.cases.library_algorithms import library_algorithms, library_table
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import parse_size
from hpccoll.extensions.tables.formats.tuning_rule import UNLIMITED, Span, TuningRule, TuningTable

_LIBRARIES = {"UCC_TL_UCP_TUNE": "ucc", "UCC_CL_HIER_TUNE": "ucc_hier"}
ASSIGNMENT = re.compile(
    # of shells, launchers, ucc.conf, YAML, Python
    r"""\b(UCC_\w+)["']?\]?(?:\s*=\s*|:\s+)["']?([^"'\s;\\]*)"""
    r"""|(?:\bsetenv|-genv|-env|\bENV)\s+(UCC_\w+)\s+["']?([^"'\s;\\]*)"""
)
"""An assignment anywhere in a line, as in ``mpirun -x UCC_TL_UCP_TUNE=allreduce:@knomial ./app``."""
_NEXT_OF_LIST = re.compile(r",[A-Z][A-Z0-9_]*(?:=|$|,)")
"""What ends a value in ``srun --export=ALL,UCC_TL_UCP_TUNE=allreduce:@knomial,UCC_CLS=basic``."""
_SCORE = re.compile("[0-9]+|inf")
_TEAMS = re.compile(r"\[[0-9]+(-([0-9]+|inf))?(,[0-9]+(-([0-9]+|inf))?)*\]")
"""Sizes of teams, such as ``[2-8,16]``."""
_OTHER_LAYER = re.compile("UCC_[CT]L_[A-Z0-9_]+_TUNE")
_FAILS = "UCC ignores the whole string, with an error in its log"


def read_ucc_tune(text: str) -> TuningTable:
    """Read assignments, as of a shell or of ucc.conf, or one string for TL/UCP."""
    table = TuningTable("ucc")
    hier = 0
    layers = ""
    for number, name, value in _assignments(text):
        if name == "UCC_CLS":
            layers = value
        if not value:
            continue
        if name in _LIBRARIES and "$" in value:
            table.add("not_checked", number, value, what="a value of the shell")
        elif name in _LIBRARIES:
            if name == "UCC_CL_HIER_TUNE":
                hier = number
            begin = len(table.rules)
            for section in value.split("#"):
                _read_section(table, _LIBRARIES[name], section, number, begin)
        elif _OTHER_LAYER.fullmatch(name):
            table.add("not_checked", number, name, what="of another layer than UCP and hier")
    if hier and not {"hier", "all"} & {*layers.split(",")}:
        table.add("needs_hier", hier, "UCC_CL_HIER_TUNE")
    return table


def _assignments(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, name and value of each assignment; a text without any is one string a line, for TL/UCP."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if not line.startswith(("#", "["))]
    is_named = any(ASSIGNMENT.search(line) for _, line in lines)
    for number, line in lines:
        if not is_named and "@" in line:
            yield number, "UCC_TL_UCP_TUNE", line
        for match in ASSIGNMENT.finditer(line):
            name = match[1] or match[3]
            value = match[2] or match[4] or ""
            yield number, name, _NEXT_OF_LIST.split(value)[0]


def _kind(token: str) -> str:
    """Return what a token looks like, in the order in which UCC tries it; empty for nothing."""
    lower = token.lower()
    words = lower.split(",")
    facts = library_table()["ucc"]
    kinds = {
        "collectives": set(words).issubset(facts["collectives"]),
        "memories": set(words).issubset(facts["memories"]),
        "score": bool(_SCORE.fullmatch(lower)),
        "sizes": all(map(_is_span, words)),
        "teams": bool(_TEAMS.fullmatch(token)),
        "algorithm": token.startswith("@"),
    }
    return next((kind for kind, is_of_kind in kinds.items() if is_of_kind), "")


def _tokens(table: TuningTable, section: str, line: int) -> dict[str, str]:
    """Return the tokens of a section by what they look like."""
    tokens: dict[str, str] = {}
    facts = library_table()["ucc"]
    for token in section.split(":"):
        kind = _kind(token)
        if not kind or kind in tokens:
            choices: object = [*facts["collectives"], *facts["memories"]]
            if token.lower() in ("cpu", "gpu"):
                choices = "choose from host, cuda, rocm"
            table.add(
                "unknown_name",
                line,
                token,
                what="further token of UCC",
                outcome=_FAILS,
                known=choices,
            )
        tokens.setdefault(kind, token)
    return tokens


def _read_section(table: TuningTable, library: str, section: str, line: int, begin: int) -> None:
    """Add the rules of a section; those of its string begin at ``begin``."""
    tokens = _tokens(table, section, line)
    algorithm = tokens.get("algorithm", "")[1:]
    score = tokens.get("score", "")
    if not (algorithm or score):
        table.add("no_effect", line, section)
    collectives = filter(None, tokens.get("collectives", "").lower().split(","))
    if algorithm and "collectives" not in tokens:
        table.add("all_collectives", line, section, name=algorithm)
    elif score and "collectives" not in tokens:
        collectives = library_table()["ucc"]["collectives"]
    spans = _spans(tokens)
    if any(last < first for _, (first, last), _ in spans):
        table.add("malformed", line, tokens["sizes"], why="ends before it begins", outcome=_FAILS)
    teams = tokens.get("teams", "").count(",") + 1
    parameters: dict[str, int | str] = {"score": score} if score else {}
    added: list[TuningRule] = []
    for collective in collectives:
        algorithms = library_algorithms(library).get(collective, {})
        named = next(
            (
                entry.name
                for entry in algorithms.values()
                if algorithm in (entry.name, str(entry.id))
            ),
            "",
        )
        if algorithm and not named:
            choices = list(algorithms)
            table.add(
                "unknown_algorithm",
                line,
                algorithm,
                collective=collective,
                outcome=_FAILS,
                known=choices,
            )
        rules = []
        for memory, size, ranks in spans:
            rule = TuningRule(
                collective=collective,
                algorithm=named or algorithm,
                bytes=size,
                ranks=ranks,
                line=line,
                conditions=memory,
                parameters=dict(parameters),
            )
            rules.append(rule)
        added += rules
        for rule in rules[:teams]:
            table.check_ranks(library, rule)
    overlapping = _first_overlap(table.rules[begin:], added)
    if overlapping:
        table.add("sections_overlap", line, section, name=overlapping.algorithm or "a score")
    table.rules += added


def _spans(tokens: Mapping[str, str]) -> list[tuple[tuple[str, ...], Span, Span]]:
    """Return the memories, sizes and ranks to which the tokens of a section apply, in all combinations."""
    memories = [
        (memory,) if memory else () for memory in tokens.get("memories", "").lower().split(",")
    ]
    sizes = []
    for first, last in map(_span, tokens.get("sizes", "0-inf").split(",")):
        sizes.append((first, last - 1 if last < UNLIMITED else last))
    teams = []
    for word in tokens.get("teams", "[0-inf]")[1:-1].split(","):
        teams.append(_span(word if "-" in word else f"{word}-{word}"))
    return list(product(memories, sizes, teams))


def _first_overlap(earlier: Sequence[TuningRule], added: Sequence[TuningRule]) -> TuningRule | None:
    """Return the first of the earlier rules that applies to a call to which an added one applies, too."""
    for rule in earlier:
        if any(_overlap(rule, later) for later in added):
            return rule
    return None


def _overlap(rule: TuningRule, later: TuningRule) -> bool:
    """Return whether there is a call to which both rules apply."""
    if rule.collective != later.collective:
        return False
    if rule.conditions and later.conditions and rule.conditions != later.conditions:
        return False
    return _have_common_values(rule.bytes, later.bytes) and _have_common_values(
        rule.ranks, later.ranks
    )


def _have_common_values(first: Span, second: Span) -> bool:
    return max(first[0], second[0]) <= min(first[1], second[1])


NO_SPAN = 1, 0
"""What ``_span`` returns for a text that is not a range."""


def _is_span(text: str) -> bool:
    """Return whether a text is a range such as 0-4k."""
    return "-" in text and _span(text) != NO_SPAN


def _span(text: str) -> Span:
    """Return a range such as 0-4k or 2-inf; NO_SPAN if it is none."""
    first, _, last = text.partition("-")
    try:
        begin = parse_size(first)
        end = UNLIMITED if last.lower() == "inf" else parse_size(last)
    except BadInputError:
        return NO_SPAN
    return begin, end
