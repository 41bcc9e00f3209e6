"""Lines of the public example plugin of NCCL 2.30 (plugins/tuner/example), which RCCL from 2.28 on reads by itself.

``collective,first,last,algorithm,protocol,channels,nodes,ranks[,pipe operations[,registered
buffer]]``; sizes are the larger one of what a rank sends and receives; -1 means any; the first line
that matches wins.
"""

import re
from collections.abc import Iterable, Sequence

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
        chunks = [
            line[at : at + MAX_LINE_CHARACTERS] for at in range(0, len(line), MAX_LINE_CHARACTERS)
        ]
        for chunk in chunks:  # as fgets returns them
            if chunk.strip() and not (chunk.lstrip() if name == "rccl-csv" else chunk).startswith(
                "#"
            ):
                _read_line(table, number, chunk)
    table.check_order()
    _check_catch_all(table)
    return table


def _read_line(table: TuningTable, line: int, text: str) -> None:
    is_rccl = table.format == "rccl-csv"
    fields = [field.strip() for field in text.split(",") if field]  # strtok knows no empty fields
    if "" in fields or ",," in text:
        table.add(
            "line_skipped",
            line,
            text,
            why="has an empty field, and those behind it move up",
            form=_FORM,
        )
    if len(fields) < 8 or (is_rccl and "" in fields):
        if not text.lstrip().startswith("#"):
            table.add("line_skipped", line, len(fields), why="fields are fewer than 8", form=_FORM)
        return
    words = _read_words(table, line, fields)
    if is_rccl and words != (fields[0], fields[3], fields[4]):
        return
    numbers = []
    for place, field in enumerate((*fields[1:3], *fields[5:10])):
        largest = UNLIMITED if place < 2 else MAX_INT
        numbers.append(_number(table, line, field, largest))
    first, last, channels, nodes, ranks, *rest = numbers
    if channels == -1 and not is_rccl:
        table.add("one_channel", line, channels)
    collective, algorithm, protocol = words
    offered = _offered(collective)
    if (algorithm, protocol) not in offered:
        names = ", ".join(f"{name} over {offered_protocol}" for name, offered_protocol in offered)
        table.add(
            "not_offered", line, algorithm, protocol=protocol, collective=collective, known=names
        )
    if 0 in (nodes, ranks):
        table.add(
            "never_matches", line, 0, why="no communicator has 0 nodes or ranks; any number is -1"
        )
    further = zip(("numPipeOps", "regBuff"), rest, strict=False)
    conditions = [f"{key}={number}" for key, number in further if number != -1]
    rule = TuningRule(
        collective=collective,
        algorithm=algorithm,
        bytes=(first, last),
        conditions=tuple(conditions),
        line=line,
        parameters={"protocol": protocol, "channels": channels},
        ranks=_span_of(ranks),
        nodes=_span_of(nodes),
    )
    table.rules.append(rule)


def _read_words(table: TuningTable, line: int, fields: Sequence[str]) -> tuple[str, str, str]:
    """Return the collective, algorithm and protocol of a line; NCCL takes an unknown word for another one."""
    facts = library_table()["nccl"]
    collective = _known_word(
        table, line, "collective", fields[0], facts["collectives"], "allreduce"
    )
    algorithm = _known_word(table, line, "algorithm", fields[3], facts["algorithms"], "ring")
    protocol = _known_word(table, line, "protocol", fields[4], facts["protocols"], "simple")
    return collective, algorithm, protocol


def _known_word(
    table: TuningTable, line: int, column: str, word: str, choices: Sequence[str], default: str
) -> str:
    if word in choices:
        return word
    table.add("taken_for", line, word, what=column, taken=default, known=choices)
    return default


def _offered(collective: str) -> list[tuple[str, str]]:
    """Return the algorithms of a collective, each with every protocol that it has."""
    facts = library_table()["nccl"]
    offered = []
    for algorithm in facts["algorithms"]:
        if collective in facts["functions"][algorithm]:
            if algorithm in facts["every_protocol"]:
                protocols = facts["protocols"]
            else:
                protocols = ["simple"]
            offered += [(algorithm, protocol) for protocol in protocols]
    return offered


def _span_of(number: int) -> Span:
    """Return the range of a field that is one number, or -1 for any."""
    return ANY if number == -1 else (number, number)


def _number(table: TuningTable, line: int, text: str, largest: int) -> int:
    match = re.match(r"-?[0-9]{1,40}", text)
    value = int(match[0]) if match else 0
    if not match or match[0] != text:
        table.add("no_suffix", line, text, read=value)
    if largest > MAX_INT:
        return value % (UNLIMITED + 1)  # as strtoull returns it
    if value > largest:
        table.add(
            "too_large",
            line,
            value,
            what="a number",
            last=largest,
            outcome="atoi makes another number of it",
        )
    return value


def _check_catch_all(table: TuningTable) -> None:
    for collective in library_table()["nccl"]["collectives"]:
        whole = TuningRule(collective=collective, algorithm="")
        gaps = uncovered(ANY, (rule.bytes for rule in table.rules if rule.covers(whole)))
        if gaps:
            kind = "no_catch_all"
            if table.format == "rccl-csv":
                kind = "no_rule"
            table.add(kind, 0, collective, span=" and ".join(map(span_words, gaps)))


def write_nccl_csv(rules: Iterable[TuningRule], comment: str = "") -> str:
    """Return rules as lines for NCCL's example plugin, ending with one for all other calls.

    The plugin decides the number of channels where it is 0, which it is unless a rule has the
    parameter ``channels``. Other calls get a ring with the protocol simple, because the plugin
    cannot leave the algorithm to NCCL.

    Args:
        rules: rules with the parameter ``protocol``; ranks and nodes are one number each, or any.
        comment: lines for the head, without #.
    """
    defaults = [
        TuningRule(collective=collective, algorithm="ring")
        for collective in library_table()["nccl"]["collectives"]
    ]
    lines = [f"# {line}"[:MAX_LINE_CHARACTERS] for line in comment.splitlines()]
    for rule in (*rules, *defaults):
        parameters = {"protocol": "simple", "channels": 0, **rule.parameters}
        nodes = ranks = -1
        if rule.nodes != ANY:
            nodes = rule.nodes[0]
        if rule.ranks != ANY:
            ranks = rule.ranks[0]
        fields = (
            rule.collective,
            *rule.bytes,
            rule.algorithm,
            parameters["protocol"],
            parameters["channels"],
            nodes,
            ranks,
        )
        lines.append(",".join(map(str, fields)))
    return "\n".join((*lines, ""))
