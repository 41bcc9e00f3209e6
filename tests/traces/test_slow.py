"""Transfer, waiting, late ranks and the share of communication in recorded jobs."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hpccoll.render.slow_text import slow_answers, slow_notes
from hpccoll.store.waiting import NO_RANK
from hpccoll.traces.read_job import read_job
from hpccoll.traces.recorded_job import (
    Computing,
    Group,
    Progress,
    Rank,
    RecordedJob,
    RecordedOperation,
    union_of,
)
from hpccoll.traces.slow import SlowParts, slow_parts

MS = 1_000_000


def recorded(
    starts_ms: list[list[float]],
    transfer_ms: float = 2.0,
    clocks_ms: tuple[float, ...] = (),
    name: str = "all_reduce",
    group: Group | None = None,
    **more,
) -> RecordedJob:
    """A job whose ranks, one on each host, start operations at times by one clock, and end them together.

    Args:
        starts_ms: [operation][rank].
        transfer_ms: of each operation, after the last rank has come.
        clocks_ms: by how much the clock of each host is ahead.
        name: of the collectives.
        group: of all ranks.
        more: further fields of each record.
    """
    ranks = range(len(starts_ms[0]))
    clocks = clocks_ms or (0.0,) * len(ranks)
    operations = [
        RecordedOperation(
            rank,
            group or Group("0", tuple(ranks), "dp"),
            name,
            number,
            bytes=1 << 20,
            dtype="float32",
            started_ns=round((start + clocks[rank]) * MS),
            ended_ns=round((end + clocks[rank]) * MS),
            duration_s=(end - start) / 1e3,
            **more,
        )
        for number, starts in enumerate(starts_ms)
        for end in [max(starts) + transfer_ms]
        for rank, start in enumerate(starts)
    ]
    return RecordedJob("made here", [Rank(rank, f"n{rank}") for rank in ranks], operations)


def test_a_rank_that_comes_5_ms_late_is_named_whatever_the_clocks_of_its_host_show():
    starts = [[10.0 * n, 10.0 * n + 0.1, 10.0 * n + 5.0] for n in range(1, 9)]
    parts = slow_parts(recorded(starts, clocks_ms=(0.0, 700.0, -4000.0)))
    assert [each.rank for each in parts.late] == [2]
    (late,) = parts.came_last
    assert (late.rank, late.share) == (2, 1.0)
    assert late.median_s == pytest.approx(5e-3, rel=0.1)
    assert parts.shifts_s[1] - parts.shifts_s[2] == pytest.approx(4.7)
    assert transfer_s(parts) == pytest.approx(8 * 2e-3)
    assert parts.ranks[0].waiting_s == pytest.approx(8 * 5e-3)
    assert parts.ranks[2].waiting_s == pytest.approx(0, abs=1e-9)


def transfer_s(parts: SlowParts) -> float:
    return (
        float(np.median([each.transfer_s or 0.0 for each in parts.ranks])) if parts.ranks else 0.0
    )


def answers(job: RecordedJob) -> str:
    return "\n".join(slow_answers(slow_parts(job)))


def test_who_waited_for_a_late_rank_in_one_group_is_not_late_in_the_next():
    """Rank 3 is late by 5 ms in its group of 2 and 3; 2 is therefore late in that of 0 and 2, and did nothing."""
    operations, now = [], [0.0] * 4
    for number in range(20):
        now[3] += 5.0
        for name, pairs in (("tp", ((0, 1), (2, 3))), ("dp", ((0, 2), (1, 3)))):
            for pair in pairs:
                end = max(now[rank] for rank in pair) + 2.0
                for rank in pair:
                    operations.append(
                        RecordedOperation(
                            rank,
                            Group(f"{name}{pair}", pair),
                            "all_reduce",
                            number,
                            started_ns=round(now[rank] * MS),
                            ended_ns=round(end * MS),
                            duration_s=(end - now[rank]) / 1e3,
                        )
                    )
                    now[rank] = end
    job = RecordedJob("x", [Rank(rank, "n0") for rank in range(4)], operations)
    assert {each.rank for each in slow_parts(job).came_last} == {3}
    assert [each.rank for each in slow_parts(job).late] == [3]
    assert "rank 3 on n0 is late" in answers(job)


def test_a_rank_that_is_late_while_its_other_stream_waits_is_not_excused():
    """Rank 1 computes for 5 ms more before each all-reduce, while its reduce-scatter waits 10 ms for rank 0."""
    reduced = recorded([[20.0 * n + 4, 20.0 * n + 9] for n in range(20)], 0.1)
    scattered = recorded(
        [[20.0 * n + 10, 20.0 * n] for n in range(20)],
        0.1,
        name="reduce_scatter",
        group=Group("1", (0, 1)),
    )
    parts = slow_parts(
        RecordedJob("x", reduced.ranks, [*reduced.operations, *scattered.operations])
    )
    late = {each.rank: each.operations for each in parts.came_last}
    assert late[1] == 20
    # of 1 ms it only waited
    assert parts.times[0].waiting.late_s == pytest.approx(np.array([5e-3, *[4e-3] * 19]))


def test_a_rank_that_was_late_once_is_not_called_late():
    job = recorded([[10.0 * n, 10.0 * n + 5.0 * (n == 50)] for n in range(100)])
    (last,) = slow_parts(job).came_last
    assert (last.rank, last.share) == (1, 0.01)
    assert slow_parts(job).late == []
    assert "no rank is late" in answers(job)
    assert slow_parts(job).opening is None


@pytest.mark.parametrize("steps", [20, 50, 200])
@pytest.mark.parametrize("ranks", [4, 8])
def test_chance_of_microseconds_makes_no_lag_of_milliseconds_smaller(steps, ranks):
    """All wait after each step, so that no lag is brought along to the next one, whatever it looks like."""
    for seed in range(10):
        starts_ms = (
            np.random.default_rng(seed).normal(0, 0.01, (steps, ranks))
            + 20.0 * np.arange(steps)[:, None]
        )
        starts_ms[:, 2] += 4
        parts = slow_parts(recorded(starts_ms.tolist()))
        (lag,) = parts.late
        assert (lag.rank, lag.total_s) == (2, pytest.approx(4e-3 * (steps - 1), rel=0.02))
        assert lag.part == pytest.approx(0.2, rel=0.02)


@pytest.mark.parametrize("jitter_ms", [0.001, 0.02])
def test_a_healthy_job_names_no_late_rank(jitter_ms):
    spread = np.random.default_rng(48).uniform(0, jitter_ms, (200, 2))
    assert "no rank is late" in answers(
        recorded([[10.0 * n + a, 10.0 * n + b] for n, (a, b) in enumerate(spread)])
    )


def test_what_a_broadcast_takes_is_neither_called_transfer_nor_waiting():
    reduced, sent = (
        recorded([[100.0, 100.0]]),
        recorded([[0.0, 0.0]], transfer_ms=50.0, name="broadcast"),
    )
    job = RecordedJob(
        "x",
        reduced.ranks,
        [*reduced.operations, *(replace(o, sequence=9) for o in sent.operations)],
    )
    assert "2 ms is transfer, and 0 ns waiting" in answers(job)
    assert "of up to 50 ms it is not known" in answers(job)


def test_hosts_that_share_collectives_in_a_chain_only_are_aligned_along_it():
    clocks = 0.0, 700.0, -4000.0, 90.0
    operations = []
    for pair in ((0, 1), (1, 2), (2, 3)):
        for number in range(10):
            for rank in pair:
                start = 10.0 * number + 3.0 * (rank == pair[1])
                end = 10.0 * number + 5.0
                operations.append(
                    RecordedOperation(
                        rank,
                        Group(str(pair), pair),
                        "all_reduce",
                        number,
                        started_ns=round((start + clocks[rank]) * MS),
                        ended_ns=round((end + clocks[rank]) * MS),
                        duration_s=(end - start) / 1e3,
                    )
                )
    parts = slow_parts(RecordedJob("x", [Rank(rank, f"n{rank}") for rank in range(4)], operations))
    shifts = [parts.shifts_s[rank] - parts.shifts_s[0] for rank in range(4)]
    assert shifts == pytest.approx([clock / 1e3 for clock in clocks])
    assert parts.residual_s == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("ahead_s", "shifts"), [(3600.0, [0.0, 3600.001]), (0.005, [])])
def test_clocks_that_no_collective_aligns_begin_together_only_if_they_share_no_moment(
    ahead_s, shifts
):
    job = recorded([[1.0, 2.0], [11.0, 12.0]], clocks_ms=(0.0, ahead_s * 1e3), name="send")
    assert [*slow_parts(job).shifts_s.values()] == pytest.approx(shifts)


def test_a_rank_without_collectives_has_the_clock_of_its_host():
    job = recorded([[10.0 * n, 10.0 * n + 5] for n in range(9)], clocks_ms=(0.0, 700.0))
    sent = [replace(each, rank=2, collective="send") for each in job.operations if each.rank == 1]
    shifts = slow_parts(
        RecordedJob("x", [*job.ranks, Rank(2, "n1")], [*job.operations, *sent])
    ).shifts_s
    assert shifts[2] == shifts[1] == pytest.approx(shifts[0] + 0.7)


def test_a_slow_network_makes_the_transfer_long_and_no_rank_late():
    parts = slow_parts(recorded([[10.0 * n] * 3 for n in range(1, 9)], transfer_ms=4.0))
    assert transfer_s(parts) == pytest.approx(8 * 4e-3)
    assert parts.late == []


@pytest.mark.parametrize(
    ("ahead_ms", "said"),
    [(0.0, "clocks agree to 2 us"), (3200.0, "differ by up to 3.2 s, and were aligned to 2 us")],
)
def test_clocks_that_were_aligned_are_not_said_to_agree_nor_better_than_recorders_count(
    ahead_ms, said
):
    starts_ms = [[10.0 * n, 10.0 * n + 0.1] for n in range(1, 9)]
    first, *_ = slow_notes(slow_parts(recorded(starts_ms, clocks_ms=(0.0, ahead_ms))))
    assert said in first


def test_no_order_is_claimed_below_what_the_clocks_agree_to():
    job = recorded([[10.0 * n, 10.0 * n + 0.001 * (n % 2)] for n in range(1, 20)])
    noisy = [
        RecordedOperation(
            o.rank,
            o.group,
            o.collective,
            o.sequence,
            duration_s=o.duration_s,
            started_ns=o.started_ns,
            ended_ns=o.ended_ns + (o.sequence % 5) * 10_000 * o.rank,
        )
        for o in job.operations
    ]
    parts = slow_parts(RecordedJob("made here", job.ranks, noisy))
    assert parts.residual_s > 5e-6
    assert parts.late == []


def test_a_broadcast_bounds_no_transfer_and_names_no_late_rank():
    parts = slow_parts(recorded([[0.0, 5.0]] * 4, name="broadcast"))
    assert parts.times[0].waiting is None
    assert (transfer_s(parts), parts.late) == (0, [])


def test_without_the_records_of_a_rank_the_transfer_is_an_upper_bound():
    parts = slow_parts(recorded([[0.0, 5.0]] * 2, group=Group("0", (0, 1, 2))))
    assert not parts.times[0].is_complete
    assert slow_parts(recorded([[0.0, 5.0]] * 2)).times[0].is_complete


def test_numbers_that_count_each_type_by_itself_are_not_confused():
    first = recorded([[0.0, 1.0]], by_type=True).operations
    second = recorded([[5.0, 7.0]], name="all_gather", by_type=True)
    parts = slow_parts(RecordedJob("x", second.ranks, [first[0], *second.operations, first[1]]))
    assert {each.collective: len(each.operations) for each in parts.times} == {
        "all_reduce": 1,
        "all_gather": 1,
    }
    assert parts.unmatched == {}


def test_messages_without_numbers_are_each_of_one_rank_and_spoil_no_match():
    job = recorded([[0.0, 5.0]])
    group = job.operations[0].group
    sent = [RecordedOperation(rank, group, "send", None, duration_s=1e-3) for rank in (0, 0, 1)]
    parts = slow_parts(RecordedJob("x", job.ranks, [*job.operations, *sent]))
    assert {each.collective: len(each.operations) for each in parts.times} == {
        "all_reduce": 1,
        "send": 3,
    }
    assert parts.unmatched == {}


def test_ends_that_were_noticed_late_leave_the_order_to_the_durations():
    job = recorded([[10.0 * n, 10.0 * n + 5.0] for n in range(1, 20)])
    late = [
        replace(each, started_ns=each.started_ns + noticed, ended_ns=each.ended_ns + noticed)
        for each in job.operations
        for noticed in [50 * MS * ((each.sequence * 7 + each.rank * 3) % 5)]
    ]
    parts = slow_parts(RecordedJob("x", job.ranks, late))
    assert parts.residual_s is None
    assert [each.rank for each in parts.late] == [1]
    assert (parts.came_last[0].rank, parts.came_last[0].median_s) == (1, pytest.approx(5e-3))


def test_operations_without_numbers_match_by_order_only_if_all_ranks_recorded_the_same_ones():
    job = recorded([[0.0, 5.0], [10.0, 12.0]])
    bare = [
        RecordedOperation(
            o.rank,
            o.group,
            o.collective,
            None,
            duration_s=o.duration_s,
            started_ns=o.started_ns,
            ended_ns=o.ended_ns,
        )
        for o in job.operations
    ]
    matched = slow_parts(RecordedJob("x", job.ranks, bare))
    assert matched.times[0].waiting.last.tolist() == [1, 1]
    other = slow_parts(RecordedJob("x", job.ranks, bare[:-1]))
    assert (other.times, [group.name for group in other.unmatched]) == ([], ["0"])


def test_a_number_under_which_ranks_recorded_different_operations_hides_no_other():
    job = recorded([[10.0 * n, 10.0 * n + 5] for n in range(10)])
    mixed = [
        replace(each, collective="broadcast") if each.rank == each.sequence == 1 else each
        for each in job.operations
    ]
    parts = slow_parts(RecordedJob("x", job.ranks, mixed))
    assert ([len(of.operations) for of in parts.times], [*parts.unmatched.values()]) == ([9], [1])
    assert [(each.rank, each.operations) for each in parts.came_last] == [(1, 9)]
    assert [each.rank for each in parts.late] == [1]


def test_transfer_of_operations_at_the_same_time_is_not_called_a_part_of_less_time():
    first, second = (recorded([[0.0, 0.0]], 10.0, group=Group(name, (0, 1))) for name in "ab")
    assert "each rank communicates for 10 ms, in operations that take 20 ms" in answers(
        RecordedJob("x", first.ranks, [*first.operations, *second.operations])
    )
    assert "in operations" not in answers(first)


def test_communication_that_a_kernel_hides_is_not_exposed():
    job = recorded([[1.0, 1.0]])  # both ranks communicate from 1 to 3 ms
    computing = [
        Computing(0, [(0, 2 * MS)], (0, 10 * MS)),
        Computing(1, [(5 * MS, 6 * MS)], (0, 10 * MS), steps=2),
    ]
    first, second = slow_parts(
        RecordedJob("x", job.ranks, job.operations, computing=computing)
    ).ranks
    assert (first.share, first.exposed, first.step_s) == (
        pytest.approx(0.2),
        pytest.approx(0.1),
        pytest.approx(0.01),
    )
    assert (second.exposed, second.step_s) == (pytest.approx(0.2), pytest.approx(0.005))


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda span: (min(span), max(span)))
    )
)
def test_a_union_covers_what_its_spans_cover(spans):
    union = union_of(spans)
    assert {t for begin, end in union for t in range(begin, end)} == {
        t for b, e in spans for t in range(b, e)
    }
    assert all(end < begin for (_, end), (begin, _) in pairwise(union))


def test_calls_without_times_have_sizes_and_no_waiting():
    called = [RecordedOperation(0, Group("0", (0, 1)), "all_reduce", 1, bytes=8)]
    parts = slow_parts(RecordedJob("x", [Rank(0)], called))
    assert [(each.collective, each.waiting) for each in parts.times] == [("all_reduce", None)]
    assert (parts.ranks, parts.late, transfer_s(parts)) == ((), (), 0)


def test_a_dump_of_a_hang_without_durations_says_nothing_about_what_is_slow():
    group = Group("0", (0,))
    called = [RecordedOperation(0, group, "all_reduce", 1)]
    assert slow_parts(RecordedJob("x", [Rank(0)], called, [Progress(0, group, 1, 0)])) is None


def all_to_all(rank: int, number: int, duration_s: float, **more: object) -> RecordedOperation:
    """Return an all-to-all that begins on all ranks at one time."""
    begin = number * 10**9
    return RecordedOperation(
        rank,
        Group("0", (0, 1, 2)),
        "all_to_all",
        number,
        started_ns=begin,
        ended_ns=begin + round(duration_s * 1e9),
        duration_s=duration_s,
        **more,
    )


@pytest.mark.parametrize(
    ("sizes", "may_be_uneven", "is_bounded"),
    [((8, 8, 8), False, True), ((8, 8, 2), False, False), ((8, 8, 8), True, False)],
)
def test_an_all_to_all_whose_blocks_may_differ_makes_no_rank_late(sizes, may_be_uneven, is_bounded):
    operations = [
        all_to_all(
            rank,
            number,
            1e-3 * sizes[rank] / (1 + rank),
            bytes=sizes[rank],
            may_be_uneven=may_be_uneven,
        )
        for number in range(1, 6)
        for rank in range(3)
    ]
    parts = slow_parts(RecordedJob("x", [*map(Rank, range(3))], operations))
    (times,) = parts.times
    assert ((times.waiting is not None), bool(parts.came_last)) == (is_bounded, is_bounded)


@pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of public traces"
)
def test_in_the_public_traces_of_dlrm_only_all_reduces_are_bounded_as_its_all_to_alls_are_of_unequal_blocks():
    (job,) = read_job([Path(os.environ["HPCCOLL_DATA"]) / "traces" / "dlrm_kineto.tar.gz"]).jobs
    parts = slow_parts(job)
    assert transfer_s(parts) == pytest.approx(0.175e-3)
    communication = [each.communication_s for each in parts.ranks]
    assert (min(communication), max(communication)) == (
        pytest.approx(1.746e-3),
        pytest.approx(11.336e-3),
    )
    assert parts.ranks[7].exposed == pytest.approx(0.126, abs=5e-4)
    assert parts.ranks[1].exposed == pytest.approx(0.556, abs=5e-4)
    started = [
        (operation.first.started_ns, of.ranks[last])
        for of in parts.times
        if of.waiting
        for operation, last in zip(of.operations, of.waiting.last, strict=True)
        if last != NO_RANK
    ]
    assert [rank for _, rank in sorted(started)] == [7, 5, 4]
    assert [of.collective for of in parts.times if of.waiting is None] == ["all_to_all"]
    assert parts.opening is None


def test_that_no_rank_is_late_is_said_only_where_enough_operations_of_all_ranks_are_recorded():
    few, enough = (
        [[10.0 * n, 10.0 * n + 0.01 * (n % 2)] for n in range(count)] for count in (3, 12)
    )
    assert "whether any rank is late is not known" in answers(recorded(few))
    assert "no rank is late by 2.0 % of the time or more" in answers(recorded(enough))
    partial = recorded(enough, group=Group("0", (0, 1, 2)))
    assert "whether any rank is late is not known" in answers(partial)
    assert "no rank is late" not in answers(partial)


def test_a_rank_whose_blocks_are_small_is_not_late_where_the_name_does_not_tell():
    """PyTorch gathers unequal blocks under the plain name, each rank with its own size."""
    ranks = range(3)
    operations = [
        RecordedOperation(
            rank,
            Group("0", tuple(ranks)),
            name,
            number,
            bytes=1024 * (1 + rank),
            started_ns=number * 10 * MS,
            ended_ns=(number * 10 + 1 + rank) * MS,
            duration_s=1e-3 * (1 + rank),
        )
        for name in ("all_gather", "reduce_scatter")
        for number in range(20)
        for rank in ranks
    ]
    for name in ("all_gather", "reduce_scatter"):
        parts = slow_parts(
            RecordedJob("x", [*map(Rank, ranks)], [o for o in operations if o.collective == name])
        )
        assert [of.waiting for of in parts.times] == [None]
        assert (parts.late, parts.came_last) == ([], [])


def pipeline_job(bubble_ms: float) -> RecordedJob:
    """Stages 0 and 1 of a pipeline: stage 0 receives its last gradients so much later than stage 1 sends its own."""
    group, operations = Group("0", (0, 1), "default_pg"), []
    for step in range(12):
        begin, came = 100.0 * step, (100.0 * step + 50 + bubble_ms, 100.0 * step + 50)
        end = max(came) + 1
        operations += [
            RecordedOperation(
                rank,
                group,
                "all_reduce",
                step,
                started_ns=round(came[rank] * MS),
                ended_ns=round(end * MS),
                duration_s=(end - came[rank]) / 1e3,
            )
            for rank in range(2)
        ]
        operations.append(
            RecordedOperation(
                0,
                Group("1", (0, 1), "pp"),
                "receive",
                step,
                started_ns=round((begin + 40) * MS),
                ended_ns=round((begin + 40 + bubble_ms) * MS),
                duration_s=bubble_ms / 1e3,
                peer=1,
            )
        )
    return RecordedJob("x", [Rank(0, "n0"), Rank(1, "n0")], operations)


def test_stages_of_a_pipeline_are_not_compared_with_each_other():
    parts = slow_parts(pipeline_job(20.0))
    assert (parts.late, parts.unjudged) == ([], [0, 1])


def job_of_unequal_blocks(*, has_clocks: bool) -> RecordedJob:
    """Two ranks of unequal blocks: rank 1 has the larger one, and therefore comes last to the all-reduce after it.

    Rank 0 has the larger block of the all-gather, which computation hides.
    """
    group, operations = Group("0", (0, 1), "dp"), []
    for step in range(12):
        begin = 100.0 * step
        spans = {
            "reduce_scatter": ((begin, begin + 2), (begin, begin + 12)),
            "all_reduce": ((begin + 22, begin + 40), (begin + 32, begin + 40)),
            "all_gather": ((begin + 50, begin + 80), (begin + 50, begin + 60)),
        }
        for name, of_ranks in spans.items():
            for rank, (start, end) in enumerate(of_ranks):
                size = {"reduce_scatter": (1024, 6144), "all_gather": (6144, 2048)}.get(
                    name, (4096, 4096)
                )[rank]
                operations.append(
                    RecordedOperation(
                        rank,
                        group,
                        name,
                        step,
                        bytes=size,
                        started_ns=round(start * MS) if has_clocks else None,
                        enqueued_ns=round(start * MS),
                        ended_ns=round(end * MS) if has_clocks else None,
                        duration_s=(end - start) / 1e3,
                        bytes_in=size,
                        bytes_out=size,
                    )
                )
    return RecordedJob("x", [Rank(0, "n0"), Rank(1, "n1")], operations)


@pytest.mark.parametrize("has_clocks", [True, False])
def test_a_rank_whose_larger_blocks_hold_it_up_is_not_late(has_clocks):
    parts = slow_parts(job_of_unequal_blocks(has_clocks=has_clocks))
    assert parts.late == []
