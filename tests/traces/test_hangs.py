"""Who waits for whom: jobs whose fault is known, simulated and recorded by others."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.traces.flight_recorder import read
from hpccoll.traces.hangs import find_hangs
from hpccoll.traces.read_job import read_job
from hpccoll.traces.recorded_job import RecordedJob
from tests.traces.recorded_files import Call, Ring, dump, write_dumps

WORLD = Ring("0", (0, 1, 2, 3), "default_pg")
FIRST, SECOND = Ring("1", (0, 1), "tp"), Ring("2", (0, 1), "dp")
PIPELINE = Ring("3", (0, 1, 2, 3), "pp")


def hangs(directory, dumps, **options):
    (job,) = read_job([write_dumps(directory, dumps, **options)]).jobs
    return find_hangs(job)


def culprits(found):
    return sorted(rank for hang in found for rank in hang.ranks)


def test_a_rank_that_does_not_call_is_named_with_the_operation_and_the_line_that_called_it(
    tmp_path,
):
    program = [Call(WORLD), Call(WORLD, "_all_gather_base", 512), Call(FIRST)]
    dumps = {
        rank: dump(rank, program[: 1 if rank == 2 else 2], {0}, groups=[WORLD]) for rank in range(4)
    }
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks, hang.group.description) == ("not joined", (2,), "default_pg")
    operation = hang.operation
    assert (operation.collective, operation.sequence, operation.bytes) == (
        "all_gather",
        2,
        4 * 512 * 2,
    )
    assert (operation.where, operation.enqueued_ns % 1000) == ("train.py:42 step", 0)
    assert [(wait.ranks, wait.awaited) for wait in hang.waits] == [((0, 1, 3), (2,))]


def test_who_waits_by_way_of_another_rank_is_no_culprit_and_stands_in_the_chain(tmp_path):
    chain = Ring("7", (1, 2), "tp")
    dumps = {
        0: dump(0, [Call(FIRST)], ()),
        1: dump(1, [Call(chain)], (), groups=[FIRST]),
        2: dump(2, [], (), groups=[chain]),
    }
    (hang,) = hangs(tmp_path, dumps)
    assert hang.ranks == (2,)
    assert [(wait.ranks, wait.awaited) for wait in hang.waits] == [((1,), (2,)), ((0,), (1,))]


def test_two_groups_in_opposite_order_are_a_circle_for_hosts_that_block(tmp_path):
    order = {0: FIRST, 1: SECOND}
    dumps = {rank: dump(rank, [Call(order[rank])], (), groups=[FIRST, SECOND]) for rank in order}
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks, hang.may_be_late(RecordedJob(""))) == ("circle", (0, 1), True)
    assert [(wait.ranks, wait.group.name) for wait in hang.waits] == [((0,), "1"), ((1,), "2")]


def test_two_groups_in_opposite_order_are_a_circle_for_gpus_though_all_have_launched(tmp_path):
    order = {0: [FIRST, SECOND], 1: [SECOND, FIRST]}
    dumps = {
        rank: dump(rank, [Call(group) for group in groups], ()) for rank, groups in order.items()
    }
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks, hang.is_absence) == ("circle", (0, 1), True)
    assert not hang.may_be_late(RecordedJob(""))


def test_a_rank_that_waits_for_a_circle_is_not_in_it(tmp_path):
    order = {0: [FIRST], 1: [SECOND], 2: [WORLD], 3: [WORLD]}
    groups = {0: [FIRST, SECOND, WORLD], 1: [FIRST, SECOND, WORLD], 2: [WORLD], 3: [WORLD]}
    dumps = {
        rank: dump(rank, [Call(each) for each in order[rank]], (), groups=groups[rank])
        for rank in order
    }
    assert [(hang.reason, hang.ranks) for hang in hangs(tmp_path, dumps)] == [("circle", (0, 1))]


def test_if_all_have_launched_no_rank_is_named_but_the_gpu_or_the_network(tmp_path):
    program = [Call(WORLD), Call(WORLD)]
    dumps = {rank: dump(rank, program, {0}) for rank in range(4)}
    (hang,) = hangs(tmp_path / "all", dumps)
    assert (hang.reason, hang.ranks, hang.is_absence) == ("launched", (), False)
    assert hang.operation.sequence == 2
    del dumps[3]
    (hang,) = hangs(tmp_path / "three", dumps)
    assert (hang.reason, hang.ranks, hang.is_absence) == ("unrecorded", (3,), True)


def test_a_rank_that_waits_for_one_without_a_file_is_no_culprit(tmp_path):
    """Rank 1 waits in dp for rank 3, whose file is missing, and rank 0 in tp for rank 1."""
    other = Ring("2", (1, 3), "dp")
    dumps = {0: dump(0, [Call(FIRST)], ()), 1: dump(1, [Call(other)], (), groups=[FIRST])}
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks) == ("unrecorded", (3,))
    assert [wait.ranks for wait in hang.waits] == [(1,), (0,)]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Call(WORLD, "broadcast"), "mismatch"),
        (Call(WORLD, elements=512), "mismatch"),
        (Call(WORLD), "launched"),
    ],
)
def test_a_rank_that_calls_something_else_with_the_same_number_is_named(tmp_path, wrong, reason):
    dumps = {
        rank: dump(rank, [Call(WORLD), wrong if rank == 1 else Call(WORLD)], {0})
        for rank in range(4)
    }
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks) == (reason, (1,) if reason == "mismatch" else ())


def test_who_completed_a_collective_of_a_group_with_messages_is_not_absent_from_it(tmp_path):
    """Rank 1's GPU is behind: the others have completed the all-reduce, and are in the next one."""
    message = {0: [Call(WORLD, "send", peer=1)], 1: [Call(WORLD, "recv", peer=0)]}
    dumps = {}
    for rank in range(4):
        calls = [*message.get(rank, []), Call(WORLD), Call(WORLD)]
        done = {*range(len(calls) - (2 if rank == 1 else 1))}
        dumps[rank] = dump(rank, calls, done, active=False)
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks) == ("behind", (1,))


