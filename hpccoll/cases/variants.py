"""Named variants: environments that a sweep compares, each with the evidence that its logs must show.

The table of the named variants is ``variants.toml``, with those of the algorithms in
``library_algorithms.toml``; ``evidence.expected_evidence`` tests logs for the evidence.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from hpccoll.cases.communicator_settings import CommunicatorSettings, check_settings
from hpccoll.cases.library_algorithms import (
    LibraryAlgorithm,
    algorithms_by_word,
    forcing_variable,
    library_table,
)
from hpccoll.cases.library_request import forced_by_mpi, requested_by_environment
from hpccoll.cases.requirements import MPI_LIBRARIES
from hpccoll.cases.variables import SITE_VARIABLES, check_variables
from hpccoll.common.errors import BadInputError, did_you_mean
from hpccoll.common.records import from_builtins
from hpccoll.common.units import format_count, format_size

EXAMPLES = (*SITE_VARIABLES, "traffic_class")
"""Variables and settings whose values in the table are examples: a sweep replaces them by those of its site."""

NOT_LOGGED = ("port_bytes", "messages")
"""The kinds of evidence that no log has."""

SIMILAR_NAME = 0.88
"""The similarity of two names that differ in one or two letters; nccl-default and nccl-cta-default differ in more."""


Call: TypeAlias = tuple[str, str, str | None]
"""The collective, the element type and the reduction of a library's own call; None without a reduction."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """The nodes of a launch as a library counts them: for NCCL, all hosts of one NVLink domain are one node."""

    nodes: tuple[int, int]  # the smallest and the largest possible number of nodes
    # the smallest and the largest possible number of ranks on a node
    ranks_per_node: tuple[int, int]
    nccl: tuple[int, ...] | None = None  # the version of NCCL, such as (2, 28, 9); None if unknown

    @classmethod
    def of(cls, nodes: int, ranks_per_node: int, nccl: tuple[int, ...] | None = None) -> "NodeView":
        return cls((nodes, nodes), (ranks_per_node, ranks_per_node), nccl)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantLimit:
    """A limit on the cases for which a variant makes sense; None does not limit."""

    # the collectives to which the limit applies; None for all
    for_collectives: tuple[str, ...] | None = None
    for_dtypes: tuple[str, ...] | None = None  # the element types to which it applies
    # the version of NCCL, such as ``2.29``, from which on it does not apply; None for all versions
    before: str | None = None
    collectives: tuple[str, ...] | None = None  # the collectives that the variant changes
    dtypes: tuple[str, ...] | None = None  # the element types
    ops: tuple[str, ...] | None = None  # the reductions
    least_nodes: int = 1  # the smallest number of nodes for which it makes a difference
    most_nodes: int | None = None  # the largest number of nodes on which it runs
    least_per_node: int = 1  # the smallest number of ranks on a node
    most_per_node: int | None = None  # the largest number of ranks on a node
    # the bytes of the largest message between two ranks that it changes
    most_message: int | None = None
    # whether cases beyond the limit run, only not otherwise than without the variant. The limit
    # then does not hold if a sweep adds variables, which may affect them
    unaffected: bool = False

    def shape_limits(self) -> Iterator[tuple[str, Callable[[NodeView], bool]]]:
        """Yield the limits on nodes and ranks in words, each with a function that returns whether nodes exceed it."""
        least_nodes = self.least_nodes
        most_nodes = self.most_nodes
        least = self.least_per_node
        most = self.most_per_node
        if least_nodes > 1:
            yield f"at least {least_nodes} nodes", lambda view: view.nodes[1] < least_nodes
        if most_nodes is not None:
            yield (
                f"at most {format_count(most_nodes, 'node')}",
                lambda view: view.nodes[0] > most_nodes,
            )
        if least > 1:
            yield f"at least {least} ranks per node", lambda view: view.ranks_per_node[1] < least
        if most is not None:
            yield (
                f"at most {format_count(most, 'rank')} per node",
                lambda view: view.ranks_per_node[0] > most,
            )

    def violation(
        self, call: Call | None, view: NodeView, message: int | None = None
    ) -> str | None:
        """Return how a case exceeds the limit, as a sentence; None if it does not; see ``Variant.violation``."""
        if not self._applies_to(call) or not self._applies_before(view.nccl):
            return None
        excess = next(self._excesses(call, view, message), None)
        if excess is None:
            return None
        sentence = f"the variant takes {excess}"
        if self.before:
            sentence = f"before NCCL {self.before}, {sentence}"
        scope = self.for_collectives or self.for_dtypes
        if scope:
            sentence += f"; this holds for {' or '.join(scope)}"
        return sentence

    def _applies_to(self, call: Call | None) -> bool:
        if call is None:
            return not self.for_collectives and not self.for_dtypes
        collective, dtype, _ = call
        if self.for_collectives and collective not in self.for_collectives:
            return False
        return not self.for_dtypes or dtype in self.for_dtypes

    def _applies_before(self, nccl: tuple[int, ...] | None) -> bool:
        """Return whether the limit applies to a version of NCCL; to an unknown one only if it applies to all."""
        if not self.before:
            return True
        return nccl is not None and nccl < tuple(map(int, self.before.split(".")))

    def _excesses(self, call: Call | None, view: NodeView, message: int | None) -> Iterator[str]:
        collective, dtype, op = call or (None, None, None)
        for key, value, valid in (
            ("collective", collective, self.collectives),
            ("dtype", dtype, self.dtypes),
            ("op", op, self.ops),
        ):
            if value is not None and valid is not None and value not in valid:
                yield f"{key} {', '.join(valid)}, not {value}"
        yield from (text for text, exceeds in self.shape_limits() if exceeds(view))
        if self.most_message is not None and message is not None and message > self.most_message:
            yield f"messages of at most {format_size(self.most_message)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A named environment."""

    purpose: str  # the purpose in one line
    # the transport of the library calls that it changes: ``nccl``, or ``mpi`` for a library below
    # MPI
    transport: str
    # the variables and their values; ``variables`` explains each
    environment: Mapping[str, str] = field(default_factory=dict)
    # the settings of NCCL's communicators; ``communicator_settings`` explains each
    communicator: CommunicatorSettings = field(default_factory=dict)
    # the evidence that its logs must show: a kind, and its arguments such as the algorithm
    expected_evidence: tuple[str, ...]
    evidence_text: str  # that evidence, for people
    # what the machine must have, by the names of ``cases.requirements``
    requirements: tuple[str, ...]
    # the limits on the cases for which it makes sense; a case must exceed none
    limits: tuple[VariantLimit, ...] = ()
    # the negative control: a variant that turns the feature off, whose logs must lack the evidence
    control: str | None = None
    # the algorithm that it forces an MPI library to take, for each collective that has it; its
    # first requirement is the library
    algorithms: Mapping[str, LibraryAlgorithm] = field(default_factory=dict)

    @property
    def shows_in_logs(self) -> bool:
        """Whether logs can show the evidence, and not port counters or messages only."""
        return self.expected_evidence[0] not in NOT_LOGGED

    @property
    def requested(self) -> str | None:
        """The request to the library in one word; None if the library has the choice."""
        request = requested_by_environment(self.environment, communicator=self.communicator)
        return request or forced_by_mpi(self.environment)

    def fails_everywhere(self, ranks: int) -> bool:
        """Return whether calls of this program itself fail on ``ranks`` ranks, as with Open MPI's two_proc."""
        takes_two_ranks = any("two" in algorithm.needs for algorithm in self.algorithms.values())
        return takes_two_ranks and ranks > 2

    def with_added(self, sets: Mapping[str, object]) -> "Variant":
        """Return the variant with the limits that hold if a sweep sets ``sets``, its own and maybe more."""
        if sets.keys() <= {*self.environment, *self.communicator}:
            return self
        return replace(self, limits=tuple(limit for limit in self.limits if not limit.unaffected))

    @property
    def limits_messages(self) -> bool:
        """Whether the size of messages is limited."""
        return any(limit.most_message is not None for limit in self.limits)

    def violation(
        self, call: Call | None, view: NodeView, message: int | None = None
    ) -> str | None:
        """Return which limit a case exceeds, as a sentence; None if it exceeds none.

        Args:
            call: the library's own call; None for one of our schedules. Its nodes and messages are
                limited as those of the library are. Collectives, types and reductions are not, nor
                is anything that holds for some of them: these are limits of the library's kernels.
            view: the nodes as the library counts them.
            message: the bytes of its smallest message; None if unknown.
        """
        for limit in self.limits:
            violation = limit.violation(call, view, message)
            if violation:
                return violation
        return None


