"""What ran, judged by what the logs say: a row is SHARP only with evidence, and unknown where there is none."""

from dataclasses import dataclass

from hpccoll.evidence.expected_evidence import SIGNS, names_switches
from hpccoll.evidence.port_bytes import Ports
from hpccoll.evidence.records import Ran, Record
from hpccoll.evidence.requested import ALGORITHMS, BY_SWITCHES, IN_SWITCHES
from hpccoll.evidence.unavailable import RANK
from hpccoll.evidence.variants import demanded
from hpccoll.units import format_size

UNKNOWN = "unknown"
NETWORKS = {"rdma": "RDMA", "tcp": "TCP"}
"""By what nodes can talk, and what people call it."""

OFFLOADED = ("sharp", "nvls", "nvls_tree", "symmetric_multicast", *IN_SWITCHES)
"""First words of ``executed`` that are no load of links: switches reduce, and busbw is notional."""

_REFUSED = {
    **dict.fromkeys(BY_SWITCHES, ("sharp", "plugin", "algorithm")),
    **dict.fromkeys(("nvls", "nvls_tree"), ("nvls", "algorithm")),
}
"""Where to look for the reason why something that was asked for did not run."""

_NEW_DTYPES = ("int8", "uint8", "bfloat16")
"""What older switches do not add."""

_SHARES = {"nccl": ("all_gather", "reduce_scatter", "all_to_all"), "ucc": ("all_gather", "gather")}
"""Collectives whose bytes a library counts for one rank, and this project for all: S / p in its lines."""

_SIZELESS = ("barrier",)
"""Collectives of which no library says a size: there is none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ran.

    Args:
        executed: in a word, with what it fell back from and why: ``ring``, ``sharp (collnet_direct)``,
            ``ring (fallback: <line>)``, ``unknown``.
        words: the evidence, such as the line that says so.
    """

    executed: str
    words: str

    @property
    def offloaded(self) -> bool:
        """Whether switches reduced."""
        return self.executed.partition(" ")[0] in OFFLOADED


def verdict(
    requested: str | None, collective: str, nbytes: int, ranks: int, record: Record, *,
    dtype: str | None = None, op: str | None = None, memory: str | None = None, nodes: int | None = None,
    port_bytes: float | None = None,
) -> Verdict:  # fmt: skip
    """Judge one case.

    Args:
        requested: of the library, in one word; None where the choice was left to it.
        collective: of the case.
        nbytes: the S of the case. A line is evidence for exactly its own size, and for no other.
        ranks: the workers.
        record: of a launch with the same environment and shape.
        dtype: of the case; a line that names another is none of it.
        op: of the case, likewise.
        memory: of its buffers as the library sees them, ``host`` or ``cuda``, likewise.
        nodes: that they are on; None for what the log says.
        port_bytes: that all ports of a node sent for one operation; None where they were not counted.
    """
    nodes = nodes or record.nodes
    ports = Ports(nbytes, ranks, nodes, port_bytes if collective == "all_reduce" else None)
    of_case = collective if collective in _SIZELESS else f"{collective} of {format_size(nbytes)}"
    ran = lines_of(collective, nbytes, ranks, record, dtype, op, memory)
    kinds = {one.algorithm: one for one in ran}
    if len(kinds) > 1:
        return Verdict(
            UNKNOWN, f"the log names {' and '.join(kinds)} for {of_case}: {'; '.join(one.line for one in ran)}"
        )
    if not kinds:
        reasons = reasons_of(requested, record, dtype)
        return _silent(
            requested, collective, _counted(record.library, collective, nbytes, ranks), record, ports, reasons
        )
    return of_line(next(iter(kinds.values())), requested, record, dtype=dtype, ports=ports)


def of_line(
    one: Ran, requested: str | None, record: Record, *, dtype: str | None = None, ports: Ports | None = None
) -> Verdict:
    """Judge one line of ``record`` by itself, whatever others say of the same size.

    Args:
        one: the line.
        requested: as ``verdict`` has it.
        record: that it is of.
        dtype: of the case.
        ports: what they carried; None where nobody counted.
    """
    name, ports = one.algorithm, ports or Ports(one.bytes or 0, record.ranks or 1, record.nodes, None)
    # What NCCL takes for one node may be several hosts, of one NVLink.
    if names_switches(one) or (name == "nvls" and (record.nodes or ports.nodes or 1) > 1):
        return _claims_switches(name, one, record, ports)
    if record.library == "nccl" and name not in ALGORITHMS.values():  # registered windows: symmetric, copy_engine...
        # Kernels with MC in their names store or load by multicast: switches of NVLink copy or reduce.
        kind = f"{name}_multicast" if name == "symmetric" and "MC" in (one.protocol or "") else name
        return Verdict(f"{kind} ({one.protocol})", f"{one.line}; NCCL_ALGO does not hold for it")
    if requested in (None, name):
        return Verdict(name, one.line)
    reason = next(iter(reasons_of(requested, record, dtype)), "no line says why")
    sent = [str(ports)] if requested in BY_SWITCHES and ports.tell else []
    return Verdict(f"{name} (fallback: {reason})", "; ".join((one.line, *sent)))