def test_a_completed_message_does_not_hide_that_a_rank_did_not_join_the_collective_of_its_number(
    tmp_path,
):
    messages = {0: [Call(WORLD, "send", peer=1)] * 2, 1: [Call(WORLD, "recv", peer=0)] * 2}
    dumps = {}
    for rank in range(4):
        calls = [Call(WORLD), *messages.get(rank, [])]
        dumps[rank] = dump(
            rank, [*calls, *[Call(WORLD)] * (rank != 1)], {*range(len(calls))}, active=False
        )
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks, hang.operation.collective) == (
        "not joined",
        (1,),
        "all_reduce",
    )


def test_a_collective_is_found_open_also_where_only_counts_betray_the_messages_of_its_group(
    tmp_path,
):
    """The dumps have active operations only, and all messages have completed."""
    dumps = {}
    for rank, (name, peer) in enumerate([("send", 1), ("recv", 0), ("send", 3), ("recv", 2)]):
        calls = [
            *[Call(PIPELINE, name, peer=peer)] * 8,
            *[Call(PIPELINE, "broadcast")] * (rank != 2),
        ]
        dumps[rank] = dump(rank, calls, {*range(8)})
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks) == ("not joined", (2,))


def test_of_a_group_whose_counts_have_no_name_nothing_is_said_but_that_nothing_is_recorded(
    tmp_path,
):
    """Rank 2 has no entry of two groups whose names are no numbers, so nothing says which count is of which group."""
    groups = [WORLD, Ring("7", WORLD.ranks), Ring("8", WORLD.ranks)]
    dumps = {
        rank: dump(
            rank, [Call(WORLD), *[Call(groups[1])] * (rank != 2)], {0}, active=False, groups=groups
        )
        for rank in range(4)
    }
    renamed = json.loads(json.dumps(dumps).replace('"7"', '"mesh_dp"').replace('"8"', '"mesh_tp"'))
    (hang,) = hangs(tmp_path, {int(rank): content for rank, content in renamed.items()})
    assert (hang.reason, hang.ranks) == ("unrecorded", (2,))


