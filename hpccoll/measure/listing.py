"""The listing: all that there is, by name, and what is missing for it on this machine."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hpccoll.algorithms  # noqa: F401  fills the registry
from hpccoll.evidence.variants import VARIANTS
from hpccoll.measure.equipment import ROOT
from hpccoll.measure.needs import missing
from hpccoll.measure.ways import TRANSPORTS
from hpccoll.schedule import COLLECTIVES
from hpccoll.schedule.promise import AUTO, NATIVE


def listing(root: Path = ROOT) -> dict[str, Any]:
    """Return what there is, as ``hpccoll list --json`` prints it.

    Args:
        root: the directory below which dev, etc, proc and sys of the machine are.
    """
    of_mpi = [] if find_spec("mpi4py") else ["mpi4py is not installed"]
    return {
        "collectives": {
            name: {
                "units": row.units,
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
                "name": name, "devices": [*way.devices],
                **_available([*of_mpi, *missing(_equipment(name), root)]),
            }
            for name, way in TRANSPORTS.items()
        ],
        "variants": [
            {
                "name": name, "what": variant.what, "transport": variant.transport,
                "environment": dict(variant.environment), "demands": variant.demands.words,
                "control": variant.control, "needs": [*variant.needs],
                **_available([*of_mpi, *missing(variant.needs, root)]),
            }
            for name, variant in VARIANTS.items()
        ],
    }  # fmt: skip


def _available(lacks: Sequence[str]) -> dict[str, Any]:
    return {"available": not lacks, "reason": "; ".join(lacks) or None}


def _equipment(transport: str) -> tuple[str, ...]:
    """Return what a transport needs of the machine, beside an MPI."""
    on_gpus = TRANSPORTS[transport].devices == ("cuda",)
    return ("cuda",) * on_gpus + ("nccl",) * (transport == "nccl")


def _names(name: str) -> dict[str, list[str]]:
    """Return the algorithms of a collective, each with its restrictions in words."""
    needs = {a.name: [need.words for need in a.needs] for a in COLLECTIVES[name].algorithms.values()}
    return {**needs, NATIVE: []}
