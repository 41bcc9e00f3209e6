"""The listing of collectives, algorithms, transports, variants and workloads, and what each lacks on this machine."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

from hpccoll.cases.algorithm_registry import COLLECTIVES, WORKLOADS
from hpccoll.cases.case import Parameter
from hpccoll.cases.catalogue import GRAPH, PROTOCOL
from hpccoll.cases.library_algorithms import LibraryAlgorithm
from hpccoll.cases.rank_agreement import agreement
from hpccoll.cases.requirements import MPI_LIBRARIES, missing_requirements
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.cases.variables import assignment
from hpccoll.cases.variants import Variant, VariantLimit, named_variants
from hpccoll.cases.workload import workload
from hpccoll.common.errors import BadInputError, did_you_mean
from hpccoll.common.json_schema import OPTIONAL
from hpccoll.host.gpu_stack import ROOT
from hpccoll.schedule.collective import AUTO, NATIVE

PARAMETERS = {
    "channels": "schedules: number of pieces of the buffer, such as 4",
    "window": "schedules: number of channels in flight at once",
    "segment": "schedules, instead of channels: maximum size of a piece, such as 128K",
    GRAPH: "over nccl, native included, and peer: 1 replays a case as a CUDA graph",
    PROTOCOL: "schedules over peer: ll, messages in words with flags, or simple; by default ll up to 256K",
}
"""The parameters of cases other than those of their algorithms."""


_EXPORTED_UNITS = {"divisible": "free", "per_rank": "owned"}
"""The names of unit kinds in the exported list, which other programs read."""


class _Availability(TypedDict):
    available: bool
    reason: str | None  # why it is not


class CollectiveJson(TypedDict):
    """A collective."""

    units: str
    reduces: bool
    algorithms: list[str]
    parameters: dict[str, dict[str, Parameter]]  # with their defaults, by algorithm


class AlgorithmJson(_Availability):
    """An algorithm of a collective."""

    collective: str
    name: str
    description: str
    needs: list[str]
    ranks_agree: bool | None  # whether all ranks end with the same bits of sums


class PolicyJson(_Availability):
    """A rule that chooses algorithms."""

    name: str
    needs: list[str]


class ParameterJson(TypedDict):
    """A parameter of cases, or a described cluster."""

    name: str
    meaning: str


class TransportJson(_Availability):
    """A transport."""

    name: str
    devices: list[str]


_Purpose = TypedDict("_Purpose", {"what": str})  # noqa: UP013 - the word is the key's alone


class VariantJson(_Availability, _Purpose):
    """A variant: settings of a library under a name."""

    name: str
    transport: str
    environment: dict[str, str | None]  # null unsets a variable
    communicator: dict[str, int | str]
    demands: str | None
    control: str | None
    limits: VariantLimit
    further_limits: list[VariantLimit]
    needs: list[str]
    algorithms: dict[str, LibraryAlgorithm]


class WorkloadKeyJson(TypedDict):
    """A key of a workload."""

    meaning: str
    default: Any


class WorkloadJson(TypedDict):
    """A workload."""

    name: str
    keys: dict[str, WorkloadKeyJson]


class ListingJson(TypedDict):
    """The listing; further keys are the tables of workloads."""

    collectives: dict[str, CollectiveJson]
    algorithms: list[AlgorithmJson]
    policies: list[PolicyJson]
    parameters: list[ParameterJson]
    transports: list[TransportJson]
    variants: list[VariantJson]
    workloads: list[WorkloadJson]
    clusters: NotRequired[Annotated[list[ParameterJson], OPTIONAL]]


def listing(root: Path = ROOT) -> dict[str, Any]:
    """Return the listing as ``hpccoll list --json`` prints it."""
    mpi_missing = []
    if not find_spec("mpi4py"):
        mpi_missing.append("mpi4py is not installed")
    with_mpi = _availability(mpi_missing)
    collectives = dict(_collectives())
    algorithms = [{**row, **with_mpi} for row in _algorithms()]
    auto = {"name": AUTO, "needs": ["a table of hpccoll tune"], **with_mpi}
    parameters = [{"name": name, "meaning": meaning} for name, meaning in PARAMETERS.items()]
    transports = list(_transports(mpi_missing, root))
    variants = list(_variants(mpi_missing, root))
    workloads = [{"name": name, "keys": _workload_keys(name)} for name in WORKLOADS]
    return {
        "collectives": collectives,
        "algorithms": algorithms,
        "policies": [auto],
        "parameters": parameters,
        "transports": transports,
        "variants": variants,
        "workloads": workloads,
        **_tables_of_workloads(),
    }


def _collectives() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, row in COLLECTIVES.items():
        parameters = {}
        for algorithm in row.algorithms.values():
            if algorithm.parameters:
                parameters[algorithm.name] = dict(algorithm.parameters)
        yield (
            name,
            {
                "units": _EXPORTED_UNITS[row.units],
                "reduces": row.reduces,
                "algorithms": list(_needs_by_algorithm(name)),
                "parameters": parameters,
            },
        )


def _algorithms() -> Iterator[dict[str, Any]]:
    for name in COLLECTIVES:
        for algorithm, needs in _needs_by_algorithm(name).items():
            title = _title(name, algorithm)
            yield {
                "collective": name,
                "name": algorithm,
                "description": title,
                "needs": needs,
                "ranks_agree": _agreement(name, algorithm),
            }


def _transports(mpi_missing: Sequence[str], root: Path) -> Iterator[dict[str, Any]]:
    for name, spec in TRANSPORTS.items():
        missing = [*mpi_missing, *missing_requirements(spec.hardware, root)]
        yield {"name": name, "devices": list(spec.devices), **_availability(missing)}


def _variants(mpi_missing: Sequence[str], root: Path) -> Iterator[dict[str, Any]]:
    for name, variant in named_variants().items():
        missing = [*mpi_missing, *missing_requirements(variant.requirements, root)]
        algorithms = {
            collective: asdict(algorithm) for collective, algorithm in variant.algorithms.items()
        }
        yield {
            "name": name,
            "what": variant.purpose,
            "transport": variant.transport,
            "environment": dict(variant.environment),
            "communicator": dict(variant.communicator),
            "demands": variant.evidence_text,
            "control": variant.control,
            **_limits_of(variant),
            "needs": list(variant.requirements),
            "algorithms": algorithms,
            **_availability(missing),
        }


def _workload_keys(name: str) -> dict[str, dict[str, Any]]:
    meanings = workload(name).help
    return {
        key: {"meaning": meanings[key], "default": default}
        for key, default in WORKLOADS[name].arguments.items()
    }


def _tables_of_workloads() -> dict[str, Any]:
    """Return the tables of what the keys of workloads name, such as models."""
    tables: dict[str, Any] = {}
    for name in WORKLOADS:
        tables |= workload(name).tables()
    return tables


def select(
    tables: Mapping[str, Any], word: str, further_words: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the entries of a kind, such as ``variants``, or those whose name or description contains a word.

    A collective keeps all of its algorithms if its own name does. In a description, a word may have
    another end.

    Raises:
        BadInputError: if there are none.
    """
    kinds = [kind for kind in tables if kind != "collectives"]
    selected: dict[str, list[dict[str, Any]]] = {}
    for kind in kinds:
        if word in kinds:
            selected[kind] = tables[kind] if kind == word else []
        else:
            selected[kind] = [row for row in tables[kind] if _matches(row, word)]
    if not any(selected.values()):
        names = {row["name"] for kind in kinds for row in tables[kind]} | tables[
            "collectives"
        ].keys()
        valid = dict.fromkeys([*kinds, *further_words])
        meant = did_you_mean(word, [*valid, *names])
        raise BadInputError(
            "list", word, f"{meant}a word of what 'hpccoll list' prints, or {', '.join(valid)}"
        )
    names_of_collectives = {row["collective"] for row in selected["algorithms"]}
    collectives = {
        name: row for name, row in tables["collectives"].items() if name in names_of_collectives
    }
    return {"collectives": collectives, **selected}