def test_whose_last_collective_is_not_among_the_open_ones_has_completed_it_and_is_not_absent(
    tmp_path,
):
    """Rank 1's GPU is behind in the all-reduce, and dumps have active operations only."""
    messages = {0: [Call(WORLD, "send", peer=1)], 1: [Call(WORLD, "recv", peer=0)]}
    dumps = {}
    for rank in range(4):
        calls = [*messages.get(rank, []), Call(WORLD)]
        dumps[rank] = dump(rank, calls, () if rank == 1 else {len(calls) - 1})
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks) == ("behind", (1,))


def test_a_rank_that_does_not_complete_what_others_completed_has_a_gpu_that_is_stuck(tmp_path):
    program = [Call(WORLD)] * 5
    dumps = {rank: dump(rank, program, {0} if rank == 1 else {0, 1, 2}) for rank in range(4)}
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks, hang.operation.sequence) == ("behind", (1,), 2)


@pytest.mark.parametrize("silent", range(4))
def test_a_stage_of_a_pipeline_that_does_not_call_is_named_however_few_messages_the_ends_have(
    tmp_path, silent
):
    """Stages between others have twice as many messages as the first and the last one."""
    done = {0: 40, 1: 80, 2: 80, 3: 40}
    calls = {
        rank: [
            Call(PIPELINE, "send" if turn % 2 else "recv", peer=peer)
            for turn in range(number)
            for peer in [min(3, rank + 1) if rank < 3 else 2]
        ]
        for rank, number in done.items()
    }
    towards = {rank: rank + 1 if rank < silent else rank - 1 for rank in done}
    pending = {rank: Call(PIPELINE, "recv", peer=towards[rank]) for rank in done if rank != silent}
    dumps = {
        rank: dump(
            rank, [*calls[rank], *([pending[rank]] if rank in pending else [])], {*range(number)}
        )
        for rank, number in done.items()
    }
    assert culprits(hangs(tmp_path, dumps)) == [silent]


def test_messages_that_both_partners_posted_wait_for_nobody(tmp_path):
    pair = [Call(FIRST, "send", peer=1)], [Call(FIRST, "recv", peer=0)]
    (hang,) = hangs(tmp_path, {rank: dump(rank, calls, ()) for rank, calls in enumerate(pair)})
    assert hang.reason == "launched"


@pytest.mark.parametrize("numbers", [(1, 2), (1, 1)], ids=["one after the other", "in a batch"])
@pytest.mark.parametrize("name", ["send", "recv"])
def test_two_ranks_that_both_send_before_they_receive_wait_for_one_another_but_not_in_a_batch(
    tmp_path, name, numbers
):
    other = {"send": "recv", "recv": "send"}[name]
    dumps = {
        rank: dump(rank, [Call(FIRST, name, peer=1 - rank), Call(FIRST, other, peer=1 - rank)], ())
        for rank in (0, 1)
    }
    for content in dumps.values():
        for entry, number in zip(content["entries"], numbers, strict=True):
            entry["p2p_seq_id"] = number
        content["entries"] += [{**entry, "profiling_name": "nccl:coalesced"}] * (numbers == (1, 1))
    (hang,) = hangs(tmp_path, dumps)
    assert (hang.reason, hang.ranks) == (
        ("circle", (0, 1)) if numbers == (1, 2) else ("launched", ())
    )


