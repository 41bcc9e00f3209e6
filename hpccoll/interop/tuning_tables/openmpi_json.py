"""Rule files in JSON of component tuned of Open MPI 6.0 (coll_tuned_dynamic_file.c of 8efebee).

The reader skips keys that it does not know, and takes the first rule that matches; without one, Open MPI decides.
"""

import json
from collections.abc import Iterable

from hpccoll.cases.library_algorithms import library_algorithms, library_table
from hpccoll.interop.tuning_tables.json_lines import members_of, value_of
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
_PARAMETERS = {"faninout": "faninout", "segsize": "seg_size", "max_requests": "reqs"}
"""The parameters by the names of the classic form."""
_DISTRIBUTIONS = ("any", "one-per-node", "single-node")
_IGNORED = "Open MPI ignores the whole file, without a message"


def read_openmpi_json(text: str) -> TuningTable:
    """Read a rule file in JSON as Open MPI 6.0 does."""
    table = TuningTable("openmpi-json")
    root, commas = table.parse_json(text, _IGNORED)
    for line in commas:
        table.add("trailing_comma", line, "the list", outcome=_IGNORED)
    table.add("json_in_5", 0, None, severity="warning")
    _check_keys(table, root, _TOP, "collectives")
    for name, line, value in members_of(value_of(root, "collectives")):
        if name not in library_table()["openmpi"]["ids"]:
            known = [*library_algorithms("openmpi")]
            table.add("unknown_name", line, name, what="collective", outcome=_IGNORED, known=known)
        before = list[TuningRule]()
        for of_ranks in value if isinstance(value, list) else ():
            begin = len(table.rules)
            _read_ranks(table, name, of_ranks)
            added = table.rules[begin : begin + 1]
            if other := next((each for each in before for rule in added if each.covers(rule)), None):
                why = f"the ranks of the rules in line {other.line} include these"
                table.add("never_matches", _line(of_ranks), name, why=why)
            before += added
    table.check_order()
    return table


def _line(value: object) -> int:
    return next((each.line for each in members_of(value)), 0)


def _check_keys(table: TuningTable, value: object, known: tuple[str, ...], required: str) -> None:
    for name, line, _ in members_of(value):
        if name not in known:
            table.add("misspelt_key", line, name, known=known)
    if value_of(value, required) is None:
        table.add("malformed", _line(value), required, why="is missing", outcome=_IGNORED)


def _read_ranks(table: TuningTable, name: str, value: object) -> None:
    _check_keys(table, value, _OF_RANKS, "rules")
    ranks, word = _span(table, value, *_OF_RANKS[:2]), value_of(value, "comm_rank_distribution", "any")
    if word not in _DISTRIBUTIONS:
        outcome = "Open MPI takes it for any"
        table.add("unknown_name", _line(value), word, what="distribution", outcome=outcome, known=_DISTRIBUTIONS)
    conditions = (str(word),) if word in _DISTRIBUTIONS[1:] else ()
    algorithms, rules = library_algorithms("openmpi").get(name, {}), value_of(value, "rules")
    for rule in rules if isinstance(rules, list) else ():
        _check_keys(table, rule, _OF_SIZES, "alg")
        chosen = value_of(rule, "alg")
        found = next((each.name for each in algorithms.values() if chosen in (each.name, each.id)), "")
        if not found and chosen not in ("ignore", 0):
            outcome = "the rule is not used"
            table.add("unknown_algorithm", _line(rule), chosen, collective=name, outcome=outcome, known=[*algorithms])
        given = {ours: value_of(rule, key) for ours, key in _PARAMETERS.items()}
        parameters = {ours: number for ours, number in given.items() if isinstance(number, int)}
        word_of = found or str(chosen)
        table.rules.append(
            TuningRule(collective=name, algorithm=word_of, bytes=_span(table, rule, *_OF_SIZES[:2]), ranks=ranks,
                       conditions=conditions, line=_line(rule), parameters=parameters)
        )  # fmt: skip
        table.check_ranks("openmpi", table.rules[-1])


def _span(table: TuningTable, value: object, *keys: str) -> Span:
    ends = [0, UNLIMITED]
    for place, key in enumerate(keys):
        number = value_of(value, key, ends[place])
        if isinstance(number, int):
            ends[place] = number
        elif number not in ("inf", "Inf", "INF"):
            table.add("malformed", _line(value), number, why=f"as {key} is no number and not inf", outcome=_IGNORED)
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
