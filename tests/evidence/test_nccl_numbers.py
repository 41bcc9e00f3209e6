"""What NCCL 2.20 to 2.23 says in numbers. The texts are written after the sources of those releases, not recorded."""

from pathlib import Path

import pytest
from cli_runner import invoke

from hpccoll.evidence.log_set import read_logs
from hpccoll.evidence.nccl import NUMBERED_ALGORITHMS
from hpccoll.evidence.requested import NCCL_ALGORITHMS
from hpccoll.evidence.verdict import judge_collective

LOG = Path(__file__).parent / "logs" / "numbers-2.22.log"
HEAD = "n1:9:9 [0] NCCL INFO "


def call(function, count):
    buffers = f"sendbuff 0x1 recvbuff 0x2 count {count} datatype 7 op 0 root 0"
    return f"{HEAD}{function}: opCount 0 {buffers} comm 0x3 [nranks=4] stream 0x4"


def ran(*lines):
    return [(one.collective, one.bytes, one.algorithm) for one in read_logs({"a": "\n".join(lines)}).collectives]


def test_algorithm_and_protocol_are_read_for_each_single_call_with_its_dtype_and_op():
    record = read_logs({"a": LOG.read_text()})
    assert [
        (one.collective, one.bytes, one.algorithm, one.protocol, one.dtype, one.op) for one in record.collectives
    ] == [
        ("all_reduce", 8, "tree", "LL", "float32", "sum"),
        ("all_reduce", 67108864, "ring", "SIMPLE", "float32", "sum"),
        ("all_gather", 2048, "ring", "LL128", "bfloat16", None),
        ("reduce_scatter", 32768, "nvls", "SIMPLE", "float64", "max"),
        ("broadcast", 512, "ring", "LL", "uint8", None),
    ]
    assert {one.channels for one in record.collectives} == {None}


def test_the_size_of_a_case_is_that_of_all_ranks_as_in_newer_versions():
    record = read_logs({"a": LOG.read_text()})
    assert judge_collective(None, "all_gather", 8192, 4, record, dtype="bfloat16").executed == "ring"
    assert judge_collective("tree", "all_reduce", 64 * 2**20, 4, record).executed == "ring (fallback: no line says why)"
    assert judge_collective(None, "all_gather", 2048, 4, record).executed == "unknown"


def test_the_numbers_are_those_of_nccls_algorithms_in_their_order():
    assert sorted(NUMBERED_ALGORITHMS) == sorted(NCCL_ALGORITHMS.values())
    for number, name in enumerate(NUMBERED_ALGORITHMS):
        line = f"{HEAD}4096 Bytes -> Algo {number} proto 2 time 1.0"
        assert ran(call("AllReduce", 1024), line) == [("all_reduce", 4096, name)]
    assert ran(call("AllReduce", 1024), f"{HEAD}4096 Bytes -> Algo 7 proto 2 time 1.0") == []


@pytest.mark.parametrize("named", ["", "AllReduce: "])
def test_a_line_is_of_the_one_call_before_it_whether_or_not_it_names_the_function(named):
    line = f"{HEAD}{named}4096 Bytes -> Algo 1 proto 2 time 12.400000"
    small = f"{HEAD}{named}8 Bytes -> Algo 0 proto 0 time 1.000000"
    assert ran(call("AllReduce", 1024), line, call("AllReduce", 2), small) == [
        ("all_reduce", 4096, "ring"), ("all_reduce", 8, "tree")
    ]  # fmt: skip


LINE = f"{HEAD}4096 Bytes -> Algo 1 proto 2 time 12.400000"
NAMED = LINE.replace("4096 Bytes", "AllReduce: 4096 Bytes")


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([LINE], id="no call"),
        pytest.param([NAMED], id="no call, named"),
        pytest.param([call("AllReduce", 512), call("AllReduce", 512), LINE], id="the sum of a group"),
        pytest.param([call("Broadcast", 1024), call("AllReduce", 1024), LINE, LINE], id="a group of two kinds"),
        pytest.param([call("AllReduce", 512), LINE], id="another size"),
        pytest.param([call("AllGather", 1024), LINE], id="another size of all ranks"),
        pytest.param([call("Broadcast", 1024), NAMED], id="another function"),
        pytest.param([call("AllReduce", 1024).partition("comm")[0], LINE], id="a call that is cut short"),
        pytest.param([call("AllReduce", 1024), LINE.replace("n1:9", "n2:9")], id="another process"),
        pytest.param([call("AllReduce", 1024), LINE.partition("time")[0]], id="a line that is cut short"),
    ],
)
def test_a_line_that_may_be_of_something_else_says_nothing(lines):
    assert ran(*lines) == []


def test_after_a_group_the_next_single_call_is_read_again():
    group = [call("AllReduce", 512), call("Broadcast", 512), LINE, LINE]
    assert ran(*group, call("AllReduce", 1024), LINE) == [("all_reduce", 4096, "ring")]


def test_evidence_tells_such_a_log():
    lines = invoke("evidence", LOG).out.splitlines()
    assert lines[0] == "NCCL 2.22.3, 4 ranks on 2 nodes"
    assert "ran: all_reduce of 64 MiB (float32 sum): ring, protocol SIMPLE" in lines
    assert "ran: all_gather of 2 KiB a rank (bfloat16): ring, protocol LL128" in lines
