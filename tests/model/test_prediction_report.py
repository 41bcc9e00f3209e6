"""What predictions are said to be: the best, crossovers with their intervals, the answer to a question, the text."""

from dataclasses import replace

import pytest
from predicted_machines import NCCL, cluster, fitted, in_racks

from hpccoll.model.algorithm_simulation import BOUNDS
from hpccoll.model.predict import Prediction, Request, predict
from hpccoll.model.prediction_report import BestChoice, crossovers, question_lines, question_rows, report_lines

SIZES = [1 << power for power in range(10, 22, 2)]


def prediction(algorithm, nbytes, seconds, **more):
    """Return a prediction; three seconds are those at the likely values, and at the fast and the slow ends."""
    times = dict(zip(BOUNDS, seconds if isinstance(seconds, tuple) else (seconds,) * 3, strict=True))
    about = {
        "collective": "all_reduce", "params": {}, "nodes": 4, "ranks_per_node": 2, "racks": 1, "aggregators": 0,
        "requested_bytes": nbytes, "dtype": "float32", "mapping": None, "low_s": min(times.values()),
        "high_s": max(times.values()), "exact": True, "distance": "within what was measured",
    }  # fmt: skip
    return Prediction(algorithm=algorithm, nbytes=nbytes, seconds=times, **(about | more))


def line(algorithm, latencies, byte_s=1e-9):
    """Return the predictions of an algorithm that takes a latency and its bytes at every size."""
    return [prediction(algorithm, n, tuple(latency + n * byte_s for latency in latencies)) for n in SIZES]


def test_the_best_is_the_fastest_at_every_size_and_number_of_nodes():
    found = predict(in_racks(), Request(nodes=[2, 8], sizes=SIZES, algorithms=["ring", "rabenseifner", "hierarchical"]))
    rows = question_rows(found)
    assert len(rows) == 2 * len(SIZES)
    for row in rows:
        times = {
            each.algorithm: each.value_s
            for each in found.predictions
            if (each.nodes, each.requested_bytes) == (row["nodes"], row["requested_bytes"])
        }
        assert row["median_s"] == min(times.values()) == times[row["algorithm"]]
        assert row["factor"] == pytest.approx(times[row["faster_than"]] / row["median_s"])
        assert row["factor_low"] <= row["factor"] <= row["factor_high"]
        assert row["faster_than"] == "ring" or row["algorithm"] == "ring"


def test_neither_an_assumption_nor_a_formula_is_the_best():
    found = [
        prediction("switches", 1024, 1.0, assumed="assumed"), prediction("nccl_ring", 1024, 2.0, exact=None),
        prediction("slow", 1024, 4.0), prediction("slower", 1024, 5.0),
    ]  # fmt: skip
    choice = BestChoice.of(found)
    assert (choice.best.algorithm, choice.other.algorithm) == ("slow", "slower")
    assert BestChoice.of(found[:2]) is None


def test_the_best_is_clear_if_it_leads_at_both_ends_of_the_intervals():
    fast = prediction("fast", 1024, (1.0, 0.5, 2.0))
    assert BestChoice.of([fast, prediction("slow", 1024, (1.5, 0.6, 2.5))]).clear
    assert not BestChoice.of([fast, prediction("slow", 1024, (1.5, 0.4, 2.5))]).clear


def test_an_algorithm_alone_is_not_called_the_fastest():
    assert not BestChoice.of([prediction("alone", 1024, 1.0)]).clear
    found = predict(cluster(), Request(nodes=[2, 8], sizes=SIZES, algorithms=["ring"]))
    text = "\n".join(report_lines(found))
    assert "no advice: no size has two algorithms" in text
    assert not [word for word in ("*", "~", "the best by") if word in text]
    assert all("the only one predicted" in answer for answer in question_lines(found))


def test_an_answer_within_the_intervals_claims_no_lead():
    machine = in_racks()
    found = predict(machine, Request(nodes=[4], sizes=[1024], algorithms=["ring", "rabenseifner"]))
    near = [replace(each, algorithm=name, seconds=dict(zip(BOUNDS, times, strict=True)))
            for each, name, times in zip(found.predictions, ("ring", "rabenseifner"),
                                         ((1.5, 0.4, 2.5), (1.0, 0.5, 2.0)), strict=True)]  # fmt: skip
    (answer,) = question_lines(replace(found, predictions=near))
    assert ": rabenseifner, not clearly faster than the flat ring (0.8 to 1.5)" in answer


def test_a_crossover_ends_at_the_largest_size():
    (found,) = crossovers([*line("large", [1e-4] * 3), *line("small", [1e-5] * 3, 3e-9)])
    assert found.text.endswith("to 1 MiB")


def test_a_ratio_is_that_at_each_end_and_not_that_of_the_ends():
    fast, slow = prediction("fast", 1024, (1.0, 0.5, 2.0)), prediction("slow", 1024, (2.0, 1.0, 5.0))
    assert fast.times_as_fast_as(slow) == (2.0, 2.0, 2.5)


def test_a_crossover_has_the_interval_of_the_machines_numbers():
    slow_start = line("large", [1e-4 + 1e-5, 5e-5 + 1e-5, 4e-4 + 1e-5])
    (found,) = crossovers([*slow_start, *line("small", [1e-5] * 3, 3e-9)])
    assert (found.overtaker, found.overtaken, found.everywhere) == ("large", "small", True)
    # the latency over the difference of 2 ns a byte; times are interpolated between sizes, 4 times apart
    assert (found.nbytes, found.low, found.high) == pytest.approx((5e4, 2.5e4, 2e5), rel=0.1)


