"""The variables UCC_TL_UCP_TUNE and UCC_CL_HIER_TUNE (src/coll_score/ucc_coll_score.c of 8263de47).

``collectives:first-last:memory:[ranks]:score:@algorithm``, joined by ``#``; a token is what it looks like, and only a
score or an algorithm is required. Ranges end before their last size. A token that is none of these is an error of UCC.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from hpccoll.cases.library_algorithms import library_algorithms, library_table
from hpccoll.common.errors import BadInputError
from hpccoll.common.units import parse_size
from hpccoll.interop.tuning_tables.tuning_rule import ANY, UNLIMITED, Span, TuningRule, TuningTable

_LIBRARIES = {"UCC_TL_UCP_TUNE": "ucc", "UCC_CL_HIER_TUNE": "ucc_hier"}
ASSIGNMENT = re.compile(r"""(?:export\s+)?(UCC_\w+)=["']?([^"'\s]*)["']?\s*""")
_FAILS = "UCC fails to create a team"


def read_ucc_tune(text: str) -> TuningTable:
    """Read assignments, as of a shell or of ucc.conf, or one string for TL/UCP."""
    table, hier, layers = TuningTable("ucc"), 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        match = ASSIGNMENT.fullmatch(stripped)
        name, value = (match[1], match[2]) if match else ("UCC_TL_UCP_TUNE", stripped)
        if name == "UCC_CLS":
            layers = value
        if name in _LIBRARIES and (match or "@" in value) and not stripped.startswith(("#", "[")):
            hier = number if name == "UCC_CL_HIER_TUNE" else hier
            for section in value.split("#"):
                _read_section(table, _LIBRARIES[name], section, number)
    if hier and not {"hier", "all"} & {*layers.split(",")}:
        table.add("needs_hier", hier, "UCC_CL_HIER_TUNE")
    table.rules.reverse()  # a later one replaces an earlier one
    table.check_order()
    table.rules.reverse()
    return table


def _kind(token: str) -> str:
    """Return what a token looks like, in the order in which UCC tries it; empty for nothing."""
    words, facts = token.lower().split(","), library_table()["ucc"]
    forms = {
        "collectives": {*words} <= {*facts["collectives"]},
        "memories": {*words} <= {*facts["memories"]},
        "score": re.fullmatch("[0-9]+|inf", token.lower()),
        "sizes": all("-" in word and _span(word) != (1, 0) for word in words),
        "teams": re.fullmatch(r"\[[0-9]+(-([0-9]+|inf))?(,[0-9]+(-([0-9]+|inf))?)*\]", token),
        "algorithm": token.startswith("@"),
    }
    return next((kind for kind, fits in forms.items() if fits), "")


def _read_section(table: TuningTable, library: str, section: str, line: int) -> None:
    tokens = dict[str, str]()
    for token in section.split(":"):
        kind = _kind(token)
        if not kind or kind in tokens:
            known = [*library_table()["ucc"]["collectives"], *library_table()["ucc"]["memories"]]
            hint = "choose from host, cuda, rocm" if token.lower() in ("cpu", "gpu") else known
            table.add("unknown_name", line, token, what="further token of UCC", outcome=_FAILS, known=hint)
        tokens.setdefault(kind, token)
    algorithm, score = tokens.get("algorithm", "")[1:], tokens.get("score", "")
    if not (algorithm or score):
        table.add("no_effect", line, section)
    if algorithm and "collectives" not in tokens:
        table.add("all_collectives", line, section, name=algorithm)
    sizes = [(first, last - (last < UNLIMITED)) for first, last in map(_span, tokens.get("sizes", "0-inf").split(","))]
    teams = [
        _span(each if "-" in each else f"{each}-{each}") for each in tokens.get("teams", "[0-inf]")[1:-1].split(",")
    ]
    conditions = tuple(filter(None, tokens.get("memories", "").split(",")))
    for collective in filter(None, tokens.get("collectives", "").lower().split(",")):
        algorithms = library_algorithms(library).get(collective, {})
        named = next((each.name for each in algorithms.values() if algorithm in (each.name, str(each.id))), "")
        if algorithm and not named:
            table.add("unknown_algorithm", line, algorithm, collective=collective, outcome=_FAILS, known=[*algorithms])
        parameters: dict[str, int | str] = {"score": score} if score else {}
        rule = TuningRule(
            collective=collective, algorithm=named or algorithm, line=line, conditions=conditions, parameters=parameters
        )
        table.rules += [replace(rule, bytes=size, ranks=ranks) for size in sizes for ranks in teams]
        table.check_ranks(library, table.rules[-1])


def _span(text: str) -> Span:
    """Return a range such as 0-4k or 2-inf; (1, 0) if it is none."""
    first, _, last = text.partition("-")
    try:
        return parse_size(first), UNLIMITED if last.lower() == "inf" else parse_size(last)
    except BadInputError:
        return 1, 0


def write_ucc_tune(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return rules as an assignment of UCC_TL_UCP_TUNE, below a comment; other calls get UCC's own choice."""
    sections = []
    for rule in reversed([*rules]):  # a later one replaces an earlier one
        ends = [(str(first), "inf" if last == UNLIMITED else str(last)) for first, last in (rule.bytes, rule.ranks)]
        size = f"{ends[0][0]}-{ends[0][1] if rule.bytes[1] == UNLIMITED else rule.bytes[1] + 1}"
        teams = [] if rule.ranks == ANY else [f"[{'-'.join(ends[1])}]"]
        sections.append(":".join((rule.collective, size, "host", *teams, "inf", f"@{rule.algorithm}")))
    return "\n".join([*(f"# {line}" for line in comment.splitlines()), f"UCC_TL_UCP_TUNE={'#'.join(sections)}", ""])