@cache
def named_variants() -> Mapping[str, Variant]:
    """Return the table of variants by name: a sweep file writes ``variants: {nccl-ring: }``."""
    import tomllib  # most ranks need no variant, and thousands of them would load it

    table = tomllib.loads(Path(__file__).with_name("variants.toml").read_text())
    rows = {**table["variants"], **dict(_nccl_rows()), **dict(_algorithm_rows())}
    return {name: _variant(row, table["limits"], table["evidence"]) for name, row in rows.items()}


def short_names() -> list[str]:
    """Return the names of the variants for messages, with one for all algorithms of an MPI library."""
    names: dict[str, None] = {}
    for name, variant in named_variants().items():
        library = variant.requirements[0]
        names[f"{library}-*" if variant.algorithms else name] = None
    return list(names)


def _nccl_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a row of the table for each algorithm of NCCL with each of its protocols: ``nccl-ring-ll128``."""
    facts = library_table()["nccl"]
    for algorithm, protocol in product(facts["every_protocol"], facts["protocols"]):
        collectives = [
            library_table()["collectives"][name] for name in facts["functions"][algorithm]
        ]
        algo = algorithm.title()  # in the words of NCCL_ALGO and NCCL_PROTO
        proto = protocol.upper()
        yield (
            f"nccl-{algorithm}-{protocol}",
            {
                "purpose": f"NCCL with algorithm {algo}, protocol {proto} and no other",
                "transport": "nccl",
                "environment": {"NCCL_ALGO": algo, "NCCL_PROTO": proto},
                "expected_evidence": ["algorithm_protocol", algorithm, proto],
                "requirements": ["cuda", "nccl"],
                "limits": {"collectives": collectives},
            },
        )


def _algorithm_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a row of the table for each algorithm of an MPI library, with the name of its variant."""
    for library, table in library_table()["variants"].items():
        title, _ = MPI_LIBRARIES[library]
        first_version = table.get("since", "")
        for word, algorithms in algorithms_by_word(library).items():
            # An older Open MPI complains of a number that it does not know, even if the case is
            # skipped.
            oldest = min(algorithm.since for algorithm in algorithms.values())
            environment = dict(table["environment"])
            rows: dict[str, dict[str, Any]] = {}
            for collective, algorithm in algorithms.items():
                if algorithm.since == oldest:
                    variable, value = forcing_variable(library, collective, algorithm)
                    environment[variable] = value
                    rows[collective] = asdict(
                        replace(algorithm, since=algorithm.since or first_version)
                    )
            yield (
                f"{library}-{word}",
                {
                    "purpose": f"{title} with algorithm {word} and no other",
                    "transport": "mpi",
                    "environment": environment,
                    "limits": {"collectives": list(rows)},
                    "expected_evidence": ["messages", word],
                    "requirements": [library],
                    "algorithms": rows,
                },
            )


