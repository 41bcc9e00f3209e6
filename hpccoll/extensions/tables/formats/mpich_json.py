"""Selection trees of MPICH 5 in JSON, for MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE (src/mpi/coll/src/csel.c of 5.0.1).

A tree replaces the one of MPICH. At each level the first condition that holds decides, and there is
no way back: a call for which no condition of a level holds aborts. Sizes go through atoi.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from hpccoll.cases.library_algorithms import (
    LibraryAlgorithm,
    default_parameters,
    library_algorithms,
    library_table,
)
from hpccoll.common.text import first_few, join_words
from hpccoll.extensions.tables.formats.json_lines import members_of
from hpccoll.extensions.tables.formats.tuning_rule import (
    ANY,
    MAX_INT,
    Span,
    TuningRule,
    TuningTable,
    rules_by_ranks,
    size_steps,
)

_BOUND = re.compile(r"(comm_size|comm_avg_ppn|avg_msg_size|total_msg_size|count)(<=?)([0-9]{1,40})")
_WORDS = {
    "comm_type": ("intra", "inter"), "comm_hierarchy": ("parent", "node_roots", "node", "flat"),
    "comm_size": ("pow2", "node_comm_size"), **dict.fromkeys(
        ("is_commutative", "is_op_built_in", "is_sendbuf_inplace", "is_block_regular", "is_node_consecutive",
         "is_multi_threaded"), ("yes", "no")),
}  # fmt: skip
_GUARDS = {
    "pow2": "comm_size=pow2",
    "commutative": "is_commutative=yes",
    "builtin": "is_op_built_in=yes",
    "count": "not count<pow2",
    "inplace": "is_sendbuf_inplace=yes",
    "noinplace": "is_sendbuf_inplace=no",
    "parent": "comm_hierarchy=parent",
    "consecutive": "is_node_consecutive=yes",
}
"""The condition that says what an algorithm needs; *not* stands for that of a call for which it does not hold."""
_OF_COMMUNICATORS = (
    "comm_type",
    "comm_size",
    "comm_hierarchy",
    "comm_avg_ppn",
    "is_node_consecutive",
    "any",
)
_ABORTS = "MPI_Init aborts"


def json_name(collective: str, algorithm: LibraryAlgorithm) -> str:
    """Return an algorithm as MPICH's JSON names it: ``MPIR_Allreduce_intra_ring``."""
    place = "inter_" if algorithm.inter else "intra_"
    if algorithm.name.startswith("allcomm_"):
        place = ""
    return f"MPIR_{collective.capitalize()}_{place}{algorithm.name}"


@cache
def _json_names() -> dict[str, tuple[str, LibraryAlgorithm]]:
    names = dict[str, tuple[str, LibraryAlgorithm]]()
    for collective, algorithms in library_algorithms("mpich").items():
        blocking = collective[1:] not in library_algorithms("mpich")
        several = [
            *algorithms.values(),
            *([LibraryAlgorithm("allcomm_nb", -1)] if blocking else []),
        ]
        names |= {
            json_name(collective, algorithm): (collective, algorithm) for algorithm in several
        }
    return names


def read_mpich_json(text: str) -> TuningTable:
    """Read a selection tree as MPICH 5.0 does; of intercommunicators there are findings, and no rules.

    A tree of the layers above (compositions, shared memory) may have gaps, because these hand a
    call on.
    """
    table = TuningTable("mpich")
    root, _ = table.parse_json(text, _ABORTS)
    reader = _TreeReader(
        table, whole=not re.search('"(composition=|algorithm=MPIDI_)', re.sub(r"\s", "", text))
    )
    seen = set()
    for key, line, value in members_of(root):
        name = re.sub(r"\s", "", key).removeprefix("collective=")
        collectives = list(library_algorithms("mpich"))
        seen.add(name)
        if not key.strip().startswith("collective") or name not in collectives:
            table.add(
                "unknown_name", line, key, what="collective", outcome=_ABORTS, known=collectives
            )
        else:
            reader.read(name, value, (), line)
    missing = [name for name in library_algorithms("mpich") if name not in seen]
    if not reader.whole:
        table.add("not_checked", 0, None, what="a tree of compositions or shared memory")
    elif missing:
        table.add(
            "missing_collectives", 0, None, names=join_words(first_few(missing, 3, "collective"))
        )
    return table


