"""The reason of a case that NCCL refuses is followed by the lines of the log that explain the refusal."""

import pytest
import raw_examples

from hpccoll.evidence.log_record import LogRecord, Unavailable
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.measure.executed_evidence import full_reason


@pytest.mark.parametrize(
    ("environment", "said"),
    [({"NCCL_ALGO": "PAT"}, "{line}"), ({"NCCL_ALGO": "CollnetDirect", "NCCL_COLLNET_ENABLE": "1"}, "{why}; {line}")],
)
def test_the_reason_of_a_refusal_and_no_other_gets_the_lines_of_the_log(environment, said):
    line = "No algorithm/protocol available for function AllReduce with datatype ncclFloat32."
    why = "NET/IB : SHARP coll init error: Cannot create SHARP job(-11)"
    unavailable = (
        Unavailable(feature="algorithm", reason="none is left", line=line),
        Unavailable(feature="sharp", reason="no job", line=why),
    )
    found, case = (
        ProbeResult(record=LogRecord(library="nccl", unavailable=unavailable)),
        raw_examples.case(8, algorithm="native", transport="nccl"),
    )
    asked = raw_examples.job(case, environment=environment), case
    assert (
        full_reason("NCCL refuses it: no", found, *asked) == f"NCCL refuses it: no; {said.format(line=line, why=why)}"
    )
    assert full_reason("too large", found, *asked) == "too large"
    assert full_reason("NCCL refuses it: no", None, *asked) == "NCCL refuses it: no"


def test_the_reason_of_a_refused_communicator_gets_the_line_on_its_gpus():
    line = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 7000"
    record = LogRecord(library="nccl", unavailable=(Unavailable(feature="gpu", reason="several ranks", line=line),))
    case = raw_examples.case(8, algorithm="native", transport="nccl")
    reason = full_reason("NCCL refuses it: no", ProbeResult(record=record), raw_examples.job(case), case)
    assert reason == f"NCCL refuses it: no; {line}"
