"""UCC's log: the trace of collectives, and the map of scores."""

from library_logs import read_log

from hpccoll.evidence.log_set import read_logs


def test_layers_sizes_and_sharp_scores_of_ucc_are_read():
    record = read_log("ucc-sharp")
    assert (record.library, record.ranks, record.trees) == ("ucc", 4, ("LLT", "SAT"))
    assert [
        (one.collective, one.bytes, one.algorithm, one.protocol, one.dtype, one.op) for one in record.collectives
    ] == [
        ("barrier", None, "ucp", "CL_BASIC", None, None),
        ("all_reduce", 1048576, "sharp", "CL_BASIC", "float32", "sum"),
        ("reduce", 8, "ucp", "CL_BASIC", "float64", "min"),
    ]
    assert record.scores == (
        "Allreduce: Host: {0..inf}:TL_SHARP:inf", "Allreduce: Cuda: {0..4095}:TL_UCP:10 {4K..inf}:TL_SHARP:inf"
    )  # fmt: skip


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
    assert [one.bytes for one in read_logs({"a": in_place("Allgather")}).collectives] == [None]
    other = TEAM.replace("32768", "32769")
    assert [one.bytes for one in read_logs({"a": f"{other}\n{in_place('Allgather')}"}).collectives] == [None]