def test_a_crossover_that_does_not_happen_at_an_end_is_said_to():
    late = line("large", [1e-4, 1e-4, 1.0])
    (found,) = crossovers([*late, *line("small", [1e-5] * 3, 3e-9)])
    assert not found.everywhere


def test_algorithms_that_take_the_same_do_not_cross():
    noisy = [replace(each, seconds={b: t * (1 + 1e-3 * (-1) ** i) for b, t in each.seconds.items()})
             for i, each in enumerate(line("other", [1e-5] * 3))]  # fmt: skip
    assert list(crossovers([*line("one", [1e-5] * 3), *noisy])) == []


def test_an_algorithm_that_is_always_ahead_overtakes_none():
    """For small sizes by less than a tie."""
    assert list(crossovers([*line("one", [1e-3] * 3), *line("other", [0.99e-3] * 3, 0.5e-9)])) == []


def test_three_algorithms_cross_one_after_the_other():
    lines = [*line("a", [1e-5] * 3, 3e-9), *line("b", [3e-5] * 3, 1e-9), *line("c", [3e-4] * 3, 1e-10)]
    assert [(each.overtaken, each.overtaker) for each in crossovers(lines)] == [("a", "b"), ("b", "c")]


def test_a_table_over_sizes_marks_the_fastest_of_each():
    found = predict(cluster(), Request(nodes=[8], sizes=SIZES, algorithms=["ring", "recursive_doubling"]))
    text = list(report_lines(found))
    (heads,) = (each.split() for each in text if each.split()[:1] == ["size"])
    rows = [each for each in text if "iB" in each and ("*" in each or "~" in each)]
    assert heads[1:3] == ["ring", "recursive_doubling"]
    assert len(rows) == len(SIZES)
    best = [row["algorithm"] for row in question_rows(found)]
    cells = [row.split("us" if "us" in row else "ms") for row in rows]
    assert len(set(best)) == 2
    for row, name in zip(rows, best, strict=True):
        first = row.replace("~", "*").index("*") < row.rindex("us" if "us" in row else "ms")
        assert first, cells
        before = row.replace("~", "*").partition("*")[0]
        assert len(before.split()) == 2 + 2 * (1 + heads[1:3].index(name))


def test_one_size_is_a_table_over_nodes():
    found = predict(cluster(), Request(nodes=[2, 4, 8], sizes=[1024], algorithms=["ring"]))
    text = list(report_lines(found))
    assert [each.split()[0] for each in text if "alone" in each] == ["2", "4", "8"]


def test_numbers_of_nodes_on_which_no_algorithm_runs_still_have_nccls_own_model():
    machine = in_racks(nccl=NCCL)
    request = Request(nodes=[2, 3], sizes=SIZES, collective="reduce_scatter", algorithms=["swing"])
    text = "\n".join(report_lines(predict(machine, request)))
    assert "on 3 nodes x 2 in 2 racks; described, not measured" in text
    assert "left out on 3 nodes: swing: needs a power-of-two" in text


def test_the_text_has_what_a_reader_must_know():
    machine = in_racks(
        nccl=NCCL, source="Guessed at night. Launches are not included.",
        aggregators={"kind": "switches", "source": "assumed: ideal switches"},
    )  # fmt: skip
    text = "\n".join(report_lines(predict(machine, Request(nodes=[2, 4, 6], sizes=SIZES))))
    for words in (
        "described, not measured", "Launches are not included", "assumed: ideal switches", "NCCL's own model",
        "reductions of float32 cost nothing", "in 2 racks", "in 3 racks",
    ):  # fmt: skip
        assert words in text


def test_the_map_has_the_best_of_every_size_and_number_of_nodes():
    found = predict(cluster(), Request(nodes=[2, 64], sizes=SIZES, algorithms=["ring", "recursive_doubling"]))
    text = list(report_lines(found))
    first = next(number for number, each in enumerate(text) if each.startswith("the best by size and nodes"))
    letters = dict(each.split() for each in text[first].rpartition(": ")[2].split(", "))
    cells = [each.split() for each in text[first + 2 : first + 2 + len(SIZES)]]
    best = {(row["requested_bytes"], row["nodes"]): row["algorithm"] for row in question_rows(found)}
    for size, cell in zip(SIZES, cells, strict=True):
        names = [letters[word] for word in cell[2:] if word in letters]
        assert names == [best[size, 2], best[size, 64]]


def test_a_fitted_machine_is_introduced_by_its_errors_on_held_out_measurements():
    numbers = {"cases": 40, "error_median": 0.07, "error_p90": 0.22, "ratio_p5": 0.9, "ratio_p95": 1.3}
    request = Request(nodes=[2], sizes=[1024])
    text = "\n".join(report_lines(predict(fitted(validation=numbers), request)))
    assert all(words in text for words in ("40 measurements", "7%", "22%", "0.90 to 1.30"))
    assert "nothing was held out" in "\n".join(report_lines(predict(fitted(), request)))


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (in_racks(), ["1 KiB all_reduce on 4 nodes x 2 in 2 racks", "as fast as the flat ring (", "not measured"]),
        (fitted(), ["1 KiB all_reduce on 4 nodes x 1", "as fast as ring (", "within what was measured"]),
        (fitted(validation={"error_median": 0.07}), ["within what was measured, error 7% on held-out cases"]),
    ],
)
def test_the_answer_is_one_line(machine, words):
    names = ["ring", "recursive_doubling", "rabenseifner"]
    (answer,) = question_lines(predict(machine, Request(nodes=[4], sizes=[1024], algorithms=names)))
    assert [word for word in [*words, ": recursive_doubling, ", "simulated"] if word not in answer] == []