def _matches(row: Mapping[str, Any], word: str) -> bool:
    """Return whether a name of an entry contains a word, or a word of its description begins with it."""
    if word.lower() in row["name"] or word.lower() in row.get("collective", ""):
        return True
    pattern = re.compile(rf"\b{re.escape(word)}", re.IGNORECASE)
    return any(pattern.search(row.get(key) or "") for key in TEXTS)


TEXTS = "description", "what", "meaning"
"""The keys of entries whose values describe them."""


def _limits_of(variant: Variant) -> dict[str, Any]:
    """Return the first limit, which holds for all cases, and the further ones, which may hold for some only."""
    limits = [asdict(limit) for limit in variant.limits or (VariantLimit(),)]
    return {"limits": limits[0], "further_limits": limits[1:]}


def _availability(missing: Sequence[str]) -> dict[str, Any]:
    return {"available": not missing, "reason": "; ".join(missing) or None}


def _agreement(name: str, algorithm: str) -> bool | None:
    """Return whether all ranks end with the same bits; None for the library's own call, and without a sum."""
    if algorithm == NATIVE:
        return None
    family = COLLECTIVES[name]
    return agreement(family, family.algorithms[algorithm])


def _title(name: str, algorithm: str) -> str:
    """Return what an algorithm does, in a sentence."""
    if algorithm == NATIVE:
        return "the library's own call"
    return COLLECTIVES[name].algorithms[algorithm].title


