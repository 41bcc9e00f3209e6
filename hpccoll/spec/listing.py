"""The listing: all that there is, by name, and what is missing for it on this machine."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hpccoll.evidence.variables import assignment
from hpccoll.evidence.variants import named_variants
from hpccoll.host.hardware import ROOT
from hpccoll.schedule.collective import AUTO, NATIVE
from hpccoll.spec.catalogue import GRAPH
from hpccoll.spec.registry import COLLECTIVES
from hpccoll.spec.requirements import missing_requirements
from hpccoll.spec.transport_table import TRANSPORTS

PARAMETERS = {
    "channels": "of schedules: the pieces that advance independently, such as 4",
    "window": "of schedules: how many channels are at work at once",
    "segment": "of schedules, in place of channels: the most bytes of a piece, such as 128K",
    GRAPH: "over nccl, of native too: 1 has a case replayed as a CUDA graph",
}
"""What cases take beside the parameters of their algorithms."""


_EXPORTED_UNITS = {"divisible": "free", "per_rank": "owned"}
"""The words of the exported list for the kinds of units, which scripts outside the project read."""


def listing(root: Path = ROOT) -> dict[str, Any]:
    """Return what there is, as ``hpccoll list --json`` prints it.

    Args:
        root: the directory below which dev, etc, proc and sys of the machine are.
    """
    of_mpi = [] if find_spec("mpi4py") else ["mpi4py is not installed"]
    return {
        "collectives": {
            name: {
                "units": _EXPORTED_UNITS[row.units],
                "reduces": row.reduces,
                "algorithms": [*_names(name)],
                "parameters": {a.name: dict(a.parameters) for a in row.algorithms.values() if a.parameters},
            }
            for name, row in COLLECTIVES.items()
        },
        "algorithms": [
            {"collective": name, "name": algorithm, "needs": needs, **_available(of_mpi)}
            for name in COLLECTIVES
            for algorithm, needs in _names(name).items()
        ],
        "policies": [{"name": AUTO, "needs": ["a table of hpccoll tune"], **_available(of_mpi)}],
        "transports": [
            {
                "name": name, "devices": [*spec.devices],
                **_available([*of_mpi, *missing_requirements(spec.hardware, root)]),
            }
            for name, spec in TRANSPORTS.items()
        ],
        "variants": [
            {
                "name": name, "what": variant.purpose, "transport": variant.transport,
                "environment": dict(variant.environment), "communicator": dict(variant.communicator),
                "demands": variant.expected_evidence.description, "control": variant.control,
                "limits": asdict(variant.limits), "needs": [*variant.requirements],
                **_available([*of_mpi, *missing_requirements(variant.requirements, root)]),
            }
            for name, variant in named_variants().items()
        ],
    }  # fmt: skip


def _available(lacks: Sequence[str]) -> dict[str, Any]:
    return {"available": not lacks, "reason": "; ".join(lacks) or None}


def _names(name: str) -> dict[str, list[str]]:
    """Return the algorithms of a collective, each with its restrictions in words."""
    needs = {a.name: [need.words for need in a.needs] for a in COLLECTIVES[name].algorithms.values()}
    return {**needs, NATIVE: []}


def listing_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the listing for people: a line for each, and once for each reason what is not available for it.

    Args:
        found: as ``listing`` returns it.
    """
    for row in found["algorithms"]:
        parameters = found["collectives"][row["collective"]]["parameters"].get(row["name"], {})
        values = "".join(f" {name}={value}" for name, value in parameters.items())
        yield f"{row['collective']} {row['name']}{values}{_needed(row)}{_not_here(row)}"
    yield from (f"any {row['name']}{_needed(row)}{_not_here(row)}" for row in found["policies"])
    yield from (f"parameter {name} ({words})" for name, words in PARAMETERS.items())
    yield from (
        f"transport {row['name']} (of {', '.join(row['devices'])}){_not_here(row)}" for row in found["transports"]
    )
    for row in found["variants"]:
        yield f"variant {row['name']} ({row['what']}){_not_here(row)}"
        yield f"    {'; '.join([_setting(row), *_limits(row['limits'])])}"
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for kind in ("algorithms", "policies", "transports", "variants"):
        for row in found[kind]:
            if not row["available"]:
                reasons[row["reason"]].append(" ".join(filter(None, (row.get("collective"), row["name"]))))
    if reasons:
        yield "not here:"
        yield from (f"  {', '.join(names)}: {reason}" for reason, names in reasons.items())


def _needed(row: Mapping[str, Any]) -> str:
    return f" (needs {', '.join(row['needs'])})" if row["needs"] else ""


def _not_here(row: Mapping[str, Any]) -> str:
    return "" if row["available"] else ", not here"


def _setting(row: Mapping[str, Any]) -> str:
    variables = (assignment(name, value) for name, value in row["environment"].items())
    settings = (f"{name}={value}" for name, value in row["communicator"].items())
    return f"over {row['transport']} sets {' '.join([*variables, *settings])}"


def _limits(limits: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a variant makes sense, as far as launches and collectives go; dtypes and ops are in the JSON."""
    least, most, each = (limits[name] for name in ("least_nodes", "most_nodes", "most_per_node"))
    if limits["collectives"]:
        yield f"for {', '.join(limits['collectives'])}"
    if least > 1:
        yield f"at least {least} nodes"
    if most:
        yield f"at most {most} node{'s' * (most > 1)}"
    if each:
        yield f"at most {each} rank{'s' * (each > 1)} per node"
