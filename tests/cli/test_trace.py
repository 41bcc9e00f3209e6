"""hpccoll trace: why a recorded job hangs, as text and as JSON, and how it ends."""

import json

import pytest
from cli_runner import invoke

from tests.traces.kernel_files import begun_communicator, nccl_log
from tests.traces.recorded_files import Call, Ring, Timed, dump, ras, timed_dump, write_dumps
from tests.traces.test_nccl_ras import TABLE

WORLD, FIRST, SECOND = (
    Ring("0", (0, 1, 2, 3), "default_pg"),
    Ring("1", (0, 1), "tp"),
    Ring("2", (0, 1), "dp"),
)


@pytest.fixture
def hanging(tmp_path):
    """Rank 2 has completed what it called."""
    dumps = {
        rank: dump(rank, [Call(WORLD)] * (1 + (rank != 2)), {0}, groups=[WORLD])
        for rank in WORLD.ranks
    }
    return write_dumps(tmp_path / "dumps", dumps)


def test_the_rank_that_did_not_join_is_named_with_the_operation_its_group_time_and_place(hanging):
    result = invoke("trace", str(hanging))
    assert (result.code, result.err) == (3, "")
    first, *lines = result.out.splitlines()
    assert first == "PyTorch Flight Recorder: 4 ranks, 1 group, 3 operations"
    assert lines[:2] == [
        "  rank 2 did not join all_reduce 2 of 2 KiB in group default_pg (0), ranks 0-3",
        "    rank 0 enqueued it at 2026-09-21 14:13:20 UTC, called at train.py:42 step",
    ]
    assert lines[2].split(" in ")[0] == "    ranks 0-1,3 wait for rank 2"
    assert lines[3].startswith("    do: ")
    assert "py-spy" in lines[3]
    assert "rank 2" in lines[3]
    assert "record it once more" in lines[4]


def test_json_has_the_keys_of_the_contract_and_null_for_what_no_file_has(hanging):
    found = json.loads(invoke("trace", str(hanging), "--json").out)
    assert (found["ranks"], found["operations"], found["not_joined"]) == (4, 3, [2])
    assert [group["ranks"] for group in found["groups"]] == [[0, 1, 2, 3]]
    assert [
        found[key] for key in ("step_s", "share", "exposed", "waiting_s", "transfer_s", "late")
    ] == 6 * [None]
    (hang,) = found["hangs"]
    assert (hang["reason"], hang["ranks"], hang["operation"]["sequence"]) == ("not joined", [2], 2)
    assert (hang["hosts"], hang["polls"], hang["may_be_late"]) == ([None], 1, True)


def test_the_order_of_files_changes_no_line_and_the_earliest_call_and_the_largest_size_stand_for_all(
    tmp_path,
):
    calls = {rank: [Call(WORLD, "all_to_allv", 4096 - 1024 * rank)] for rank in (0, 1)}
    calls = {
        rank: [*each, Call(FIRST, ("all_reduce", "broadcast")[rank])]
        for rank, each in calls.items()
    }
    calls |= {2: [Call(WORLD, "all_to_allv", 5120)], 3: []}
    dumps = {rank: dump(rank, each, (), groups=[WORLD]) for rank, each in calls.items()}
    dumps[1]["entries"][0]["time_created_ns"] -= 10**9
    files = sorted(write_dumps(tmp_path, dumps).iterdir())
    texts = {invoke("trace", *each).out for each in (files, files[::-1], files[2:] + files[:2])}
    (text,) = texts
    assert "of up to 10 KiB in group default_pg" in text
    assert "rank 1 enqueued it at 2026-09-21 14:13:19" in text


@pytest.mark.parametrize("later", [2, 3])
def test_of_two_equal_recordings_it_is_said_that_they_may_be_copies(tmp_path, later):
    for time, calls in {"first": 2, "later": later}.items():
        done = {*range(calls - 1)}
        dumps = {
            rank: dump(rank, [Call(WORLD)] * (calls - (rank == 2)), done, active=False)
            for rank in range(4)
        }
        write_dumps(tmp_path / time, dumps)
    first, *_ = invoke("trace", tmp_path).out.splitlines()
    assert ("recorded 2 times" in first, "unless these are copies" in first) == (True, later == 2)


