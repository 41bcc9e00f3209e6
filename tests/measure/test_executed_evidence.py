"""The reason of a case that NCCL refuses is followed by the lines of the log that explain the refusal."""

import pytest
import raw_examples

from hpccoll.evidence.log_record import LogRecord, Unavailable
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.measure.executed_evidence import full_reason


def unavailable(feature, line):
    return Unavailable(feature=feature, reason="a reason", line=line)


NONE_LEFT = unavailable("algorithm", "No algorithm/protocol available for function AllReduce")
NO_JOB = unavailable("sharp", "NET/IB : SHARP coll init error: Cannot create SHARP job(-11)")
SHARED = unavailable("gpu", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 7000")
COLLNET = {"NCCL_ALGO": "CollnetDirect", "NCCL_COLLNET_ENABLE": "1"}


@pytest.mark.parametrize(
    ("reason", "environment", "record", "lines"),
    [
        ("NCCL refuses it: no", {"NCCL_ALGO": "PAT"}, (NONE_LEFT, NO_JOB), [NONE_LEFT]),
        ("NCCL refuses it: no", COLLNET, (NONE_LEFT, NO_JOB), [NO_JOB, NONE_LEFT]),
        ("NCCL refuses it: no", {}, (SHARED,), [SHARED]),
        ("too large", {"NCCL_ALGO": "PAT"}, (NONE_LEFT, NO_JOB), []),
        ("NCCL refuses it: no", {"NCCL_ALGO": "PAT"}, None, []),
    ],
)
def test_the_reason_of_a_refusal_and_no_other_gets_the_lines_of_the_log(reason, environment, record, lines):
    case = raw_examples.case(8, algorithm="native", transport="nccl")
    found = None if record is None else ProbeResult(record=LogRecord(library="nccl", unavailable=record))
    said = full_reason(reason, found, raw_examples.job(case, environment=environment), case)
    assert said == "; ".join((reason, *(one.line for one in lines)))
