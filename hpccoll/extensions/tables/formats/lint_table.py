"""What is wrong with a tuning table of any format, which its content tells."""

import re
from collections.abc import Callable, Mapping

from hpccoll.cases.library_algorithms import library_table
from hpccoll.extensions.tables.formats.mpich_json import read_mpich_json
from hpccoll.extensions.tables.formats.nccl_csv import read_nccl_csv, read_rccl_csv
from hpccoll.extensions.tables.formats.openmpi_json import read_openmpi_json
from hpccoll.extensions.tables.formats.openmpi_rules import read_han_rules, read_openmpi_rules
from hpccoll.extensions.tables.formats.tuning_rule import TuningTable
from hpccoll.extensions.tables.formats.ucc_tune import read_ucc_tune

READERS: Mapping[str, Callable[[str], TuningTable]] = {
    "openmpi": read_openmpi_rules,
    "openmpi-json": read_openmpi_json,
    "han": read_han_rules,
    "mpich": read_mpich_json,
    "nccl-csv": read_nccl_csv,
    "rccl-csv": read_rccl_csv,
    "ucc": read_ucc_tune,
}


KNOWN_TABLES = (
    "a rule file of Open MPI (numbers or JSON) or of its component han, JSON of MPICH, CSV of NCCL's example tuner or "
    "of RCCL, or UCC_*_TUNE of UCC"
)
"""The tables that are read, for people."""

_NUMBERS = re.compile(r"\s*(?:[+-]?\d|rule-file-version)")
"""The beginning of a rule file of Open MPI."""

_CSV_LINE = re.compile(r"(?m)^[ \t]*[A-Za-z][^,\n]*(?:,[ \t]*-?\d[^,\n]*){2},[^,\n]*,[^,\n]*,")
"""A line of a tuner of NCCL: a collective, the first and the last size, and words."""

_JSON_KEYS = "collectives", "rule_file_version", "comm_size_m", "msg_size_m"
"""Beginnings of keys, one of them in each rule file of Open MPI in JSON."""

_RCCL = re.compile(r"(?i)\brccl|\brocm|\bgfx\d|\bMI\d{3}[AX]?\b")
"""What a table for RCCL names in its comments: the library, or GPUs of AMD."""


def recognise_format(text: str) -> str | None:
    """Return the format of a table by its content; None for what no reader knows.

    Lines for RCCL look like those for NCCL; they are RCCL's if a comment names it or a GPU of AMD.
    """
    content = re.sub(r"(?m)^[ \t]*#.*$|/\*[^*]*\*/", "", text)
    if re.search(r"UCC_\w+_TUNE|:@\w|^@\w", content):
        return "ucc"
    if content.lstrip().startswith(("{", "[")):
        return _json_format(content)
    if _CSV_LINE.search(content):
        return "rccl-csv" if _RCCL.search(text) else "nccl-csv"
    if content.strip() and not _NUMBERS.match(content):
        return None
    return "han" if {*content.split()} & {*library_table()["han"]["components"]} else "openmpi"


def _json_format(content: str) -> str | None:
    if re.search(r'"\s*collective\s*=', content):
        return "mpich"
    return "openmpi-json" if any(f'"{name}' in content for name in _JSON_KEYS) else None


def lint_table(text: str, name: str | None = None) -> TuningTable:
    """Read a table as its library does, and find what is wrong with it, in the order of its lines.

    Args:
        text: the content of the file.
        name: a key of ``READERS``; None for the format that the content tells.

    Raises:
        ValueError: if neither ``name`` nor the content tells the format.
    """
    recognised = recognise_format(text)
    table_format = name or recognised
    if table_format is None:
        raise ValueError(f"its format is unknown; valid: {KNOWN_TABLES}")
    table = READERS[table_format](text)
    if name == "openmpi" and recognised in ("openmpi-json", "mpich"):
        table = TuningTable(name)
        table.add("json_in_5", 0, None, severity="critical")
    if not table.rules and not any(
        finding.severity == "critical" or finding.kind == "not_checked"
        for finding in table.findings
    ):
        table.add("empty", 0, None)
    table.findings.sort(key=lambda finding: finding.values["line"])
    return table
