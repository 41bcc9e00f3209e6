"""What logs say, as data: which algorithm ran, over which network, and why something that was asked for did not."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One line of a library that says how it carried out a collective.

    Args:
        collective: in our word, such as ``all_reduce``.
        bytes: as the library counts them; None where it does not say.
        algorithm: ``ring``, ``tree``, ``collnet_direct``, ``collnet_chain``, ``nvls``, ``nvls_tree``, ``pat``; on
            registered windows ``symmetric``, ``copy_engine``, ``hierarchical_ce``; ``sharp``, ``ucp``, ``cuda``... for
            the transport layer that UCC chose.
        protocol: ``LL``, ``LL128`` or ``SIMPLE``; the name of a symmetric kernel, or what a copy engine does; the
            collective layer of UCC.
        channels: that share the work, None where it is not said.
        dtype: of the elements, by the project's name; None where it is not said.
        op: the reduction, None where it is not said.
        memory: that buffers lie in, ``host`` or ``cuda``; None where it is not said.
        line: the line itself.
    """

    collective: str
    bytes: int | None
    algorithm: str
    protocol: str | None = None
    channels: int | None = None
    dtype: str | None = None
    op: str | None = None
    memory: str | None = None
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A line that says why something that was asked for was not done.

    Args:
        of: what is refused: ``sharp``, ``nvls``, ``rdma``, ``algorithm``, ``gpu`` (ranks that share one).
        reason: in our words, short.
        line: the line itself.
    """

    of: str
    reason: str
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """One cell of NCCL's own cost model, from its TUNING table.

    Args:
        collective: in our word.
        algorithm: as in ``Ran``.
        protocol: as in ``Ran``.
        latency_s: of a call, seconds.
        bytes_per_s: of the vector, for large ones.
    """

    collective: str
    algorithm: str
    protocol: str
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What all logs of one launch say together. Tuples of text hold the lines that prove it, without their headers.

    Args:
        library: ``nccl``, ``ucc``, ``sharp`` (its own lines only, as with HCOLL); None where no line was known.
        version: of NCCL, such as ``2.30.7``.
        nodes: of the largest communicator; None where it is not said.
        ranks: of the largest communicator; None where it is not said.
        ran: the collectives.
        network: what NCCL says it uses between nodes: ``IB``, ``Socket``, or the name of a plugin.
        devices: the ports that it found, such as ``mlx5_0:1/IB``.
        gdr: whether every hop over RDMA goes directly to GPU memory; None where no hop is logged.
        paths: how many channels of all ranks go each way, such as ``NET/IB/GDRDMA``, ``P2P/CUMEM``, ``SHM``.
        nvls: lines that show that NVLink SHARP is set up.
        collnet: lines that show that NCCL's CollNet is connected.
        sharp: lines of SHARP itself: its plugin has started it, its library was given a group of ranks.
        trees: the trees of those groups: ``LLT`` for small messages, ``SAT`` for streaming aggregation.
        refusals: what was asked for and not done, and why.
        plugins: by kind (``net``, ``tuner``, ``collnet``, ``profiler``), the name.
        settings: variables that NCCL says it read from the environment or a file, and their values.
        communicator: settings that NCCL says a communicator was made with, by our names, and their values.
        files: of settings, that NCCL read.
        scores: rows of UCC's map of scores that name SHARP: where it may be chosen, not that it was.
        model: NCCL's own cost model.
        warnings: lines of level WARN, each once.
    """

    library: str | None = None
    version: str | None = None
    nodes: int | None = None
    ranks: int | None = None
    ran: tuple[Ran, ...] = ()
    network: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    gdr: bool | None = None
    paths: Mapping[str, int] = field(default_factory=dict)
    nvls: tuple[str, ...] = ()
    collnet: tuple[str, ...] = ()
    sharp: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    plugins: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    communicator: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    model: tuple[Modelled, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read what ``to_json`` wrote, here or in another version: what that has added is left out.

        Raises:
            ValueError: where it is something else.
        """
        try:
            read = json.loads(text)
            rows = {name: [row(**_known(row, one)) for one in read.get(name, ())] for name, row in _ROWS.items()}
            whole: dict[str, Any] = {**_known(cls, read), "library": read["library"], **rows}
            lists = {name: tuple(one) for name, one in whole.items() if isinstance(one, list)}
            return cls(**{**whole, **lists})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no record of evidence: {error}") from None


def _known(of: type[Any], read: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is read of the fields of a record."""
    return {one.name: read[one.name] for one in fields(of) if one.name in read}


_ROWS: Mapping[str, type[Any]] = {"ran": Ran, "refusals": Refusal, "model": Modelled}
"""The columns of a record that are records themselves."""
