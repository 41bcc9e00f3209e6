"""Lines of the public example plugin of NCCL 2.30 (plugins/tuner/example), which RCCL from 2.28 on reads by itself.

``collective,first,last,algorithm,protocol,channels,nodes,ranks[,pipe operations[,registered buffer]]``; sizes are the
larger one of what a rank sends and receives; -1 means any; the first line that matches wins.
"""

import re
from collections.abc import Iterable

from hpccoll.cases.library_algorithms import library_table
from hpccoll.extensions.tables.formats.tuning_rule import (
    ANY,
    MAX_INT,
    UNLIMITED,
    Span,
    TuningRule,
    TuningTable,
    span_words,
    uncovered,
)

MAX_LINE_CHARACTERS = 255
_FORM = "collective,first,last,algorithm,protocol,channels,nodes,ranks"


def read_nccl_csv(text: str) -> TuningTable:
    """Read lines as the example plugin does: unknown words become allreduce, ring and simple."""
    table = _read(text, "nccl-csv")
    table.add("symmetric", 0, None)
    table.add("as_plugin", 0, None)
    return table


def read_rccl_csv(text: str) -> TuningTable:
    """Read lines as RCCL does: it skips lines with unknown words, and knows its own number of channels."""
    return _read(text, "rccl-csv")


def _read(text: str, name: str) -> TuningTable:
    table = TuningTable(name)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_LINE_CHARACTERS:
            table.add("long_line", number, len(line))
        chunks = [line[at : at + MAX_LINE_CHARACTERS] for at in range(0, len(line), MAX_LINE_CHARACTERS)]
        for chunk in chunks:  # as fgets returns them
            if chunk.strip() and not (chunk.lstrip() if name == "rccl-csv" else chunk).startswith("#"):
                _read_line(table, number, chunk)
    table.check_order()
    _check_catch_all(table)
    return table


def _read_line(table: TuningTable, line: int, text: str) -> None:
    facts, rccl = library_table()["nccl"], table.format == "rccl-csv"
    fields = [each.strip() for each in text.split(",") if each]  # strtok knows no empty fields
    if "" in fields or ",," in text:
        table.add("line_skipped", line, text, why="has an empty field, and those behind it move up", form=_FORM)
    if len(fields) < 8 or (rccl and "" in fields):
        if not text.lstrip().startswith("#"):
            table.add("line_skipped", line, len(fields), why="fields are fewer than 8", form=_FORM)
        return
    words, known = [], True
    for what, word, choices, other in (
        ("collective", fields[0], facts["collectives"], "allreduce"),
        ("algorithm", fields[3], facts["algorithms"], "ring"), ("protocol", fields[4], facts["protocols"], "simple"),
    ):  # fmt: skip
        if word not in choices:
            known = False
            table.add("taken_for", line, word, what=what, taken=other, known=choices)
        words.append(word if word in choices else other)
    if rccl and not known:
        return
    first, last, channels, nodes, ranks, *rest = (
        _number(table, line, each, UNLIMITED if place < 2 else MAX_INT)
        for place, each in enumerate((*fields[1:3], *fields[5:10]))
    )
    collective, algorithm, protocol = words
    if channels == -1 and not rccl:
        table.add("one_channel", line, channels)
    offered = facts["protocols"] if algorithm in facts["every_protocol"] else ["simple"]
    if collective not in facts["functions"][algorithm] or protocol not in offered:
        names = [f"{each} over {p}" for each in facts["algorithms"] if collective in facts["functions"][each]
                 for p in (facts["protocols"] if each in facts["every_protocol"] else ["simple"])]  # fmt: skip
        table.add("not_offered", line, algorithm, protocol=protocol, collective=collective, known=", ".join(names))
    if 0 in (nodes, ranks):
        table.add("never_matches", line, 0, why="no communicator has 0 nodes or ranks; any number is -1")
    conditions = tuple(f"{key}={got}" for key, got in zip(("numPipeOps", "regBuff"), rest, strict=False) if got != -1)
    spans: dict[str, Span] = {
        "ranks": ANY if ranks == -1 else (ranks, ranks),
        "nodes": ANY if nodes == -1 else (nodes, nodes),
    }
    table.rules.append(
        TuningRule(collective=collective, algorithm=algorithm, bytes=(first, last), conditions=conditions, line=line,
                   parameters={"protocol": protocol, "channels": channels}, ranks=spans["ranks"], nodes=spans["nodes"])
    )  # fmt: skip


def _number(table: TuningTable, line: int, text: str, largest: int) -> int:
    match = re.match(r"-?[0-9]{1,40}", text)
    value = int(match[0]) if match else 0
    if not match or match[0] != text:
        table.add("no_suffix", line, text, read=value)
    if largest > MAX_INT:
        return value % (UNLIMITED + 1)  # as strtoull returns it
    if value > largest:
        table.add("too_large", line, value, what="a number", last=largest, outcome="atoi makes another number of it")
    return value


def _check_catch_all(table: TuningTable) -> None:
    for collective in library_table()["nccl"]["collectives"]:
        whole = TuningRule(collective=collective, algorithm="")
        gaps = uncovered(ANY, (rule.bytes for rule in table.rules if rule.covers(whole)))
        if gaps:
            kind = "no_rule" if table.format == "rccl-csv" else "no_catch_all"
            table.add(kind, 0, collective, span=" and ".join(map(span_words, gaps)))


def write_nccl_csv(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return rules as lines for NCCL's example plugin, ending with one for all other calls.

    The plugin decides the number of channels where it is 0, which it is unless a rule has the parameter ``channels``.
    Other calls get a ring with the protocol simple, because the plugin cannot leave the algorithm to NCCL.

    Args:
        rules: rules with the parameter ``protocol``; ranks and nodes are one number each, or any.
        comment: lines for the head, without #.
    """
    others = [TuningRule(collective=each, algorithm="ring") for each in library_table()["nccl"]["collectives"]]
    lines = [f"# {line}"[:MAX_LINE_CHARACTERS] for line in comment.splitlines()]
    for rule in (*rules, *others):
        given = {"protocol": "simple", "channels": 0, **rule.parameters}
        sizes = -1 if rule.nodes == ANY else rule.nodes[0], -1 if rule.ranks == ANY else rule.ranks[0]
        fields = (rule.collective, *rule.bytes, rule.algorithm, given["protocol"], given["channels"], *sizes)
        lines.append(",".join(map(str, fields)))
    return "\n".join((*lines, ""))