def test_in_dumps_of_two_times_only_what_did_not_change_is_stuck(tmp_path):
    """Rank 2 comes late to each operation: in the first dumps to the second one, in later ones to the fourth one."""

    def dumps(late):
        return {
            rank: dump(rank, [Call(WORLD)] * (late - (rank == 2)), {*range(late - 1)}, active=False)
            for rank in range(4)
        }

    found = {}
    for time, late in {"first": 2, "again": 2, "later": 4}.items():
        write_dumps(tmp_path / time, dumps(late))
    for times in (
        ["first"],
        ["first", "again"],
        ["again", "first"],
        ["first", "later"],
        ["later", "first"],
    ):
        (job,) = read_job([tmp_path / time for time in times]).jobs
        found[" ".join(times)] = [
            (hang.ranks, hang.may_be_late(job), job.polls) for hang in find_hangs(job)
        ]
    assert found == {
        "first": [((2,), True, 1)],
        "first again": [((2,), False, 2)],
        "again first": [((2,), False, 2)],
        "first later": [],
        "later first": [],
    }


@pytest.mark.parametrize("active", [False, True])
def test_dumps_of_a_running_job_are_known_by_their_threads_also_where_they_have_no_operation_in_common(
    tmp_path, active
):
    """The ring of a full dump was overwritten in between."""
    for time, late in {"first": 2, "later": 5}.items():
        dumps = {
            rank: dump(
                rank,
                [Call(WORLD)] * (late - (rank == 2)),
                {*range(late - 1)},
                active=active,
                groups=[WORLD],
                thread=70 + rank,
            )
            for rank in range(4)
        }
        for content in dumps.values():
            content["entries"] = [
                entry for entry in content["entries"] if time == "first" or entry["record_id"] > 1
            ]
        write_dumps(tmp_path / time, dumps)
    (job,) = read_job([tmp_path]).jobs
    assert (job.ranks[3].rank, find_hangs(job)) == (3, [])


def test_what_a_rank_without_a_second_dump_had_open_at_the_first_time_is_not_stuck(tmp_path):
    """The others have completed it since then."""
    for time, late in {"first": 3, "later": 6}.items():
        dumps = {
            rank: dump(rank, [Call(WORLD)] * late, {*range(late - 1)}, active=False)
            for rank in range(4)
        }
        if time == "later":
            del dumps[2]
        write_dumps(tmp_path / time, dumps)
    (job,) = read_job([tmp_path]).jobs
    assert ([each.rank for each in job.ranks], find_hangs(job)) == ([0, 1, 2, 3], [])


@pytest.mark.parametrize("stops", [False, True])
def test_messages_of_a_pipeline_that_moves_between_two_dumps_name_no_rank(tmp_path, stops):
    """A stage waits for the next message at both times; only if it is the same one, its partner did not send it."""
    for time, done in {"first": 4, "later": 4 if stops else 8}.items():
        calls = {
            0: [Call(FIRST, "send", peer=1)] * done,
            1: [Call(FIRST, "recv", peer=0)] * (done + 1),
        }
        dumps = {
            rank: dump(rank, each, {*range(done)}, active=False) for rank, each in calls.items()
        }
        write_dumps(tmp_path / time, dumps)
    (job,) = read_job([tmp_path]).jobs
    assert [hang.ranks for hang in find_hangs(job)] == ([(0,)] if stops else [])


def test_of_ranks_that_did_not_join_those_are_named_that_have_nothing_open_at_the_last_time(
    tmp_path,
):
    pair = Ring("2", (2, 3))
    calls = {
        0: [Call(WORLD)] * 2,
        1: [Call(WORLD)] * 2,
        2: [Call(WORLD), Call(pair)],
        3: [Call(WORLD), Call(pair)],
    }
    for time, open_at in {"first": 2, "later": 3}.items():
        dumps = {
            rank: dump(
                rank,
                each[: 2 - (rank == 3 != open_at)],
                {0, 1} if rank == 2 != open_at else {0},
                active=False,
            )
            for rank, each in calls.items()
        }
        write_dumps(tmp_path / time, dumps)
    (job,) = read_job([tmp_path]).jobs
    assert [hang.ranks for hang in find_hangs(job)] == [(2,)]