def test_each_of_several_jobs_names_its_files_on_the_page_too_and_its_own_absent_ranks(
    hanging, tmp_path
):
    reports = ["a.json", "b.json"]
    for late, name in enumerate(reports):
        digits, counts = f"0xab{late}", {rank: 5 - (rank == late) for rank in range(2)}
        (hanging / name).write_text(json.dumps(ras(counts, digits=digits)))
    result = invoke("trace", hanging, "--out", tmp_path / "page")
    headings = [
        line.split(":")[0] for line in result.out.splitlines() if not line.startswith((" ", "page"))
    ]
    assert [*filter(None, headings)] == [
        "PyTorch Flight Recorder of nccl_trace_rank_*",
        "NCCL RAS of a.json",
        "NCCL RAS of b.json",
    ]
    assert (
        len(
            {
                invoke("trace", *(hanging / name for name in names)).out
                for names in (reports, reports[::-1])
            }
        )
        == 1
    )
    page = (tmp_path / "page" / "index.html").read_text()
    assert ("Recorded jobs</" in page, page.count("RAS of b.json")) == (True, 2)
    found = json.loads(invoke("trace", hanging, "--json").out)
    assert found["not_joined"] == [0, 1, 2]
    assert [(each["not_joined"], len(each["files"])) for each in found["sources"]] == [
        ([2], 4),
        ([0], 1),
        ([1], 1),
    ]
    paths = [each["path"] for each in found["sources"]]
    assert paths == [each["path"] for each in found["hangs"]]
    assert paths == [f"{hanging}/{name}" for name in ("nccl_trace_rank_*", "a.json", "b.json")]


def test_a_circle_ends_with_3_and_blames_no_single_rank(tmp_path):
    order = {0: [FIRST, SECOND], 1: [SECOND, FIRST]}
    dumps = {
        rank: dump(rank, [Call(group) for group in groups], ()) for rank, groups in order.items()
    }
    result = invoke("trace", str(write_dumps(tmp_path, dumps)))
    assert (result.code, result.out.splitlines()[1]) == (
        3,
        "  ranks 0-1 wait for one another: the first one in all_reduce 1 of 2 KiB in group tp (1), ranks 0-1",
    )


def test_what_does_not_hang_or_hangs_in_the_network_ends_with_0_but_not_if_a_rank_has_no_file(
    tmp_path,
):
    program = [Call(WORLD)] * 2
    stuck = write_dumps(tmp_path / "stuck", {rank: dump(rank, program, {0}) for rank in range(4)})
    assert invoke("trace", str(stuck)).code == 0
    (stuck / "nccl_trace_rank_3").unlink()  # it may have died, and others wait for it
    assert invoke("trace", str(stuck)).code == 3
    report = tmp_path / "ras.json"
    report.write_text(json.dumps(ras({0: 5, 1: 5})))
    assert invoke("trace", str(report)).code == 0


def test_one_poll_is_said_to_be_one(tmp_path):
    report = tmp_path / "ras.json"
    report.write_text(json.dumps(ras({0: 5, 1: 4})))
    result = invoke("trace", str(report))
    assert result.code == 3
    assert "record it once more" in result.out
    later = tmp_path / "later.json"
    later.write_text(json.dumps(ras({0: 5, 1: 4}, time="2026-01-02 03:04:35")))
    both = invoke("trace", str(report), str(later)).out
    assert ("recorded 2 times" in both, "record it once more" in both) == (True, False)
    for files, polls in (([report], 1), ([report, later], 2)):
        (hang,) = json.loads(invoke("trace", *map(str, files), "--json").out)["hangs"]
        assert (hang["polls"], hang["may_be_late"]) == (polls, polls == 1)