class _TreeReader:
    """A tree that is being read, depth first."""

    def __init__(self, table: TuningTable, *, whole: bool) -> None:
        self.table = table
        self.whole = whole
        self.names = _json_names()

    def read(self, collective: str, node: object, path: tuple[str, ...], at: int) -> None:
        """Read what is below conditions, which are in ``path``; one that failed before is there with *not*."""
        failed, last = list[str](), ""
        for key, line, below in members_of(node):
            word = re.sub(r"\s", "", key)
            if word.startswith(("algorithm=", "composition=")):
                if len(members_of(node)) > 1:
                    self.table.add(
                        "never_matches",
                        line,
                        key,
                        why="what stands beside an algorithm is not used",
                    )
                self._add(collective, word.partition("=")[2], line, below, path)
                return
            if last == "any":
                self.table.add("never_matches", line, key, why="a condition before it always holds")
            elif any(
                _bound(condition) >= _bound(word)
                for condition in failed
                if _kind(condition) == _kind(word) and _bound(word) >= 0
            ):
                self.table.add("never_matches", line, key, why="a condition before it includes it")
            last = self._check(collective, word, line, failed)
            self.read(
                collective,
                below,
                (*path, *(f"not {condition}" for condition in failed), word),
                line,
            )
            failed.append(word)
        if self.whole and last != "any":
            kind = _kind(failed[-1]) if failed else "comm_size"
            self.table.add("gap_aborts", at, collective, what="some calls", last=f"{kind}=any")

    def _check(self, collective: str, word: str, line: int, failed: list[str]) -> str:
        """Check a condition, and return ``any`` if one of it and those before it always holds."""
        kind = _kind(word)
        value = word[len(_kind(word)) :]
        if collective in library_table()["mpich"]["conditions"]["total_msg_size"]:
            blocking = collective
        else:
            blocking = collective[1:]
        collectives = library_table()["mpich"]["conditions"].get(kind, [blocking])
        if word == "any" or value == "=any":
            return "any"
        if (
            not _BOUND.fullmatch(word)
            and word != "count<pow2"
            and value[1:] not in _WORDS.get(kind, ())
        ):
            choices = [
                f"{name}={word_of_kind}" for name, words in _WORDS.items() for word_of_kind in words
            ]
            self.table.add(
                "unknown_name", line, word, what="condition", outcome=_ABORTS, known=choices
            )
        elif _bound(word) > MAX_INT:
            self.table.add(
                "too_large",
                line,
                _bound(word),
                what=kind,
                last=MAX_INT,
                outcome="atoi makes another number of it",
            )
        if blocking not in collectives:
            self.table.add(
                "undefined_condition",
                line,
                kind,
                collective=collective,
                known=f"it is for {', '.join(collectives)}",
            )
        elif kind == "total_msg_size" and _counts_elements(collective, word):
            self.table.add("elements", line, kind, collective=collective)
        elif kind == "total_msg_size" and blocking in ("allreduce", "bcast", "reduce"):
            self.table.add("ranks_times", line, kind, collective=collective)
        alternatives = {
            condition.partition("=")[2] for condition in failed if _kind(condition) == kind
        }
        either = kind in _WORDS and {value[1:], *alternatives} >= {*_WORDS[kind][:2]}
        # the reader takes the other words for each other
        is_parent_or_not = kind == "comm_hierarchy" and "parent" in alternatives
        if kind != "comm_size" and (either or is_parent_or_not):
            return "any"
        return word

    def _add(
        self, collective: str, name: str, line: int, node: object, path: tuple[str, ...]
    ) -> None:
        if not self.whole:
            return
        collective_of_name, algorithm = self.names.get(name, ("", None))
        inter = "comm_type=inter" in path
        if (
            not algorithm
            or collective_of_name != collective
            or (algorithm.inter != inter and collective != "scan")
        ):
            choices = [
                algorithm_name
                for algorithm_name, (its, candidate) in self.names.items()
                if its == collective and candidate.inter == inter
            ]
            outcome = f"{_ABORTS}, or the call crashes"
            self.table.add(
                "unknown_algorithm",
                line,
                name,
                collective=collective,
                outcome=outcome,
                known=choices,
            )
            return
        fatal = library_table()["mpich"]["fatal_needs"]
        ranks = _span(path, "comm_size")
        # ccl itself finds whether its need is met
        for need in filter(_GUARDS.get, algorithm.needs):
            guarded = _GUARDS[need] in path or any(
                f"not {condition}" in path for condition in _OTHERS.get(_GUARDS[need], ())
            )
            if not guarded and not (
                need == "pow2" and ranks[0] == ranks[1] and ranks[0] & (ranks[0] - 1) == 0
            ):
                words = library_table()["needs"][need]
                severity = "warning"
                outcome = "other calls are wrong or slow"
                if need in fatal:
                    severity = "critical"
                    outcome = "other calls abort or are wrong"
                guard = _GUARDS[need].replace("not count<pow2", "a condition behind count<pow2")
                self.table.add(
                    "unguarded",
                    line,
                    name,
                    need=words,
                    severity=severity,
                    outcome=outcome,
                    guard=guard,
                )
        measures = [
            kind for kind in ("avg_msg_size", "total_msg_size", "count") if _span(path, kind) != ANY
        ]
        measure = measures[0] if measures else ""
        conditions = tuple(
            condition
            for condition in path
            if not _BOUND.search(condition) and "=any" not in condition and condition != "not any"
        )
        parts = (re.sub(r"\s", "", key).partition("=") for key, _, _ in members_of(node))
        parameters = {key: value for key, _, value in parts}
        defaults = default_parameters("mpich", collective, algorithm.name)
        if unset := [key for key in defaults if not parameters.get(key)]:
            examples = ", ".join(f'"{key}={defaults[key]}"' for key in unset)
            self.table.add("unset_parameters", line, name, keys=", ".join(unset), known=examples)
        if not inter:
            self.table.rules.append(
                TuningRule(
                    collective=collective,
                    algorithm=algorithm.name,
                    ranks=ranks,
                    measure=measure,
                    line=line,
                    bytes=_span(path, measure),
                    conditions=conditions,
                    parameters=parameters,
                )
            )


