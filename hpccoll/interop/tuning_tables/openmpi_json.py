"""Rule files in JSON of component tuned of Open MPI 6.0 (coll_tuned_dynamic_file.c of 8efebee).

The reader skips keys that it does not know, and takes the first rule that matches; without one, Open MPI decides.
"""

import json
from collections.abc import Iterable, Iterator

from hpccoll.cases.library_algorithms import library_algorithms, library_table
from hpccoll.interop.tuning_tables.json_lines import LinedText, LinedValue
from hpccoll.interop.tuning_tables.tuning_rule import (
    MAX_INT,
    UNLIMITED,
    Span,
    TuningRule,
    TuningTable,
    rules_by_ranks,
    size_steps,
)

_TOP = ("rule_file_version", "module", "collectives", "comment")
_OF_RANKS = ("comm_size_min", "comm_size_max", "comm_rank_distribution", "rules")
_OF_SIZES = ("msg_size_min", "msg_size_max", "alg", "faninout", "seg_size", "reqs")
_PARAMETERS = {
    "faninout": "faninout",
    "segsize": "seg_size",
    "max_requests": "reqs",
}  # by the names of the classic form
_DISTRIBUTIONS = ("any", "one-per-node", "single-node")
_IGNORED = "Open MPI ignores the whole file, without a message"


def read_openmpi_json(text: str) -> TuningTable:
    """Read a rule file in JSON as Open MPI 6.0 does."""
    table, lined = TuningTable("openmpi-json"), LinedText(text)
    try:
        root = lined.read()
    except ValueError as error:
        table.add("malformed", lined.line, "JSON", why=str(error), outcome=_IGNORED)
        return table
    for line in lined.trailing_commas:
        table.add("trailing_comma", line, "the list", outcome=_IGNORED)
    table.add("json_in_5", 0, None, severity="warning")
    for name, line, value in _members(table, root, _TOP, "collectives"):
        if name not in library_table()["openmpi"]["ids"]:
            table.add(
                "unknown_name", line, name, what="collective", outcome=_IGNORED, known=[*library_algorithms("openmpi")]
            )
        before = list[TuningRule]()
        for of_ranks in value.items():
            begin = len(table.rules)
            _read_ranks(table, name, of_ranks)
            if begin < len(table.rules) and (other := next((o for o in before if o.covers(table.rules[begin])), None)):
                why = f"the ranks of the rules in line {other.line} include these"
                table.add("never_matches", of_ranks.line, name, why=why)
            before += table.rules[begin : begin + 1]
    table.check_order()
    return table


def _members(
    table: TuningTable, value: LinedValue, known: tuple[str, ...], inner: str
) -> Iterator[tuple[str, int, LinedValue]]:
    """Find unknown keys of an object, and yield the members of one of its values."""
    for name, line, _ in value.members:
        if name not in known:
            table.add("misspelt_key", line, name, known=known)
    found = value.get(inner)
    if found is None:
        table.add("malformed", value.line, inner, why="it is missing", outcome=_IGNORED)
    yield from found.members if found else ()


def _read_ranks(table: TuningTable, name: str, value: LinedValue) -> None:
    [*_members(table, value, _OF_RANKS, "rules")]
    distribution = value.get("comm_rank_distribution")
    word = distribution.value if distribution else "any"
    if distribution and word not in _DISTRIBUTIONS:
        table.add(
            "unknown_name", distribution.line, word, what="distribution", outcome="it means any", known=_DISTRIBUTIONS
        )
    rules = value.get("rules")
    for rule in rules.items() if rules else ():
        for key, line, _ in rule.members:
            if key not in _OF_SIZES:
                table.add("misspelt_key", line, key, known=_OF_SIZES)
        algorithm, algorithms = rule.get("alg"), library_algorithms("openmpi").get(name, {})
        chosen = algorithm.value if algorithm else None
        found = next((each.name for each in algorithms.values() if chosen in (each.name, each.id)), None)
        if not found and chosen not in ("ignore", 0):
            table.add("unknown_algorithm", rule.line, chosen, collective=name, outcome="the rule is not used",
                      known=[*algorithms])  # fmt: skip
        parameters = {
            name: got.value
            for name, key in _PARAMETERS.items()
            if (got := rule.get(key)) and type(got.value) in (int, str)
        }
        table.rules.append(
            TuningRule(collective=name, algorithm=found or str(chosen), line=rule.line, parameters=parameters,
                       bytes=_span(table, rule, *_OF_SIZES[:2]), ranks=_span(table, value, *_OF_RANKS[:2]),
                       conditions=(str(word),) if word in _DISTRIBUTIONS[1:] else ())
        )  # fmt: skip
        table.check_ranks("openmpi", table.rules[-1])


def _span(table: TuningTable, value: LinedValue, first: str, last: str) -> Span:
    ends = []
    for key, default in ((first, 0), (last, UNLIMITED)):
        got = value.get(key)
        number = UNLIMITED if got and got.value in ("inf", "Inf", "INF") else got.value if got else default
        if type(number) is not int:
            table.add("malformed", value.line, number, why=f"as {key} is no number and not inf", outcome=_IGNORED)
        ends.append(number if type(number) is int else default)
    return ends[0], ends[1]


def write_openmpi_json(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return rules as JSON for Open MPI 6.0; other calls get its fixed decision.

    Args:
        rules: rules whose algorithms are names of Open MPI; of overlapping ones the first counts.
        comment: what the key ``comment``, which Open MPI skips, is to say.
    """
    collectives: dict[str, list[dict[str, object]]] = {}
    for name, spans in rules_by_ranks(rules).items():
        for ranks, applying in spans:
            of_sizes = [
                {
                    "msg_size_min": size[0],
                    "msg_size_max": "inf" if size[1] == UNLIMITED else size[1],
                    "alg": rule.algorithm,
                }
                | {_PARAMETERS[key]: value for key, value in rule.parameters.items()}
                for size, rule in size_steps(applying)
                if rule
            ]
            ends = {"comm_size_min": ranks[0], "comm_size_max": min(ranks[1], MAX_INT)}
            collectives.setdefault(name, []).extend([{**ends, "rules": of_sizes}] if of_sizes else [])
    content = {"rule_file_version": 3, "module": "tuned", "comment": comment, "collectives": collectives}
    return json.dumps(content, indent=1) + "\n"
