"""Evidence from the logs of a run: the library, its network, and the times that its own model predicts."""

from collections.abc import Iterator, Mapping

from hpccoll.cases.skip_reason import COLLECTIVE_VARIABLES
from hpccoll.evidence.creation_sentences import creation_summary
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.schedule.collective import NATIVE
from hpccoll.store.rows import Row, Run
from hpccoll.store.schema import ON_SHARED_GPU


def probe_of_run(run: Run) -> ProbeResult:
    """Return the probe result of a run; an empty one if the run had no probe."""
    if not run.evidence:
        return ProbeResult()
    return ProbeResult.from_json(run.evidence)


def expected_s(probe: ProbeResult, row: Row) -> float | None:
    """Return the seconds that the library's own model predicts for one of its rows; None without a prediction.

    The model is one of links, which ranks that share a GPU do not use.
    """
    is_own_call = row.algorithm == NATIVE and row.transport == "nccl"
    if probe.record is None or not is_own_call or row.kind == ON_SHARED_GPU:
        return None
    return probe.record.modelled_seconds(
        row.collective, row.bytes, row.ranks, dtype=row.dtype, op=row.op
    )


def nccl_name(run: Run) -> str:
    """Return NCCL with its version and build, which its log names; without a log the version; empty without NCCL."""
    record = probe_of_run(run).record
    if record and record.library == "nccl" and record.version:
        return f"NCCL {record.version}{record.build}"
    loaded = run.provenance.get("nccl")
    if not isinstance(loaded, list) or not loaded:
        return ""
    versions = dict.fromkeys(host["library"]["version"] for host in loaded)
    return f"NCCL {' and '.join(versions)}"


def collective_variables(run: Run) -> dict[str, str]:
    """Return the variables of a run, of its variant or inherited, that affect the library's own collectives only."""
    recorded = run.provenance.get("variables")
    variables: dict[str, str] = {}
    if isinstance(recorded, Mapping):
        variables |= recorded
    variables |= run.environment
    return {
        name: value for name, value in variables.items() if COLLECTIVE_VARIABLES.fullmatch(name)
    }


def library_summary(probe: ProbeResult) -> str:
    """Return one line: the library, the network between nodes, and its distance to the GPUs; empty without logs."""
    if not probe.record:
        return ""
    facts = (*_network_facts(probe.record), probe.balance)
    return "; ".join(filter(None, facts))


def _network_facts(record: LogRecord) -> Iterator[str]:
    if record.library != "nccl":
        return
    is_on_one_node = record.nodes is not None and record.nodes <= 1
    name = f"NCCL {record.version or 'of a version that it does not log'}"
    networks = ", ".join(record.network)
    if networks and not is_on_one_node:
        name += f" over {networks}"
    yield name
    if record.gdr is not None:
        yield "GPUDirect RDMA on every hop" if record.gdr else "not every hop with GPUDirect RDMA"
    if tuner := record.plugins.get("tuner"):
        yield f"tuner plugin {tuner}"
    if record.files:
        yield f"settings of {', '.join(record.files)}"


def library_facts(run: Run) -> dict[str, object]:
    """Return the facts from the logs of a run that the provenance lists."""
    probe = probe_of_run(run)
    record = probe.record or LogRecord()
    channels = [f"{count} x {path}" for path, count in record.paths.items()]
    refused = [refusal.line for refusal in record.unavailable]
    facts = {
        "library": library_summary(probe),
        "channels": ", ".join(channels),
        "communicators": creation_summary(record.creations),
        "refused": "; ".join(refused),
        "warnings": "; ".join(record.warnings),
        "no evidence": probe.failure,
        "logs": probe.logs,
    }
    return {f"evidence.{name}": text for name, text in facts.items() if text}
