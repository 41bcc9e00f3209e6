"""What ran by logs and port bytes; the reason of a refusal is followed by the lines of the log that explain it."""

from types import SimpleNamespace

import pytest
import raw_examples
from library_logs import read_log

from hpccoll.evidence.log_record import LogRecord, Unavailable
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.host.network_ports import SENT
from hpccoll.measure.port_traffic import PortTraffic
from hpccoll.measure.run.executed_evidence import full_reason, judge
from hpccoll.schedule import Layout


def unavailable(feature, line):
    return Unavailable(feature=feature, reason="a reason", line=line)


NONE_LEFT = unavailable("algorithm", "No algorithm/protocol available for function AllReduce")
NO_JOB = unavailable("sharp", "NET/IB : SHARP coll init error: Cannot create SHARP job(-11)")
SHARED = unavailable("gpu", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 7000")
COLLNET = {"NCCL_ALGO": "CollnetDirect", "NCCL_COLLNET_ENABLE": "1"}


@pytest.mark.parametrize(
    ("reason", "environment", "record", "lines"),
    [
        ("NCCL refuses it: no", COLLNET, (NONE_LEFT, NO_JOB), [NO_JOB, NONE_LEFT]),
        ("NCCL refuses it: no", {}, (SHARED,), [SHARED]),
        ("too large", {"NCCL_ALGO": "PAT"}, (NONE_LEFT, NO_JOB), []),
        ("NCCL refuses it: no", {"NCCL_ALGO": "PAT"}, None, []),
    ],
)
def test_the_reason_of_a_refusal_and_no_other_gets_the_lines_of_the_log(
    reason, environment, record, lines
):
    case = raw_examples.case(8, algorithm="native", transport="nccl")
    found = (
        None
        if record is None
        else ProbeResult(record=LogRecord(library="nccl", unavailable=record))
    )
    said = full_reason(reason, found, raw_examples.job(case, environment=environment), case)
    assert said == "; ".join((reason, *(one.line for one in lines)))


@pytest.mark.parametrize(
    ("vectors", "executed"),
    [(None, "sharp (collnet_direct)"), (1.02, "sharp (collnet_direct)"), (1.875, "unknown")],
)
def test_the_bytes_of_a_node_are_held_against_its_log(vectors, executed):
    size = 64 << 20
    case = raw_examples.case(size, algorithm="native", transport="nccl", device="cuda")
    prepared = SimpleNamespace(
        bytes=size, layout=Layout.of(16, 8), evidence=lambda _: ("unknown", None)
    )
    traffic = vectors and PortTraffic(1, ({("a", SENT): int(vectors * size)},) * 2)
    record = ProbeResult(record=read_log("sharp"))
    assert (
        judge(raw_examples.job(case, ranks=16, nodes=2), case, record, prepared, traffic)[0]
        == executed
    )
