"""What a run's logs say of the library and its network, in words, for the findings and beside its provenance."""

from collections.abc import Iterator

from hpccoll.evidence.modelled import modelled_s
from hpccoll.evidence.probe_result import Found
from hpccoll.evidence.records import Record
from hpccoll.report.wire_bandwidth import SHARED_GPU
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row, Run


def probe_of_run(run: Run) -> Found:
    """Return what the probe of a run found; nothing where there was none."""
    return Found.from_json(run.evidence) if run.evidence else Found()


def expected_s(found: Found, row: Row) -> float | None:
    """Return what the library's own model gives for a row of its own, seconds; None where it says nothing.

    Of links, which ranks that share a GPU do not use.
    """
    if found.record is None or row.algorithm != NATIVE or row.transport != "nccl" or row.kind == SHARED_GPU:
        return None
    return modelled_s(found.record, row.collective, row.bytes, row.ranks, dtype=row.dtype, op=row.op)


def library_summary(found: Found) -> str:
    """Return the library, the network between nodes and how near it is to the GPUs, in a line; empty without logs."""
    return "; ".join(filter(None, (*_network_facts(found.record), found.balance))) if found.record else ""


def _network_facts(record: Record | None) -> Iterator[str]:
    if record is None or record.library != "nccl":
        return
    across = record.nodes is None or record.nodes > 1
    yield f"NCCL {record.version or 'of a version that it does not log'}" + (
        f" over {', '.join(record.network)}" if record.network and across else ""
    )
    if record.gdr is not None:
        yield "GPUDirect RDMA on every hop" if record.gdr else "not every hop with GPUDirect RDMA"
    if tuner := record.plugins.get("tuner"):
        yield f"tuner plugin {tuner}"
    if record.files:
        yield f"settings of {', '.join(record.files)}"


def library_facts(run: Run) -> dict[str, object]:
    """Return what is to be listed of the logs of a run."""
    found = probe_of_run(run)
    record = found.record or Record()
    facts = {
        "library": library_summary(found),
        "ways": ", ".join(f"{count} x {way}" for way, count in record.paths.items()),
        "refused": "; ".join(refusal.line for refusal in record.refusals),
        "warnings": "; ".join(record.warnings),
        "no evidence": found.why,
        "logs": found.logs,
    }
    return {f"evidence.{name}": words for name, words in facts.items() if words}
