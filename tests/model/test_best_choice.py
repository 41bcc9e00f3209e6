"""The best of predictions, its lead, and the crossovers with their intervals."""

from dataclasses import replace

import pytest
from predicted_machines import NCCL, fitted, in_racks

from hpccoll.model.best_choice import BestChoice, crossovers, question_rows
from hpccoll.model.predict import Prediction, Request, predict
from hpccoll.model.simulation import BOUNDS
from hpccoll.render.prediction_report import EXCLUDED, question_lines

SIZES = [1 << power for power in range(10, 22, 2)]


def prediction(algorithm, nbytes, seconds, **more):
    """Return a prediction; three seconds are those at the likely values, and at the fast and the slow ends."""
    times = dict(
        zip(BOUNDS, seconds if isinstance(seconds, tuple) else (seconds,) * 3, strict=True)
    )
    about = {
        "collective": "all_reduce",
        "params": {},
        "nodes": 4,
        "ranks_per_node": 2,
        "racks": 1,
        "aggregators": 0,
        "requested_bytes": nbytes,
        "dtype": "float32",
        "mapping": None,
        "low_s": min(times.values()),
        "high_s": max(times.values()),
        "exact": True,
        "distance": "within what was measured",
    }
    return Prediction(algorithm=algorithm, nbytes=nbytes, seconds=times, **(about | more))


def line(algorithm, latencies, byte_s=1e-9):
    """Return the predictions of an algorithm that takes a latency and its bytes at every size."""
    return [
        prediction(algorithm, n, tuple(latency + n * byte_s for latency in latencies))
        for n in SIZES
    ]


def test_the_best_is_the_fastest_at_every_size_and_number_of_nodes_and_is_compared_with_a_ring():
    found = predict(
        in_racks(), Request(nodes=[2, 8], sizes=SIZES[::2], algorithms=["ring", "rabenseifner"])
    )
    rows = question_rows(found)
    assert len(rows) == 2 * len(SIZES[::2])
    for row in rows:
        times = {
            each.algorithm: each.value_s
            for each in found.predictions
            if (each.nodes, each.requested_bytes) == (row["nodes"], row["requested_bytes"])
        }
        assert row["median_s"] == min(times.values()) == times[row["algorithm"]]
        assert (
            row["factor_low"]
            <= row["factor"]
            == times[row["faster_than"]] / row["median_s"]
            <= row["factor_high"]
        )
        assert "ring" in (row["faster_than"], row["algorithm"])


def formula(name, nbytes, seconds):
    """Return a prediction of NCCL's own algorithm, which has no interval."""
    return prediction(name, nbytes, seconds, exact=None, low_s=None, high_s=None)


def test_an_assumption_is_never_the_best_and_nccls_own_may_be():
    found = [
        prediction("switches", 1024, 1.0, assumed="assumed"), formula("nccl_ring", 1024, 2.0),
        prediction("slow", 1024, 4.0), prediction("slower", 1024, 5.0),
    ]  # fmt: skip
    choice = BestChoice.of(found)
    assert (choice.best.algorithm, choice.compared.algorithm) == ("nccl_ring", "slow")
    assert BestChoice.of(found[:1]) is None


@pytest.mark.parametrize(
    ("times", "best", "other"),
    [
        ({"nccl_ring": 2.0, "nccl_tree": 3.0, "swing": 4.0, "ring": 5.0}, "nccl_ring", "swing"),
        ({"nccl_ring": 3.0, "nccl_tree": 2.0, "swing": 1.0, "ring": 1.5}, "swing", "nccl_tree"),
        ({"swing": 1.0, "torus": 2.0, "ring": 5.0}, "swing", "ring"),
        ({"nccl_ring": 3.0, "nccl_tree": 2.0}, "nccl_tree", "nccl_ring"),
    ],
)
def test_ours_is_compared_with_what_nccl_takes_and_nccls_own_with_the_fastest_of_ours(
    times, best, other
):
    found = [
        formula(name, 1024, seconds) if name.startswith("nccl") else prediction(name, 1024, seconds)
        for name, seconds in times.items()
    ]
    choice = BestChoice.against(found)
    assert (choice.best.algorithm, choice.compared.algorithm) == (best, other)


def test_a_formula_is_compared_by_its_likely_time_with_the_interval_of_a_simulated_one():
    ours = prediction("swing", 1024, (2.0, 1.0, 4.0))
    assert formula("nccl_ring", 1024, 1.5).times_as_fast_as(ours) == pytest.approx(
        (2 / 1.5, 1 / 1.5, 4 / 1.5)
    )


