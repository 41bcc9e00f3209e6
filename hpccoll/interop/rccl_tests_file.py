"""Results that rccl-tests writes to a file (options ``-x`` and ``-Z``): a JSON array, JSON lines, or CSV.

Formats as in version 2.17.9 (class Reporter in src/common.cu). A record has no root, which is taken
to be 0, and does not say on how many nodes it ran: its ``nodes`` counts the groups of ranks that
run the collective at the same time, and its ``ranksPerNode`` the processes of a group. Builds
without MPI have one process, and write ``gpus`` instead.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpccoll.common.errors import BadInputError
from hpccoll.common.files import parse_json
from hpccoll.common.limits import RANKS
from hpccoll.interop.benchmark_output import BenchmarkOutput, SuppliedMetadata, read_count
from hpccoll.interop.nccl_tests_consistency import (
    PROGRAMS,
    RCCL_TESTS,
    SUFFIXES,
    PrintedResult,
    PrintedRun,
    add_result,
)
from hpccoll.interop.printed_bandwidth import MEASURED, PrintedBandwidth, possible_ranks

NAMES = {name.replace("_", ""): family for name, family in PROGRAMS.items()}
"""The collective of each name in a record, in lower case: ``AllReduce`` is ``allreduce``."""

_HEADINGS = "numCycle,collective,"
RCCL_RECORDS_SIGN = re.compile(rf'\A(?:{_HEADINGS}|\s*(?:\[\s*)?\{{[^}}]*"busBw")')
"""What every file of results of rccl-tests begins with."""

Record = Mapping[str, str]


def read_rccl_records(
    path: Path, lines: Sequence[str], supplied: SuppliedMetadata
) -> BenchmarkOutput:
    """Return the results in a file of rccl-tests; BadInputError for a record that is cut or contradicts itself."""
    records = list(_records(path, lines))
    if not records:
        raise BadInputError("FILE", str(path), "results of rccl-tests: it has none")
    output = BenchmarkOutput(
        source=RCCL_TESTS.source,
        program=RCCL_TESTS.source,
        ranks=0,
        nodes=0,
        library=supplied.library or RCCL_TESTS.library,
    )
    for where, record in records:
        _add_record(output, where, record, supplied)
    if supplied.ranks not in (None, output.ranks):
        raise BadInputError("--ranks", supplied.ranks, f"{output.ranks}, which {path} says")
    return output


def _records(path: Path, lines: Sequence[str]) -> Iterator[tuple[str, Record]]:
    """Yield each record with its place, its keys in lower case and without ``#``, by the names of the JSON."""
    text = "".join(lines)
    rows: Sequence[object]
    try:
        if text.startswith(_HEADINGS):
            rows = list(csv.DictReader(lines, restkey="more"))
        elif text.lstrip().startswith("["):
            rows = parse_json(text)
        else:
            rows = [parse_json(line) for line in lines if line.strip()]
    except (ValueError, csv.Error) as error:
        raise BadInputError("FILE", str(path), f"whole results of rccl-tests ({error})") from None
    for position, row in enumerate(rows, 1):
        where = f"{path}: result {position}"
        if not isinstance(row, Mapping):
            raise BadInputError(where, str(row)[:80], "a record with names")
        record = {
            str(key).lower().lstrip("#"): "" if value is None else str(value)
            for key, value in row.items()
        }
        yield where, {"name": record.pop("collective", ""), **record}


def _add_record(
    output: BenchmarkOutput, where: str, record: Record, supplied: SuppliedMetadata
) -> None:
    name = NAMES.get(_value(where, record, "name").lower())
    if name is None:
        raise BadInputError(where, record["name"], f"one of {', '.join(NAMES)}")
    counts = ("gpus",) if "gpus" in record else ("ranksPerNode", "gpusPerRank")
    ranks = math.prod(_count(where, record, key) for key in counts)
    RANKS.check(f"{where}: ranks", ranks)
    if output.ranks not in (0, ranks):
        raise BadInputError(where, ranks, f"{output.ranks} ranks, as in the results before")
    output.ranks = ranks
    output.nodes = (
        supplied.nodes or 1 if "gpus" in record else supplied.need("nodes", RCCL_TESTS.source)
    )
    if output.nodes > ranks:
        raise BadInputError("--nodes", output.nodes, f"at most {ranks}, the ranks of the output")
    values = {key: _value(where, record, key) for key in MEASURED} | {
        "#wrong": _value(where, record, "wrong")
    }
    bandwidth = PrintedBandwidth.read(where, _value(where, record, "size"), values)
    if problem := bandwidth.problem(name, ranks):
        raise BadInputError(*problem)
    if (possible := possible_ranks(name, ranks, [bandwidth])) and ranks not in possible:
        raise BadInputError(
            f"{where}: ranks", ranks, f"{possible[0]}, which follow from its bandwidths"
        )
    in_place = _value(where, record, "inPlace")
    if in_place not in ("0", "1"):
        raise BadInputError(f"{where}: inPlace", in_place, "0 or 1")
    cells = {key: _value(where, record, key) for key in ("size", "type", "redop")}
    result = PrintedResult(where, [*SUFFIXES][int(in_place)], cells, values, record)
    add_result(
        output, name, PrintedRun(where, output.library, RCCL_TESTS), result, ranks, output.nodes
    )


def _value(where: str, record: Record, key: str) -> str:
    if not (value := record.get(key.lower(), "").strip()):
        raise BadInputError(where, key, "a value of this name in each result")
    return value


def _count(where: str, record: Record, key: str) -> int:
    return read_count(where, key, _value(where, record, key))