def _needs_by_algorithm(name: str) -> dict[str, list[str]]:
    """Return the algorithms of a collective, each with its requirements in words."""
    needs = {}
    for algorithm in COLLECTIVES[name].algorithms.values():
        needs[algorithm.name] = [need.text for need in algorithm.needs]
    return {**needs, NATIVE: []}


def listing_lines(tables: Mapping[str, Any], *, described: bool = False) -> Iterator[str]:
    """Yield the lines of the printed listing: one per entry, and one per reason for entries that are unavailable.

    If algorithms are ``described``, the title of its page follows each.
    """
    for row in tables["algorithms"]:
        parameters = tables["collectives"][row["collective"]]["parameters"].get(row["name"], {})
        values = "".join(f" {name}={value}" for name, value in parameters.items())
        bits = ", ranks may differ in the last bits" if row["ranks_agree"] is False else ""
        yield f"{row['collective']} {row['name']}{values}{_needs(row)}{bits}{_unavailable(row)}"
        if described:
            yield f"    {row['description']}"
    for row in tables["policies"]:
        yield f"any {row['name']}{_needs(row)}{_unavailable(row)}"
    for row in tables["parameters"]:
        yield f"parameter {row['name']} ({row['meaning']})"
    for row in tables["transports"]:
        yield f"transport {row['name']} (of {', '.join(row['devices'])}){_unavailable(row)}"
    variants = list(_merge_algorithms(tables["variants"]))
    for row in variants:
        yield f"variant {row['name']} ({row['what']}){_unavailable(row)}"
        yield from row.get("lines") or _variant_lines(row)
    for row in tables["workloads"]:
        values = "".join(f" {name}={key['default']}" for name, key in row["keys"].items())
        yield f"workload {row['name']}{values}"
    for name in WORKLOADS:
        yield from workload(name).table_lines(tables)
    for row in tables.get("clusters", ()):
        yield f"cluster {row['name']} ({row['meaning']})"
    yield from _missing_lines(
        chain(tables["algorithms"], tables["policies"], tables["transports"], variants)
    )


def _variant_lines(row: Mapping[str, Any]) -> Iterator[str]:
    parts = [_setting(row), *_limits(row["limits"])]
    yield f"    {'; '.join(parts)}"


def _missing_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why entries are unavailable, with a line for each reason."""
    names_by_reason = defaultdict[str, list[str]](list)
    for row in rows:
        if not row["available"]:
            name = row["name"]
            if row.get("collective"):
                name = f"{row['collective']} {name}"
            names_by_reason[row["reason"]].append(name)
    if names_by_reason:
        yield "not here:"
    for reason, names in names_by_reason.items():
        yield f"  {', '.join(names)}: {reason}"


def _merge_algorithms(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of variants, with one for several that force algorithms of one library; its lines have these."""
    for library, group in groupby(rows, lambda row: row["needs"][0] if row["algorithms"] else None):
        members = list(group)
        if library is None or len(members) == 1:
            yield from members
            continue
        words = defaultdict[str, list[str]](list)
        for row in members:
            for name, algorithm in row["algorithms"].items():
                words[name].append(algorithm["name"])
        meaning = f"an algorithm of {MPI_LIBRARIES[library][0]} and no other; 'hpccoll list NAME' has its settings"
        lines = [
            f"    for {name}: {', '.join(words[name])}" for name in COLLECTIVES if name in words
        ]
        yield {**members[0], "name": f"{library}-ALGORITHM", "what": meaning, "lines": lines}


def _needs(row: Mapping[str, Any]) -> str:
    if not row["needs"]:
        return ""
    return f" (needs {', '.join(row['needs'])})"


def _unavailable(row: Mapping[str, Any]) -> str:
    return "" if row["available"] else ", not here"


def _setting(row: Mapping[str, Any]) -> str:
    assignments = [assignment(name, value) for name, value in row["environment"].items()]
    assignments += [f"{name}={value}" for name, value in row["communicator"].items()]
    return f"over {row['transport']} sets {' '.join(assignments)}"


def _limits(limits: Mapping[str, Any]) -> Iterator[str]:
    """Yield the limits of a variant on collectives, nodes and ranks; those on dtypes and ops are in the JSON only."""
    if limits["collectives"]:
        yield f"for {', '.join(limits['collectives'])}"
    yield from (text for text, _ in VariantLimit(**limits).shape_limits())