@pytest.mark.parametrize("seconds", [0.1, 1.5, 100.0])
def test_no_lead_over_a_formula_or_of_one_is_clear_and_what_the_schedule_excludes_is_known(seconds):
    ours, own = prediction("swing", 1024, (2.0, 1.0, 4.0)), formula("nccl_ring", 1024, seconds)
    for choice in (BestChoice.of([ours, own]), BestChoice.against([ours, own])):
        assert not choice.clear
        assert choice.excluded_s == pytest.approx((6.6e-6, 14e-6))
    other = prediction("ring", 1024, 9.0)
    assert BestChoice.of([ours, other]).excluded_s is BestChoice.of([own]).excluded_s is None
    rows = question_rows(predict(in_racks(nccl=NCCL), Request(nodes=[2], sizes=[1024])))
    assert [row["schedule_excludes_s"] for row in rows] == [pytest.approx((6.6e-6, 14e-6))]


@pytest.mark.parametrize(
    ("make", "about", "nodes", "excludes"),
    [
        (in_racks, {"nccl": NCCL}, 1, True),
        (in_racks, {"class": {"fabric": "nvlink4"}}, 1, True),
        (in_racks, {}, 1, False),
        (fitted, {"class": {"fabric": "nvlink4"}}, 2, False),
    ],
)
def test_on_one_node_a_schedule_of_described_gpus_excludes_the_launch_though_no_formula_is_beside_it(
    make, about, nodes, excludes
):
    predicted = predict(make(**about), Request(nodes=[nodes], sizes=[1024]))
    assert [bool(row["schedule_excludes_s"]) for row in question_rows(predicted)] == [excludes]
    lines = [*question_lines(predicted)]
    assert any(EXCLUDED in line for line in lines) == excludes


def test_the_best_is_clear_if_it_leads_at_both_ends_of_the_intervals():
    fast, slow = (
        prediction("fast", 1024, (1.0, 0.5, 2.0)),
        prediction("slow", 1024, (2.0, 1.0, 5.0)),
    )
    assert fast.times_as_fast_as(slow) == (2.0, 2.0, 2.5)
    assert BestChoice.of([fast, slow]).clear
    assert not BestChoice.of([fast, prediction("slow", 1024, (1.5, 0.4, 2.5))]).clear
    assert not BestChoice.of([fast]).clear


@pytest.mark.parametrize(("slow_end", "everywhere", "high"), [(4e-4, True, 2e5), (1.0, False, 5e4)])
def test_a_crossover_has_the_interval_of_the_machines_numbers(slow_end, everywhere, high):
    slow_start = line("large", [1e-4 + 1e-5, 5e-5 + 1e-5, slow_end + 1e-5])
    (found,) = crossovers([*slow_start, *line("small", [1e-5] * 3, 3e-9)])
    assert (found.overtaker, found.overtaken, found.everywhere) == ("large", "small", everywhere)
    # the latency over the difference of 2 ns a byte; times are interpolated between sizes, 4 times
    # apart
    assert (found.nbytes, found.low, found.high) == pytest.approx((5e4, 2.5e4, high), rel=0.1)


def test_algorithms_that_were_predicted_at_different_sizes_do_not_cross():
    small, large = line("small", [1e-5] * 3)[:3], line("large", [1e-5] * 3)[3:]
    assert list(crossovers([*small, *large])) == []


def test_algorithms_that_take_about_the_same_do_not_cross_and_three_cross_one_after_the_other():
    noisy = [
        replace(each, seconds={b: t * (1 + 1e-3 * (-1) ** i) for b, t in each.seconds.items()})
        for i, each in enumerate(line("other", [1e-5] * 3))
    ]
    assert list(crossovers([*line("one", [1e-5] * 3), *noisy])) == []
    always_ahead = line("other", [0.99e-3] * 3, 0.5e-9)  # for small sizes by less than a tie
    assert list(crossovers([*line("one", [1e-3] * 3), *always_ahead])) == []
    lines = [
        *line("a", [1e-5] * 3, 3e-9),
        *line("b", [3e-5] * 3, 1e-9),
        *line("c", [3e-4] * 3, 1e-10),
    ]
    assert [(each.overtaken, each.overtaker) for each in crossovers(lines)] == [
        ("a", "b"),
        ("b", "c"),
    ]
