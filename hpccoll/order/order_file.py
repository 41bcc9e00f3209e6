"""The file of an order that was revealed: what a library, or an algorithm of ours, did at which sizes.

Commands that read it hold the order of the native call against those of our algorithms, and against
that of another library, version or number of nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from hpccoll.common.errors import BadInputError
from hpccoll.common.files import open_regular
from hpccoll.common.limits import Name, Ranks, Size
from hpccoll.common.records import json_text, load_record
from hpccoll.order.revealed import CANNOT_TELL, Kind
from hpccoll.schedule.summation_tree import parse_tree

MAX_FILE_BYTES = 256 << 20

MEANING = "a file of 'hpccoll order --out'"

SCHEMA_WORD = b'"hpccoll-order '
"""With it the schema of such a file begins."""

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
Call = Annotated[int, Meta(ge=1, le=1 << 20)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedSize:
    """A size that was probed."""

    bytes: Size
    # of the trees of all elements, as that of an ``ElementOrder``: two calls of one digest give the
    # same bits, unless they have fused sums; None if it cannot be told, or ranks differ
    digest: Digest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEpoch:
    """Calls on a new communicator, one after the other, that sum alike."""

    first_call: Call
    last_call: Call
    as_later: bool  # whether they sum as all later calls do
    # as those of ``OrderOfSizes``; empty if they sum as later calls do, or it cannot be told
    trees: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOfSizes:
    """Probed sizes, one after the other, at which a collective sums alike."""

    sizes: Annotated[tuple[ProbedSize, ...], Meta(min_length=1)]  # ascending
    kinds: tuple[Kind, ...]  # what is known of its elements
    # the different trees of its elements as expressions such as ((0 1) 2), by the first element of
    # each at the largest size
    trees: tuple[str, ...]
    # at the largest size, the first element of each block, and the number of its tree; -1 without
    blocks: tuple[tuple[Size, Annotated[int, Meta(ge=-1, le=1 << 30)]], ...]
    ranks_agree: bool  # whether all ranks have the same bits
    in_place_agrees: bool  # whether the bits in place are those out of place
    in_place_trees: tuple[str, ...]  # if they do not, the trees in place
    # whether a call on another communicator has the same bits; None if it was not tried
    repeats: bool | None
    # the first calls on a new communicator; empty if they were not tried
    history: tuple[CallEpoch, ...]
    # whether an algorithm of ours sums as its schedule says; None for a library's own
    as_scheduled: bool | None
    # the algorithms of ours, with parameters that are not the default, that have the same bits at
    # each size
    same_bits_as: tuple[str, ...]

    @property
    def first_bytes(self) -> int:
        """The smallest size."""
        return self.sizes[0].bytes

    @property
    def last_bytes(self) -> int:
        """The largest size."""
        return self.sizes[-1].bytes

    @property
    def depends_on_history(self) -> bool:
        """Whether first calls sum in another order than later ones."""
        return not all(epoch.as_later for epoch in self.history)

    @property
    def is_known(self) -> bool:
        """Whether the order of every element is known, and the same on all ranks."""
        return self.ranks_agree and not set(self.kinds) & set(CANNOT_TELL)

    def __post_init__(self) -> None:
        """Check the expressions.

        Raises:
            BadInputError: if one is not a tree.
        """
        for text in (*self.trees, *self.in_place_trees):
            try:
                parse_tree(text)
            except ValueError as error:
                raise BadInputError("trees", text, str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOfCollective:
    """What was revealed of a collective, at all sizes that were probed."""

    collective: Name
    ranges: tuple[OrderOfSizes, ...]  # ascending

    def range_at(self, nbytes: int) -> OrderOfSizes | None:
        """Return the range of a size; None if the order changes between the probed sizes around it, or beyond them."""
        for order in self.ranges:
            if order.first_bytes <= nbytes <= order.last_bytes:
                return order
        return None

    def is_probed(self, nbytes: int) -> bool:
        """Return whether a size itself was probed, not only one below and one above it."""
        return any(size.bytes == nbytes for order in self.ranges for size in order.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RevealedOrder:
    """The order of the sums of an algorithm on a machine."""

    schema: Literal["hpccoll-order 1.0"] = "hpccoll-order 1.0"
    algorithm: Name  # native: the library's own
    created: str
    hpccoll: str  # the version
    library: str  # the MPI library and its version
    nccl: str | None  # the version of NCCL, if it is used
    thread_level: str  # of MPI: multiple, serialized, funneled or single
    machine: str
    hosts: tuple[str, ...]
    ranks: Ranks
    nodes: Ranks
    ranks_per_node: tuple[int, ...]  # of each node
    mapping: Name  # of ranks to nodes: block, cyclic or mixed
    transport: Name
    device: Name
    dtype: Name
    op: Literal["sum"] = "sum"
    root: Annotated[int, Meta(ge=0)]
    params: Mapping[str, int | str]
    variant: str | None  # the named variant of the library
    variables: Mapping[str, str]  # settings of libraries
    collectives: tuple[OrderOfCollective, ...]

    def of(self, collective: str) -> OrderOfCollective | None:
        """Return what was revealed of a collective; None if it was not probed."""
        for revealed in self.collectives:
            if revealed.collective == collective:
                return revealed
        return None

    @property
    def is_answered(self) -> bool:
        """Whether every order is told, and, of an algorithm of ours, is that of its schedule."""
        ranges = [order for revealed in self.collectives for order in revealed.ranges]
        return all(order.is_known and order.as_scheduled is not False for order in ranges)

    def save(self, path: Path) -> None:
        """Write the file."""
        path.write_text(json_text(self) + "\n")

    @classmethod
    def load(cls, path: Path, key: str) -> "RevealedOrder":
        """Return the content of a file; ``key`` names it in messages.

        Raises:
            BadInputError: if the file is something else.
        """
        return load_record(path, key, MAX_FILE_BYTES, cls, MEANING)


def is_order_file(path: Path) -> bool:
    """Return whether a JSON file names the schema of a revealed order, be its content valid or not.

    Raises:
        UnusableError: if it cannot be read.
    """
    if path.suffix != ".json" or not path.is_file():
        return False
    with open_regular(path, "path") as file:
        return any(SCHEMA_WORD in line for line in file)
