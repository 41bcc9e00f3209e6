"""What is wrong with a tuning table of any format, which its content tells."""

import re
from collections.abc import Callable, Mapping

from hpccoll.cases.library_algorithms import library_table
from hpccoll.interop.tuning_tables.mpich_json import read_mpich_json
from hpccoll.interop.tuning_tables.nccl_csv import read_nccl_csv, read_rccl_csv
from hpccoll.interop.tuning_tables.openmpi_json import read_openmpi_json
from hpccoll.interop.tuning_tables.openmpi_rules import read_han_rules, read_openmpi_rules
from hpccoll.interop.tuning_tables.tuning_rule import TuningTable
from hpccoll.interop.tuning_tables.ucc_tune import read_ucc_tune

READERS: Mapping[str, Callable[[str], TuningTable]] = {
    "openmpi": read_openmpi_rules, "openmpi-json": read_openmpi_json, "han": read_han_rules, "mpich": read_mpich_json,
    "nccl-csv": read_nccl_csv, "rccl-csv": read_rccl_csv, "ucc": read_ucc_tune,
}  # fmt: skip


def recognise_format(text: str) -> str:
    """Return the format of a table by its content; lines for RCCL are those for NCCL."""
    content = re.sub(r"(?m)^[ \t]*#.*$|/\*[^*]*\*/", "", text)
    if re.search(r"UCC_\w+_TUNE|:@\w|^@\w", content):
        return "ucc"
    if content.lstrip().startswith(("{", "[")):
        return "mpich" if re.search(r'"\s*collective\s*=', content) else "openmpi-json"
    if max(line.partition("#")[0].count(",") for line in content.split("\n")) > 3:
        return "nccl-csv"
    return "han" if {*content.split()} & {*library_table()["han"]["components"]} else "openmpi"


def lint_table(text: str, name: str | None = None) -> TuningTable:
    """Read a table as its library does, and find what is wrong with it, in the order of its lines.

    Args:
        text: the content of the file.
        name: a key of ``READERS``; None for the format that the content tells.
    """
    found = recognise_format(text)
    table = READERS[name or found](text)
    if name == "openmpi" and found in ("openmpi-json", "mpich"):
        table = TuningTable(name)
        table.add("json_in_5", 0, None, severity="critical")
    if not table.rules and not any(
        each.severity == "critical" or each.kind == "not_checked" for each in table.findings
    ):
        table.add("empty", 0, None)
    table.findings.sort(key=lambda each: each.values["line"])
    return table
