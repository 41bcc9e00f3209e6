"""Rule files in JSON of component tuned of Open MPI 6.0 (coll_tuned_dynamic_file.c of 8efebee).

The reader skips keys that it does not know, and takes the first rule that matches; without one,
Open MPI decides. Its parser (json-parser in opal/util/json) takes a comma before an end, as Open
MPI's own guide has one, and no comment.
"""

import json
from collections.abc import Iterable
from typing import TypeVar

from hpccoll.cases.library_algorithms import default_parameters, library_algorithms, library_table
from hpccoll.extensions.tables.formats.json_lines import members_of, value_of
from hpccoll.extensions.tables.formats.tuning_rule import (
    MAX_INT,
    UNLIMITED,
    Span,
    TuningRule,
    TuningTable,
    rules_by_ranks,
    size_steps,
)

_T = TypeVar("_T")
_TOP = ("rule_file_version", "module", "collectives", "comment", "$schema")
_OF_RANKS = ("comm_size_min", "comm_size_max", "comm_rank_distribution", "rules")
_OF_SIZES = ("msg_size_min", "msg_size_max", "alg", "faninout", "seg_size", "reqs")
_PARAMETERS = {"faninout": "faninout", "segsize": "seg_size", "max_requests": "reqs"}
"""The parameters by the names of the classic form."""
_DISTRIBUTIONS = ("any", "one-per-node", "single-node")
_IGNORED = "Open MPI ignores the whole file, without a message"


def read_openmpi_json(text: str) -> TuningTable:
    """Read a rule file in JSON as Open MPI 6.0 does."""
    table = TuningTable("openmpi-json")
    root, comments = table.parse_json(text, _IGNORED)
    for line in comments:
        table.add("json_comment", line, "/* */", outcome=_IGNORED)
    table.add("json_in_5", 0, None, severity="warning")
    _check_keys(table, root, _TOP)
    for name, line, value in _typed(
        table, _line(root) or 1, "collectives", value_of(root, "collectives"), tuple
    ):
        if name not in library_table()["openmpi"]["ids"]:
            collectives = list(library_algorithms("openmpi"))
            table.add(
                "unknown_name", line, name, what="collective", outcome=_IGNORED, known=collectives
            )
        before = list[TuningRule]()
        for ranks_entry in _typed(table, line, name, value, list):
            begin = len(table.rules)
            _read_ranks(table, name, ranks_entry, _line(ranks_entry) or line)
            added = table.rules[begin : begin + 1]
            if including := next(
                (earlier for earlier in before for rule in added if earlier.covers(rule)), None
            ):
                why = f"the ranks of the rules in line {including.line} include these"
                table.add("never_matches", _line(ranks_entry), name, why=why)
            before += added
    table.check_order()
    return table


def _line(value: object) -> int:
    return next((member.line for member in members_of(value)), 0)


def _typed(table: TuningTable, line: int, name: str, value: object, kind: type[_T]) -> _T:
    """Return a value that is to be a list, or a tuple for an object; an empty one, and a finding, for others."""
    if isinstance(value, kind):
        return value
    why = "is not an object"
    if kind is list:
        why = "is not a list"
    if value is None:
        why = "is missing"
    table.add("malformed", line, name, why=why, outcome=_IGNORED)
    return kind()


def _check_keys(table: TuningTable, value: object, keys: tuple[str, ...]) -> None:
    for name, line, _ in members_of(value):
        if name not in keys:
            table.add("misspelt_key", line, name, known=keys)


