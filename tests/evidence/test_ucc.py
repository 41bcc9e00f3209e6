"""UCC's log: the trace of collectives, and the map of scores."""

import pytest
from cli_runner import invoke

from hpccoll.evidence.log_set import read_logs

UCC = "[1.2] [n1:7  :0]        ucc_coll.c:255  UCC_COLL INFO  "
TEAM = "[1.1] [n1:7  :0]        ucc_team.c:452  UCC  INFO  ===== COLL_SCORE_MAP (team_id 32768, size 4) ====="


def in_place(function):
    return f"{UCC}coll_init: {function} inplace: dst={{0x7fc1, 64, int32, Host}}; CL_BASIC {{TL_UCP}}, team_id 32768"


def test_in_place_the_source_is_a_block_of_the_destination_by_the_team_size():
    text = "\n".join((TEAM, in_place("Allreduce max"), in_place("Allgather"), in_place("Gather"), in_place("Scatter")))
    assert [(one.collective, one.bytes, one.op) for one in read_logs({"a": text}).collectives] == [
        ("all_reduce", 256, "max"), ("all_gather", 64, None), ("gather", 64, None), ("scatter", None, None)
    ]  # fmt: skip


def test_in_place_without_a_team_size_the_source_is_unknown():
    other = TEAM.replace("32768", "32769")
    assert [one.bytes for one in read_logs({"a": f"{other}\n{in_place('Allgather')}"}).collectives] == [None]


def problem(place, component, text, level="ERROR"):
    return f"[1657643132.702496] [n1:7:0]   {place}  {component} {level} {text}"


def test_ucc_that_could_not_be_used_is_a_failure_with_its_reason_and_the_lines_before(tmp_path):
    before = problem("tl_ucp_context.c:88", "TL_UCP", "failed to create ucp worker")
    line = problem("ucc_team.c:294", "UCC ", "No CL teams were created")
    (tmp_path / "a.log").write_text(f"{before}\n{line}\n{line.replace('n1:7', 'n2:7')}\n")
    ran = invoke("evidence", tmp_path)
    assert (ran.code, ran.out.count("WRONG")) == (3, 1)
    assert ran.out.startswith("WRONG: UCC is not used: no team was created (ucc_team.c:294: No CL teams")
    assert "warning: tl_ucp_context.c:88: failed to create ucp worker" in ran.out


def test_an_error_of_ucc_is_a_warning_if_its_collectives_ran(tmp_path):
    text = "\n".join((problem("ucc_team.c:294", "UCC ", "No CL teams were created"), in_place("Allreduce sum")))
    (tmp_path / "a.log").write_text(text)
    ran = invoke("evidence", tmp_path)
    assert (ran.code, "WRONG" in ran.out, "without UCC: no team was created" in ran.out) == (0, False, True)


@pytest.mark.parametrize("component", ["UCC ", "CL_BASIC", "TL_NCCL", "cuda mc", "rocm ec"])
def test_other_errors_and_warnings_of_all_components_are_warnings_with_their_places(component):
    for level in ("ERROR", "FATAL", "WARN"):
        log = problem("mc_cuda.c:97", component, "x failed", level)
        assert read_logs({"a": log}).warnings == ("mc_cuda.c:97: x failed",)


def test_an_error_of_the_layer_of_sharp_is_the_reason_why_sharp_was_not_used():
    record = read_logs({"a": problem("tl_sharp_context.c:97", "TL_SHARP", "failed to initialize SHARP collectives")})
    (one,) = record.unavailable
    assert (one.feature, one.reason) == ("sharp", "failed to initialize SHARP collectives")


def test_the_trace_of_ucc_1_1_is_read_once_for_all_ranks():
    def init(call, rank):
        return (
            f"[1.2] [n1:7:0] ucc_coll.c:240  UCC  DEBUG coll_init: req 0x{rank}a, seq_num 3, TL_UCP, team_id 1, "
            f"size 4, rank {rank}, ctx_rank {rank}: {call}"
        )

    calls = ("Allreduce Host inplace=0 bytes=64 float32 sum", "Allgather Cuda inplace=0 bytes=64")
    more = ("Bcast Host inplace=0 root=2 bytes=8", "Alltoallv Host inplace=0 sbytes=8 rbytes=8")
    record = read_logs({"a": "\n".join(init(call, rank) for call in (*calls, *more) for rank in range(4))})
    assert record.ranks == 4
    assert {one.algorithm for one in record.collectives} == {"ucp"}
    assert [(one.collective, one.bytes, one.memory, one.dtype, one.op) for one in record.collectives] == [
        ("all_reduce", 64, "host", "float32", "sum"), ("all_gather", 16, "cuda", None, None),
        ("broadcast", 8, "host", None, None), ("all_to_all_v", 8, "host", None, None),
    ]  # fmt: skip


def test_the_version_of_ucc_is_read():
    text = problem("ucc.c:188", "UCC ", "version: 1.3.0, loaded from: /opt/libucc.so.1, cfg file: n/a", "INFO")
    assert read_logs({"a": text}).version == "1.3.0"
