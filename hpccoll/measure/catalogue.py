"""The catalogue: what can be asked for, by name. It starts no MPI, so that a login node can plan."""

from importlib.util import find_spec
from typing import Any

import numpy as np

import hpccoll.algorithms  # noqa: F401  fills the registry
from hpccoll.case import Case
from hpccoll.errors import BadInputError
from hpccoll.schedule import COLLECTIVES, DTYPES, REDUCTIONS, Layout, collective
from hpccoll.units import format_size

NATIVE = "native"
"""The name of the library's own collective among the algorithms."""

TRANSPORTS = ("mpi",)
DEVICES = ("cpu",)
PLAN_PARAMETERS = ("channels", "window")
"""Parameters of every scheduled case: the pieces that advance independently, and how many of them at once."""


def check_case(case: Case) -> None:
    """See that every word of ``case`` is known.

    Raises:
        BadInputError: names the word, and the ones that would do.
    """
    family = collective(case.collective)
    choices: dict[str, tuple[object, tuple[object, ...]]] = {
        "algorithm": (case.algorithm, (*family.algorithms, NATIVE)),
        "transport": (case.transport, TRANSPORTS),
        "device": (case.device, DEVICES),
        "dtype": (case.dtype, DTYPES),
        "op": (case.op, tuple(REDUCTIONS) if family.reduces else (None,)),
    }
    for key, (word, valid) in choices.items():
        if word not in valid:
            raise BadInputError(key, word, valid)
    if case.root is not None:
        raise BadInputError("root", case.root, f"{case.collective} has no root")
    if not isinstance(case.bytes, int):
        raise BadInputError("bytes", case.bytes, "a whole number")
    if family.elements(case.bytes, np.dtype(case.dtype).itemsize, 1) < 1:
        raise BadInputError("bytes", case.bytes, f"at least one {case.dtype}, {np.dtype(case.dtype).itemsize} bytes")
    algorithm = None if case.algorithm == NATIVE else family.algorithm(case.algorithm)
    for name, value in case.params.items():
        known = (*PLAN_PARAMETERS, *algorithm.parameters) if algorithm else ()
        if name not in known:
            raise BadInputError(f"parameter of {case.algorithm}", name, known or "it has no parameters")
        if name in PLAN_PARAMETERS and not (isinstance(value, int) and value > 0):
            raise BadInputError(f"parameter {name}", value, "a whole number from 1 up")


def unmet(case: Case, layout: Layout) -> str | None:
    """Return why ``case`` cannot run on ``layout``, or None where it can."""
    family = collective(case.collective)
    if not isinstance(case.bytes, int):
        raise BadInputError("bytes", case.bytes, "a whole number")
    if family.elements(case.bytes, np.dtype(case.dtype).itemsize, layout.workers) < 1:
        return f"{format_size(case.bytes)} is less than one {case.dtype} for each of {layout.workers} ranks"
    return None if case.algorithm == NATIVE else family.algorithm(case.algorithm).unmet(layout)


def memory_needed(case: Case) -> int:
    """Return the bytes that one rank takes for ``case``: both buffers, scratch, what is expected, and the check."""
    return int(case.bytes * (6 + 1 / np.dtype(case.dtype).itemsize))


def check_memory(case: Case, ranks: int, available: int) -> None:
    """See that ``ranks`` ranks of one node find room for ``case``.

    Raises:
        BadInputError: names what it takes and what there is.
    """
    needed = memory_needed(case) * ranks
    if needed > available:
        largest = case.bytes * available // needed
        raise BadInputError(
            "bytes", format_size(case.bytes),
            f"{ranks} ranks need {needed / 2**30:.3g} GiB for it and {available / 2**30:.3g} GiB are free: "
            f"at most about {largest / 2**20:.0f} MiB",
        )  # fmt: skip


def listing() -> dict[str, Any]:
    """Return what there is, as ``hpccoll list --json`` prints it."""
    mpi = find_spec("mpi4py") is not None
    reason = None if mpi else "mpi4py is not installed"
    return {
        "collectives": {
            name: {"units": row.units, "reduces": row.reduces, "algorithms": [*_names(name)]}
            for name, row in COLLECTIVES.items()
        },
        "algorithms": [
            {"collective": name, "name": algorithm, "needs": needs, "available": mpi, "reason": reason}
            for name in COLLECTIVES
            for algorithm, needs in _names(name).items()
        ],
        "transports": [{"name": name, "available": mpi, "reason": reason} for name in TRANSPORTS],
    }


def _names(name: str) -> dict[str, list[str]]:
    """Return the algorithms of a collective, each with its restrictions in words."""
    needs = {a.name: [need.words for need in a.needs] for a in COLLECTIVES[name].algorithms.values()}
    return {**needs, NATIVE: []}