def _counts_elements(collective: str, condition: str) -> bool:
    """Return whether a bound of ``total_msg_size`` counts elements. MPICH's own bound, which does, is left out.

    A table replaces all of MPICH's own, and repeats its thresholds where nothing is to change.
    """
    table = library_table()["mpich"]
    if collective not in table["sizes_in_elements"]:
        return False
    return condition not in _conditions(table["defaults"].get(collective, ""))


def _conditions(below: str | Mapping[str, Any]) -> set[str]:
    """Return all conditions of a table of MPICH's thresholds."""
    if isinstance(below, str):
        return set()
    conditions = set(below)
    for inner in below.values():
        conditions |= _conditions(inner)
    return conditions


_OTHERS = {
    "is_commutative=yes": ("is_commutative=no",),
    "is_op_built_in=yes": ("is_op_built_in=no",),
    "is_sendbuf_inplace=yes": ("is_sendbuf_inplace=no",),
    "is_sendbuf_inplace=no": ("is_sendbuf_inplace=yes",),
    "is_node_consecutive=yes": ("is_node_consecutive=no",),
    "comm_hierarchy=parent": ("comm_hierarchy=flat",),
}


def _kind(word: str) -> str:
    return re.split("[<=]", word)[0]


def _bound(word: str) -> int:
    """Return the largest number for which a condition holds; -1 if it is about none."""
    match = _BOUND.fullmatch(word)
    if match:
        return int(match[3]) - (match[2] == "<")
    return -1


def _span(path: Iterable[str], kind: str) -> Span:
    (first, last), after_call_condition = ANY, False
    for word in path:
        condition = word.removeprefix("not ")
        bound = _bound(condition)
        # MPIR_Csel_search takes comm_size< for <=; what conditions on calls do not precede,
        # MPIR_Csel_prune decides.
        bound += (
            after_call_condition
            and bound >= 0
            and condition.startswith("comm_size<")
            and "=" not in condition
        )
        after_call_condition |= _kind(condition) not in _OF_COMMUNICATORS
        if _kind(word) == f"not {kind}" and bound >= 0:
            first = max(first, bound + 1)
        elif _kind(word) == kind and bound >= 0:
            last = min(last, bound)
    return first, last