def _read_ranks(table: TuningTable, name: str, value: object, at: int) -> None:
    _check_keys(table, value, _OF_RANKS)
    ranks = _span(table, value, *_OF_RANKS[:2])
    word = value_of(value, "comm_rank_distribution", "any")
    if word not in _DISTRIBUTIONS:
        outcome = "Open MPI takes it for any"
        if not isinstance(word, str):
            outcome = _IGNORED
        table.add(
            "unknown_name",
            at,
            _shown(word),
            what="distribution",
            outcome=outcome,
            known=_DISTRIBUTIONS,
        )
    conditions = (str(word),) if word in _DISTRIBUTIONS[1:] else ()
    algorithms = library_algorithms("openmpi").get(name, {})
    for rule in _typed(table, at, "rules", value_of(value, "rules"), list):
        _check_keys(table, rule, _OF_SIZES)
        line = _line(rule) or at
        chosen = value_of(rule, "alg")
        algorithm = "ignore"
        if type(chosen) not in (str, int):
            why = "is neither a name nor a number"
            if chosen is None:
                why = "is missing"
            table.add(
                "malformed",
                line,
                "alg",
                why=why,
                outcome="calls of this rule get the fixed decision",
            )
        elif chosen not in ("ignore", 0):
            names = (
                listed.name for listed in algorithms.values() if chosen in (listed.name, listed.id)
            )
            algorithm = next(names, str(chosen))
            if algorithm not in algorithms:
                outcome = "the rule is not used"
                table.add(
                    "unknown_algorithm",
                    line,
                    chosen,
                    collective=name,
                    outcome=outcome,
                    known=[*algorithms],
                )
        present = {
            ours: key for ours, key in _PARAMETERS.items() if value_of(rule, key) is not None
        }
        parameters = {ours: _number(table, rule, key, 0) for ours, key in present.items()}
        table.rules.append(
            TuningRule(
                collective=name,
                algorithm=algorithm,
                bytes=_span(table, rule, *_OF_SIZES[:2]),
                ranks=ranks,
                conditions=conditions,
                line=line,
                parameters=parameters,
            )
        )
        table.check_ranks("openmpi", table.rules[-1])


def _span(table: TuningTable, value: object, first: str, last: str) -> Span:
    return _number(table, value, first, 0), _number(table, value, last, UNLIMITED)


def _number(table: TuningTable, value: object, key: str, default: int) -> int:
    number = value_of(value, key, default)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    if isinstance(number, str) and number.startswith(("inf", "Inf", "INF")):
        return UNLIMITED
    table.add(
        "malformed",
        _line(value),
        _shown(number),
        why=f"as {key} is neither a number nor inf",
        outcome=_IGNORED,
    )
    return default


def _shown(value: object) -> object:
    """Return a value as a finding shows it, without what is in it."""
    if isinstance(value, tuple):
        return "{...}"
    if isinstance(value, list):
        return "[...]"
    return value


def _size_rule(collective: str, size: Span, rule: TuningRule) -> dict[str, object]:
    """Return what the JSON says of a range of sizes."""
    first, last = size
    parameters = {**default_parameters("openmpi", collective, rule.algorithm), **rule.parameters}
    return {
        "msg_size_min": first,
        "msg_size_max": "inf" if last == UNLIMITED else last,
        "alg": rule.algorithm,
        **{_PARAMETERS[name]: value for name, value in parameters.items()},
    }


def write_openmpi_json(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return rules as JSON for Open MPI 6.0; other calls get its fixed decision.

    Args:
        rules: rules whose algorithms are names of Open MPI; of overlapping ones the first counts.
        comment: what the key ``comment``, which Open MPI skips, is to say.
    """
    collectives: dict[str, list[dict[str, object]]] = {}
    for name, spans in rules_by_ranks(rules).items():
        collectives[name] = []
        for (first, last), applying in spans:
            size_rules = []
            for size, rule in size_steps(applying):
                if rule:
                    size_rules.append(_size_rule(name, size, rule))
            if size_rules:
                ends = {"comm_size_min": first, "comm_size_max": min(last, MAX_INT)}
                collectives[name].append({**ends, "rules": size_rules})
    content = {
        "rule_file_version": 3,
        "module": "tuned",
        "comment": comment,
        "collectives": collectives,
    }
    return json.dumps(content, indent=1) + "\n"