def _variant(
    row: Mapping[str, Any], shared_limits: Mapping[str, Any], texts: Mapping[str, str]
) -> Variant:
    limits = row.get("limits", [])
    if isinstance(limits, str):
        limits = shared_limits[limits]
    if isinstance(limits, dict):
        limits = [limits]
    kind, *names = row["expected_evidence"]
    capitals = [name.upper() for name in names]
    text = texts[kind].format(*capitals, names=" or ".join(names), NAMES=" or ".join(capitals))
    return from_builtins({**row, "evidence_text": text, "limits": limits}, Variant)


def known_variant(name: str | None, sets: Mapping[str, object]) -> Variant | None:
    """Return the named variant ``name``; None if there is none, or if the sweep overrides one of its values.

    ``sets`` are its variables and communicator settings in the sweep: more may be added, and
    examples replaced.
    """
    variant = named_variants().get(name) if name else None
    if variant is None:
        return None
    for key, value in {**variant.environment, **variant.communicator}.items():
        if key not in EXAMPLES and sets.get(key) != value:
            return None
    return variant


def variant_environment(
    name: str, variables: Mapping[str, object] | None, settings: object = None
) -> Mapping[str, object]:
    """Return the environment of a variant of a sweep: that of the table with ``variables`` added.

    Numbers are as YAML reads them; ``settings`` are the communicator settings in the sweep file.

    Raises:
        BadInputError: if the name is not in the table and sets nothing (unless it says so with
            ``{}`` and is not similar to one of the table); if a value contradicts the variant of
            the table; if the library does not know a value.
    """
    table = named_variants()
    if (
        name not in table
        and variables == {}
        and not settings
        and (near := did_you_mean(name, table, SIMILAR_NAME))
    ):
        raise BadInputError(
            "variants", name, f"{near}a variant without variables needs a less similar name"
        )
    if name not in table and variables is None:
        near = did_you_mean(name, table)
        raise BadInputError(
            "variants",
            name,
            f"{near}variables to set, or a named variant: {', '.join(short_names())}",
        )
    defined = table[name].environment if name in table else {}
    _check_unchanged(f"variants.{name}", name, defined, variables or {})
    check_variables(f"variants.{name}", variables or {})
    return {**defined, **(variables or {})}


def variant_communicator(
    name: str | None, settings: Mapping[str, object], key: str
) -> Mapping[str, Any]:
    """Return the communicator settings of a variant: those of the table with ``settings``, by ``key`` in messages.

    Raises:
        BadInputError: if a setting contradicts the variant of the table, or is not known.
    """
    variant = named_variants().get(name) if name else None
    defined = variant.communicator if variant else {}
    _check_unchanged(key, str(name), defined, settings)
    check_settings(key, settings)
    return {**defined, **settings}


def _check_unchanged(
    key: str, variant: str, defined: Mapping[str, object], requested: Mapping[str, object]
) -> None:
    """Refuse ``requested`` values that override ``defined`` ones: rows would carry the name of another variant."""
    for name, value in requested.items():
        if name in defined and name not in EXAMPLES and str(value) != str(defined[name]):
            expected = f"{defined[name]}, the value of {variant}; do: for another value choose another name"
            raise BadInputError(f"{key}.{name}", value, expected)
