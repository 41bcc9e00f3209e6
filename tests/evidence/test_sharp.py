"""libsharp's log: groups of ranks with trees of switches."""

from library_logs import TEXTS, read_log

from hpccoll.evidence.log_set import read_logs


def test_groups_of_several_ranks_show_sharp_and_jobs_do_not():
    record = read_log("sharp")
    assert record.trees == ("LLT", "SAT")
    assert [line.split(maxsplit=1)[0] for line in record.sharp] == ["SHARP", "[group#:0]", "[group#:1]"]
    assert [line.partition("  ")[0] for line in record.collnet] == [
        "Connected Collnet Chains",
        "rank 0 Connected CollNet",
    ]
    alone = TEXTS["sharp"].replace("group size:2", "group size:1")
    assert read_logs({"a": alone}).trees == ()


def test_channels_to_sharp_before_it_refuses_are_no_evidence():
    before = TEXTS["sharp"].split("[n1:0:400")[0]
    record = read_logs({"a": before})
    assert record.paths == {"COLLNET/SHARP/GDRDMA": 1}
    assert (record.collnet, record.sharp) == ((), ())


def test_warnings_of_sharp_are_kept_with_their_places():
    line = "[n1:0:9 - context.c:705][2026-03-01 10:00:00] WARN the port is down"
    assert read_logs({"a": line}).warnings == ("context.c:705: the port is down",)


def test_hcoll_is_recognised_by_lines_of_sharp_without_others():
    record = read_log("hcoll")
    assert (record.library, record.trees, record.collectives) == ("sharp", ("LLT",), ())