def test_the_host_of_a_rank_that_others_wait_for_or_that_does_not_answer_is_named(tmp_path):
    report = tmp_path / "ras.json"
    places = {rank: (f"n{rank}", 9, 0) for rank in range(3)}
    for content in (
        ras({0: 5, 1: 5, 2: 4}, places=places),
        ras({0: 5, 1: 5}, missing=[2], places=places),
    ):
        report.write_text(json.dumps(content))
        assert "  rank 2 on n2 d" in invoke("trace", str(report)).out
        assert json.loads(invoke("trace", str(report), "--json").out)["hangs"][0]["hosts"] == ["n2"]


def test_who_called_what_is_said_and_who_joined_but_is_behind_is_not_among_those_that_did_not_join(
    tmp_path,
):
    wrong = {
        rank: dump(rank, [Call(FIRST, name)], ())
        for rank, name in enumerate(("all_reduce", "broadcast"))
    }
    assert (
        " rank 0 called all_reduce 1 of 2 KiB (bfloat16), rank 1 called broadcast 1 of 2 KiB (bfloat16) in "
        in invoke("trace", str(write_dumps(tmp_path / "wrong", wrong))).out
    )
    behind = {
        rank: dump(rank, [Call(WORLD)] * 3, {0} if rank == 1 else {0, 1}) for rank in range(4)
    }
    found = json.loads(invoke("trace", str(write_dumps(tmp_path / "behind", behind)), "--json").out)
    assert (found["not_joined"], [hang["ranks"] for hang in found["hangs"]]) == ([], [[1]])


