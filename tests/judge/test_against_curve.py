"""Collectives of a recorded job beside measurements of the machine."""

import pytest

from hpccoll.judge.against_curve import against_curves
from hpccoll.render.slow_text import slow_answers
from hpccoll.traces.recorded_job import Group
from hpccoll.traces.slow import slow_parts
from tests.row_examples import make_row
from tests.traces.test_slow import recorded


def held(rows, hosts=("n0", "n1"), transfer_ms=2.0, **more):
    """Return two all-reduces of 1 MiB of two ranks beside rows."""
    job = recorded([[1.0, 3.0], [11.0, 12.0]], transfer_ms, **more)
    return against_curves(slow_parts(job).times, rows, dict(enumerate(hosts)))


def curve(seconds=(1e-4, 1e-3, 1e-2), sizes=(1 << 16, 1 << 20, 1 << 24), **changes):
    changes = {"ranks": 2, "nodes": 2, "device": "cuda"} | changes
    return [
        make_row(nbytes=nbytes, seconds=time, **changes)
        for nbytes, time in zip(sizes, seconds, strict=True)
    ]


def test_the_shortest_over_ranks_is_held_against_the_fastest_measured_time():
    (found,) = held(curve() + curve((1e-5, 5e-3, 1e-2), algorithm="native"))
    assert (found.operations, found.measured, found.expected.value) == (
        2,
        pytest.approx(2e-3),
        pytest.approx(1e-3),
    )
    assert found.ratio == pytest.approx(2.0)
    assert found.kind == "measured"


def test_between_two_sizes_the_time_is_interpolated_in_logarithms():
    (found,) = held([row for row in curve() if row.bytes != 1 << 20])
    assert found.expected.value == pytest.approx(1e-3)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        curve((1e-4,), (1 << 16,)),
        curve((1e-4,), (1 << 24,)),
        curve(ranks=4),
        curve(nodes=1),
        curve(dtype="float64"),
        curve(collective="reduce_scatter"),
        curve(kind="simulated"),
        curve(device="cpu"),
        curve(load="gemm"),
        curve(algorithm="null"),
    ],
)
def test_another_call_or_sizes_on_one_side_give_no_answer(rows):
    (found,) = held(rows)
    assert (found.expected, found.ratio) == (None, None)


def test_the_type_counts_only_where_elements_are_reduced_and_nodes_only_where_hosts_are_known():
    rows = curve(collective="all_gather", op=None, dtype="float64", nodes=1)
    (found,) = held(rows, hosts=(None, None), name="all_gather")
    assert found.ratio == pytest.approx(2.0)


def test_of_hosts_that_are_not_known_rows_of_several_shapes_say_nothing():
    (found,) = held(curve() + curve(nodes=1), hosts=(None, None))
    assert found.ratio is None


def test_the_answer_names_the_collective_its_size_and_its_group():
    parts = slow_parts(recorded([[1.0, 3.0], [11.0, 12.0]]))
    found = against_curves(parts.times, curve(), {0: "n0", 1: "n1"})
    answer = "all_reduce of 1 MiB in group dp (0) takes 2 times what this machine gave (measured)"
    assert answer in [*slow_answers(parts, found)]


def test_operations_without_the_record_of_a_rank_are_left_out():
    assert held(curve(), group=Group("0", (0, 1, 2))) == []