def write_mpich_json(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return a whole tree for MPICH 5.0: rules for calls on one communicator; for others, MPICH's own thresholds.

    A rule whose algorithm needs something applies only where that holds. Sizes are avg_msg_size for
    collectives of one vector, and total_msg_size for others; from 2 GiB on, one rule is that of
    all. MPICH's reader, json-c, skips the comment; other readers may not.

    Args:
        rules: rules whose algorithms are the words of MPICH's CVARs; of overlapping ones the first
            counts.
        comment: a text for the head.
    """
    by_ranks = rules_by_ranks(rules)
    defaults = library_table()["mpich"]["defaults"]
    tree: dict[str, Any] = {}
    for collective, algorithms in library_algorithms("mpich").items():
        intra = [algorithm for algorithm in algorithms.values() if not algorithm.inter]
        inter = [algorithm for algorithm in algorithms.values() if algorithm.inter]
        first = intra[0].name if intra else "allcomm_nb"
        default = _decisions(collective, defaults.get(collective, first))
        branches = [
            (ranks, _sizes(collective, applying, default))
            for ranks, applying in by_ranks.get(collective, ())
        ]
        if branches:
            chosen = _chain("comm_size", branches)
        else:
            chosen = default
        if inter:
            chosen = {"comm_type=intra": chosen, "comm_type=inter": _leaf(collective, inter[0])}
        tree[f"collective={collective}"] = chosen
    return _head(comment) + json.dumps(tree, indent=1) + "\n"


def write_mpich_compositions(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return a tree for MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE, which hands the calls of rules on whole.

    On nodes with several ranks MPICH composes calls of levels before it looks at the tree of
    ``write_mpich_json``. Other calls are composed as without a tree.
    """
    by_ranks = rules_by_ranks(rules)
    table = library_table()["mpich"]
    tree: dict[str, Any] = {}
    for collective, composed in table["compositions"].items():
        default = _decisions(collective, composed, _composition)
        whole = _composition(collective, table["flat"].get(collective, ""))
        branches = [
            (ranks, _sizes(collective, applying, default, whole))
            for ranks, applying in by_ranks.get(collective, ())
        ]
        if branches:
            chosen = _chain("comm_size", branches)
        else:
            chosen = default
        tree[f"collective={collective}"] = {"comm_type=intra": chosen}
    return _head(comment) + json.dumps(tree, indent=1) + "\n"


def _composition(collective: str, word: str) -> dict[str, Any]:
    return {f"composition=MPIDI_{collective.capitalize()}_intra_composition_{word}": {}}


def _head(comment: str) -> str:
    if not comment:
        return ""
    return f"/* {comment.replace('*/', '* /')} */\n"


def _chain(kind: str, branches: list[tuple[Span, Any]]) -> dict[str, Any]:
    """Return branches for ascending ranges of a number, which together are all numbers; an int has no later ones."""
    chain = {}
    for (first, last), below in branches:
        if last > 0 and first <= MAX_INT + 1:
            if last > MAX_INT:
                condition = f"{kind}=any"
            else:
                condition = f"{kind}<={last}"
            chain[condition] = below
    return chain


def _sizes(collective: str, rules: list[TuningRule], default: Any, chosen: Any = None) -> Any:
    """Return decisions by size: ``chosen``, or the algorithm of a rule, where there is a rule."""
    vector = (
        collective in library_table()["mpich"]["conditions"]["avg_msg_size"]
        and collective != "alltoall"
    )
    kind = "avg_msg_size" if vector else "total_msg_size"
    branches = []
    for span, rule in size_steps(rules):
        decision = default
        if rule:
            decision = chosen or _guarded(collective, rule, default)
        branches.append((span, decision))
    if len(branches) > 1:
        return _chain(kind, branches)
    return branches[0][1]


def _guarded(collective: str, rule: TuningRule, default: Any) -> Any:
    """Return the algorithm of a rule below the conditions that say what it needs."""
    algorithm = library_algorithms("mpich")[collective][rule.algorithm]
    tree: Any = _leaf(collective, algorithm, rule.parameters)
    for need in filter(_GUARDS.get, algorithm.needs):
        guard = _GUARDS[need]
        kind = _kind(guard.removeprefix("not "))
        refused = guard.startswith("not ")
        tree = {
            guard.removeprefix("not "): default if refused else tree,
            f"{kind}=any": tree if refused else default,
        }
    return tree


def _default_leaf(collective: str, word: str) -> dict[str, Any]:
    return _leaf(
        collective, library_algorithms("mpich")[collective].get(word) or LibraryAlgorithm(word, -1)
    )


def _decisions(
    collective: str, below: str | Mapping[str, Any], leaf: Callable[[str, str], Any] = _default_leaf
) -> Any:
    """Return decisions of a table of MPICH's thresholds as its JSON has them; ``leaf`` returns what words stand for."""
    if isinstance(below, str):
        return leaf(collective, below)
    before, tree = "comm_size", {}
    for condition, inner in below.items():
        tree[f"{before}=any" if condition == "any" else condition] = _decisions(
            collective, inner, leaf
        )
        before = _kind(condition)
    return tree


def _leaf(
    collective: str,
    algorithm: LibraryAlgorithm,
    chosen: Mapping[str, int | str] = MappingProxyType({}),
) -> dict[str, Any]:
    parameters = {**default_parameters("mpich", collective, algorithm.name), **chosen}
    return {
        f"algorithm={json_name(collective, algorithm)}": {
            f"{key}={value}": {} for key, value in parameters.items()
        }
    }
