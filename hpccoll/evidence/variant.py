"""A variant, and where it makes sense: ``variants`` is the table of those that have a name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpccoll.evidence.communicator import Settings
from hpccoll.evidence.expected_evidence import Demand
from hpccoll.evidence.requested import requested_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Where a variant makes sense; what is None has no limit.

    Args:
        collectives: that it changes.
        dtypes: of elements.
        ops: reductions.
        least_nodes: with fewer there is nothing to do.
        most_nodes: with more it does not run.
        most_per_node: ranks on a node.
    """

    collectives: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    ops: tuple[str, ...] | None = None
    least_nodes: int = 1
    most_nodes: int | None = None
    most_per_node: int | None = None

    def unmet(self, collective: str, dtype: str, op: str | None, nodes: int, per_node: int) -> str | None:
        """Return why a case is outside, in words, or None where it is inside."""
        of = (("collective", collective, self.collectives), ("dtype", dtype, self.dtypes), ("op", op, self.ops))
        for key, word, valid in of:
            if word is not None and valid is not None and word not in valid:
                return f"the variant takes {key} {', '.join(valid)}, not {word}"
        if nodes < self.least_nodes:
            return f"the variant takes at least {self.least_nodes} nodes"
        if self.most_nodes is not None and nodes > self.most_nodes:
            return f"the variant takes at most {self.most_nodes} node{'s' * (self.most_nodes > 1)}"
        if self.most_per_node is not None and per_node > self.most_per_node:
            return f"the variant takes at most {self.most_per_node} rank{'s' * (self.most_per_node > 1)} per node"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A named environment.

    Args:
        what: it is for, in one line.
        transport: of the native cases that it changes: ``nccl``, or ``mpi`` for what stands behind an MPI.
        environment: variables and their values; ``variables`` says what each does.
        communicator: what NCCL's communicators are made with, beside them; ``communicator`` says what each does.
        demands: the evidence.
        needs: names of what must be there, see ``needs``.
        limits: where it makes sense.
        control: the variant that differs in what is claimed and must lose the evidence.
    """

    what: str
    transport: str
    environment: Mapping[str, str] = field(default_factory=dict)
    communicator: Settings = field(default_factory=dict)
    demands: Demand
    needs: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    control: str | None = None

    @property
    def requested(self) -> str | None:
        """What it asks the library for, in one word."""
        return requested_of(self.environment, communicator=self.communicator)