def shared(library: str | None, collective: str) -> bool:
    """Return whether the bytes that a library logs are those of one rank, where this project counts all."""
    return collective in _SHARES.get(library or "", ())


def _counted(library: str | None, collective: str, nbytes: int, ranks: int) -> int | None:
    """Return what a library logs as the bytes of a case of S = ``nbytes``, None for what has no size."""
    if collective in _SIZELESS:
        return None
    return nbytes // ranks if shared(library, collective) else nbytes


def lines_of(
    collective: str, nbytes: int, ranks: int, record: Record, dtype: str | None, op: str | None,
    memory: str | None = None,
) -> list[Ran]:  # fmt: skip
    """Return what the logs say of one case, by the arguments of ``verdict``."""
    size = _counted(record.library, collective, nbytes, ranks)
    ops = (None, op, *(("sum",) if op == "avg" else ()))  # an average is a sum, and scaled where it is asked for
    return [
        one
        for one in record.ran
        if (one.collective, one.bytes) == (collective, size)
        and (dtype is None or one.dtype in (None, dtype))
        and (op is None or one.op in ops)
        and (memory is None or one.memory in (None, memory))
    ]


def _claims_switches(name: str, one: Ran, record: Record, ports: Ports) -> Verdict:
    """Judge a line that names what needs SHARP: it also takes SHARP's own lines, and ports that do not contradict."""
    if not record.sharp:
        return Verdict(f"{name} (not shown to be SHARP)", f"{one.line}; no line of SHARP itself")
    if ports.contradict:
        return Verdict(UNKNOWN, f"{one.line}; but {ports}")
    return Verdict("sharp" if name == "sharp" else f"sharp ({name})", f"{one.line}; {record.sharp[-1]}; {ports}")


def _silent(
    requested: str | None, collective: str, size: int | None, record: Record, ports: Ports, reasons: list[str]
) -> Verdict:  # fmt: skip
    """Judge a case that no line names: HCOLL and MVAPICH say nothing of single calls, and ports have to."""
    if requested == "sharp" and record.trees and not record.ran:
        which = "no line says which calls it carried out"
        return Verdict("sharp" if ports.prove else UNKNOWN, f"{record.sharp[-1]}; {which}; {ports}")
    logged = sorted({one.bytes for one in record.ran if one.collective == collective and one.bytes is not None})
    sizes = f", only of {', '.join(map(str, logged[:8]))}{'...' * (len(logged) > 8)} bytes" if logged else ""
    if size in logged:
        alike = (one for one in record.ran if (one.collective, one.bytes) == (collective, size))
        sizes = (
            f" with this dtype and op, only with {', '.join(dict.fromkeys(f'{one.dtype} {one.op}' for one in alike))}"
        )
    why = f"; {reasons[0]}" if requested and reasons else ""
    of = "" if size is None else f" of {size} bytes"
    return Verdict(UNKNOWN, f"no line names {collective}{of}{sizes}{why}")


def reasons_of(requested: str | None, record: Record, dtype: str | None) -> list[str]:
    """Return the lines that say why what was requested does not run, the one that says most first."""
    of = _REFUSED.get(requested or "", ("algorithm",))
    of = ("sharp-dtypes", *of) if "sharp" in of and dtype in _NEW_DTYPES else of
    known = [one for one in record.refusals if one.of in of]
    known.sort(key=lambda one: (of.index(one.of), RANK.get((one.of, one.reason), len(RANK))))
    return [one.line for one in known]


def network(record: Record) -> str | None:
    """Return by what nodes talk, ``rdma`` or ``tcp``; None where no line says it."""
    sockets = any(path.startswith("NET/Socket") for path in record.paths) or record.network == ("Socket",)
    if sockets or record.plugins.get("fabric", "").startswith(("tcp", "sockets")):
        return "tcp"
    return "rdma" if record.network else None


def red_line(record: Record, expected: str | None) -> str | None:
    """Return what to say at the top where nodes did not talk by what was expected, or None.

    Args:
        record: of a launch.
        expected: ``rdma`` or ``tcp``; None where nothing was.
    """
    used = network(record)
    if record.nodes == 1 or expected is None or used is None or used == expected:
        return None
    names = ", ".join(record.network) or "Socket"
    why = next((f": {one.line}" for one in record.refusals if one.of == "rdma"), "") if used == "tcp" else ""
    return f"{NETWORKS[expected]} was expected and {NETWORKS[used]} was used (NCCL: using network {names}){why}"


def control_fails(record: Record, variant: str) -> str | None:
    """Return what a negative control still shows of what it is to do without; None where that is gone, as it must be.

    Args:
        record: of a launch of the variant.
        variant: its name; of what is no negative control nothing is said.
    """
    demand = demanded(variant)
    if demand not in SIGNS:
        return None
    what, signs = SIGNS[demand]
    return next((f"{what} is off, and still: {line}" for line in signs(record)), None)