def test_who_waits_for_gpus_that_are_behind_and_that_these_may_be_late_is_said_once(tmp_path):
    """The GPUs of ranks 1 and 3 are behind in tp; the others wait for both in default_pg."""
    pairs = {
        rank: Ring(str(1 + rank // 2), (rank // 2 * 2, rank // 2 * 2 + 1), "tp")
        for rank in range(4)
    }
    calls = {rank: [Call(pairs[rank]), Call(WORLD)] * 2 for rank in range(4)}
    dumps = {rank: dump(rank, each, () if rank % 2 else {0, 1}) for rank, each in calls.items()}
    text = invoke("trace", write_dumps(tmp_path, dumps)).out
    assert [line.split(" of ")[0] for line in text.splitlines() if " wait" in line] == [
        "    ranks 0,2 wait for ranks 1,3 to complete all_reduce 1"
    ]
    assert (text.count("is stuck"), text.count("record it once more")) == (2, 1)


def test_processes_that_fail_in_the_same_way_are_one_line(tmp_path):
    (tmp_path / "ras.json").write_text(json.dumps(ras({0: 5, 1: 5}, missing=[2, 3])))
    found = [
        line
        for line in invoke("trace", str(tmp_path)).out.splitlines()
        if "does not answer" in line
    ]
    assert found == ["  each of ranks 2-3 on 10.0.0.1 does not answer"]


def test_a_healthy_report_in_words_has_a_verdict_and_one_beside_it_that_cannot_be_read_ends_with_3(
    tmp_path,
):
    (tmp_path / "ras.txt").write_text(TABLE.replace("MISMATCH", "OK"))
    result = invoke("trace", str(tmp_path))
    assert (result.code, "no rank waits" in result.out) == (0, True)
    (tmp_path / "notes.txt").write_text("it hangs")
    result = invoke("trace", str(tmp_path))
    assert (result.code, "no rank waits" in result.out, "notes.txt" in result.err) == (
        3,
        True,
        True,
    )


def test_damaged_files_are_a_line_each_and_the_command_fails_only_without_any_other(
    hanging, tmp_path
):
    (hanging / "nccl_trace_rank_0").write_bytes(b"\x80\x02cos\nsystem\n.")
    result = invoke("trace", str(hanging))
    assert (result.code, len(result.err.splitlines())) == (3, 1)
    assert "nccl_trace_rank_0" in result.err
    notes = tmp_path / "notes.txt"
    notes.write_text("it hangs")
    assert invoke("trace", str(notes)).is_bad_input(
        "notes.txt", "not a file of a recorded job", "NCCL RAS"
    )
    (tmp_path / "empty").mkdir()
    assert invoke("trace", str(tmp_path / "empty")).is_bad_input("no file")
    assert invoke("trace", str(tmp_path / "none")).is_bad_input("none")


def test_of_many_files_that_cannot_be_read_the_rest_is_counted(hanging):
    for number in range(25):
        (hanging / f"empty{number}").touch()
    result = invoke("trace", str(hanging))
    *_, last = result.err.splitlines()
    assert (result.code, len(result.err.splitlines())) == (3, 21)
    assert last == "hpccoll: FILES: 5 more files cannot be read"


def test_a_file_that_is_older_than_the_others_blames_no_rank_and_leaves_the_rest_open(tmp_path):
    """Dumps of a running job, one of them a moment earlier: all-reduces that the others completed had all ranks."""
    program = [Call(WORLD)] * 5
    dumps = {rank: dump(rank, program, range(5), active=False) for rank in (0, 1, 3)}
    dumps[2] = dump(2, program[:2], range(2), active=False)
    path = str(write_dumps(tmp_path, dumps))
    result = invoke("trace", path)
    assert (result.code, "the files of rank 2 are older" in result.out) == (3, True)
    assert "did not join" not in result.out
    assert "no rank waits" not in result.out
    assert json.loads(invoke("trace", path, "--json").out)["not_joined"] == []


def test_that_no_rank_waits_leaves_out_the_ranks_without_a_file_by_name(tmp_path):
    program = [Call(WORLD)] * 2
    path = write_dumps(
        tmp_path, {rank: dump(rank, program, range(2), active=False) for rank in range(4)}
    )
    whole = invoke("trace", str(path))
    assert (whole.code, whole.out.splitlines()[-1]) == (
        0,
        "  no rank waits for another in these files",
    )
    (path / "nccl_trace_rank_3").unlink()
    result = invoke("trace", str(path))
    assert (result.code, "nothing is recorded of rank 3" in result.out) == (3, True)


@pytest.mark.parametrize("groups", [(), (WORLD,)])
def test_a_rank_without_any_operation_is_named_beside_others_that_have_some(groups, tmp_path):
    dumps = {rank: dump(rank, [Call(WORLD, "broadcast")], {0}, active=False) for rank in range(3)}
    path = write_dumps(tmp_path, dumps | {3: dump(3, (), (), groups=groups)})
    result = invoke("trace", str(path))
    assert (result.code, "no operation is recorded of rank 3" in result.out) == (3, True)


def test_files_without_an_operation_or_a_communicator_do_not_say_that_no_rank_waits(tmp_path):
    for number, groups in enumerate(((), (WORLD,))):  # a group was made, and nothing called in it
        path = write_dumps(
            tmp_path / f"dumps{number}",
            {rank: dump(rank, (), (), groups=groups) for rank in range(2)},
        )
        result = invoke("trace", str(path))
        assert (result.code, "no rank waits" in result.out, "is not known" in result.out) == (
            3,
            False,
            True,
        )
    (tmp_path / "logs").mkdir()
    for rank in range(2):
        (tmp_path / "logs" / f"rank{rank}.log").write_text(nccl_log(rank, 0))
    result = invoke("trace", str(tmp_path / "logs"))
    assert (result.code, "no rank waits" in result.out, "SUBSYS=INIT,COLL" in result.out) == (
        3,
        False,
        True,
    )
    words = tmp_path / "ras.txt"
    words.write_text("No communicator data collected!\n")
    report = tmp_path / "ras.json"
    report.write_text(json.dumps(ras({0: 5}) | {"communicators": [], "communicators_count": 0}))
    for each in (words, report):
        result = invoke("trace", str(each))
        assert (result.code, "no rank waits" in result.out) == (2, False)


def test_a_log_that_begins_late_has_fewer_calls_and_blames_no_rank(tmp_path):
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(
            nccl_log(rank, 9 - 4 * (rank == 2), first=4 * (rank == 2))
        )
    result = invoke("trace", str(tmp_path))
    assert "did not join" not in result.out
    assert "whose counts are left out" in result.out


@pytest.mark.parametrize("completed", [{0, 1, 2}, {0, 2}])
def test_a_communicator_that_a_rank_did_not_complete_is_named_and_ends_with_3(tmp_path, completed):
    text = "".join(begun_communicator(rank, 3) for rank in range(3))
    (tmp_path / "nccl.log").write_text(
        text + "".join(begun_communicator(rank, 3, "COMPLETE") for rank in completed)
    )
    result = invoke("trace", tmp_path)
    is_whole = len(completed) == 3
    assert (result.code, "no operation is recorded" in result.out) == (3, is_whole)
    assert ("rank 1 on n0 began communicator" in result.out) != is_whole


NOT_LATE = "no rank is late by 2.0 % of the time or more"
NOT_KNOWN = "whether any rank is late is not known"


def timed_job(directory, starts_ms, **call):
    """Write the dumps of ranks that start all-reduces at times, [operation][rank], and end them together 2 ms later."""
    ranks = range(len(starts_ms[0]))
    world = Ring("0", tuple(ranks), "default_pg")
    timed = {
        rank: [Timed(Call(world, **call), starts[rank], max(starts) + 2.0) for starts in starts_ms]
        for rank in ranks
    }
    return write_dumps(directory, {rank: timed_dump(rank, each) for rank, each in timed.items()})


def test_that_no_rank_is_late_takes_several_equal_collectives(tmp_path):
    starts_ms = [[10.0 * number, 10.0 * number + 0.01] for number in range(1, 13)]
    enough = invoke("trace", timed_job(tmp_path / "enough", starts_ms))
    few = invoke("trace", timed_job(tmp_path / "few", starts_ms[:3]))
    assert (enough.code, NOT_LATE in enough.out, NOT_KNOWN in enough.out) == (0, True, False)
    assert (few.code, NOT_LATE in few.out, NOT_KNOWN in few.out) == (0, False, True)


def test_a_late_rank_is_named_and_ends_with_0(tmp_path):
    starts_ms = [[10.0 * number, 10.0 * number + 3.0] for number in range(1, 13)]
    late = invoke("trace", timed_job(tmp_path, starts_ms))
    assert (late.code, NOT_LATE in late.out) == (0, False)
    assert "rank 1" in late.out


def test_that_no_rank_is_late_is_not_said_of_the_stages_of_a_pipeline(tmp_path):
    """Each stage has a group of its own; they are joined by messages only."""
    stages = {0: Ring("0", (0, 1), "default_pg"), 1: Ring("1", (0, 1), "pp")}
    timed = {0: [], 1: []}
    for step in range(12):
        begin = 100.0 * step
        came = begin + 70, begin + 50
        timed[1].append(Timed(Call(stages[1], "send", peer=0), begin + 40, begin + 60))
        timed[0].append(Timed(Call(stages[1], "recv", peer=1), begin + 40, begin + 60))
        for rank in (0, 1):
            timed[rank].append(Timed(Call(stages[0]), came[rank], max(came) + 1))
    traced = invoke(
        "trace",
        write_dumps(tmp_path, {rank: timed_dump(rank, each) for rank, each in timed.items()}),
    )
    assert (traced.code, NOT_LATE in traced.out) == (0, False)


def test_that_no_rank_is_late_is_not_said_where_blocks_may_differ(tmp_path):
    """Under the plain name of an all-gather, ranks record blocks of different sizes, and times follow them."""
    world = Ring("0", (0, 1, 2), "default_pg")
    timed = {
        rank: [
            Timed(
                Call(world, "all_gather", 1024 * (1 + rank)),
                10.0 * number,
                10.0 * number + 1 + rank,
            )
            for number in range(20)
        ]
        for rank in world.ranks
    }
    traced = invoke(
        "trace",
        write_dumps(tmp_path, {rank: timed_dump(rank, each) for rank, each in timed.items()}),
    )
    assert (traced.code, NOT_LATE in traced.out) == (0, False)