GROUPS = [
    WORLD,
    FIRST,
    Ring("2", (2, 3)),
    Ring("4", (0, 2)),
    Ring("5", (1, 3)),
    Ring("6", (1, 2, 3)),
]


@settings(max_examples=150, deadline=None)
@given(
    program=st.lists(st.sampled_from(GROUPS), min_size=1, max_size=12),
    stops=st.dictionaries(st.integers(0, 3), st.integers(0, 11), max_size=2),
    ahead=st.integers(1, 4),
)
def test_in_any_program_only_ranks_that_stop_are_named_and_one_is_if_a_rank_waits_for_one(
    tmp_path_factory, program, stops, ahead
):
    """Each rank calls all operations of its groups in one order, at most some ahead of the first incomplete one."""
    own = {
        rank: [place for place, group in enumerate(program) if rank in group.ranks]
        for rank in range(4)
    }
    completed, called = set(), dict.fromkeys(own, 0)
    while True:
        for rank, places in own.items():
            while called[rank] < len(places) and places[called[rank]] < stops.get(rank, 99):
                if sum(place not in completed for place in places[: called[rank]]) >= ahead:
                    break
                called[rank] += 1
        new = {
            place
            for place, group in enumerate(program)
            if all(place in own[rank][: called[rank]] for rank in group.ranks)
            and all(
                earlier in completed
                for rank in group.ranks
                for earlier in own[rank]
                if earlier < place
            )
        }
        if new <= completed:
            break
        completed |= new
    groups = {rank: [group for group in GROUPS if rank in group.ranks] for rank in own}
    dumps = {
        rank: dump(
            rank,
            [Call(program[place]) for place in places[: called[rank]]],
            {number for number, place in enumerate(places) if place in completed},
            groups=groups[rank],
        )
        for rank, places in own.items()
    }
    awaited = {
        rank
        for rank in stops
        for place in own[rank][called[rank] :]
        if any(place in own[other][: called[other]] for other in program[place].ranks)
    }
    found = set(culprits(hangs(tmp_path_factory.mktemp("dumps"), dumps)))
    assert found <= awaited
    assert bool(found) == bool(awaited)


PUBLIC = Path(os.environ.get("HPCCOLL_DATA", "/nowhere")) / "jobs"
with_data = pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of jobs"
)


@with_data
@pytest.mark.parametrize("fault", ["gpu_error_1st", "lock_gil_1st"])
def test_the_faulty_ranks_of_public_fault_injections_are_named_and_no_others(fault):
    (job,) = read_job([PUBLIC / "torch-fr" / fault]).jobs
    truth = (
        (PUBLIC / "torch-fr" / fault / "fault_injection.log")
        .read_text()
        .partition("[")[2]
        .partition("]")[0]
    )
    assert culprits(find_hangs(job)) == [int(rank) for rank in truth.split(",")]


@with_data
def test_two_jobs_of_the_same_ranks_in_one_directory_are_kept_apart():
    jobs = read_job([PUBLIC / "torch-fr"]).jobs
    assert [culprits(find_hangs(job)) for job in jobs] == [[12, 14], [9, 14]]


@with_data
@pytest.mark.parametrize("pattern", ["fr_rank*.json", "fr_active_rank*.pkl"])
def test_the_absent_rank_of_gloo_is_named_from_full_dumps_and_from_those_of_active_operations(
    pattern,
):
    (job,) = read_job(sorted((PUBLIC / "torch-fr-gloo-made-here").glob(pattern))).jobs
    (hang,) = find_hangs(job)
    assert (hang.ranks, hang.operation.collective, hang.operation.sequence) == (
        (2,),
        "all_reduce",
        6,
    )
    assert "which operations of gloo have completed" in job.cannot_say
    assert read(next((PUBLIC / "torch-fr-gloo-made-here").glob(pattern))).operations
