"""Results of other programs next to ours: paired by operation, and never a verdict."""

import pytest
from cli_runner import invoke
from compared_runs import run
from imported_outputs import import_example
from row_examples import make_row

from hpccoll.judge.run_comparison import compare
from hpccoll.judge.side_by_side import side_by_side
from hpccoll.render.comparison_text import comparison_lines
from hpccoll.store.rows import Results
from hpccoll.store.sources import SOURCES

VERDICTS = "regressions", "improvements", "unchanged", "undecided", "missing", "wrong", "new"


def ours(**changes):
    return make_row("native", transport="mpi", device="cpu", **changes)


def theirs(seconds=2e-5, **changes):
    return ours(
        seconds=seconds,
        kind="imported",
        **{"source": "osu", "rule": None, "variant": None, **changes},
    )


def results(*rows):
    return Results(rows=rows, runs=(run(),), planned=len(rows))


def test_a_result_stands_next_to_ours_of_the_same_operation():
    (pair,) = side_by_side([theirs()], [ours(), ours(nbytes=2048), ours(ranks=4)])
    assert (pair.ours, pair.factor) == (ours(), pytest.approx(2.0))


@pytest.mark.parametrize(
    "change",
    [
        {"nbytes": 2048},
        {"algorithm": "ring"},
        {"transport": "nccl"},
        {"status": "wrong"},
        {"floor": True},
    ],
)
def test_another_operation_or_one_without_a_correct_time_is_no_pair(change):
    (pair,) = side_by_side(
        [theirs()],
        [make_row(**{"algorithm": "native", "transport": "mpi", "device": "cpu", **change})],
    )
    assert (pair.ours, pair.factor, pair.to_json()["our_s"]) == (None, None, None)


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        ({"variant": None}, {"variant": "tcp"}),
        ({"dtype": "float32"}, {"dtype": "int8"}),
        ({"in_place": False}, {"in_place": True}),
        ({"seconds": 1e-5}, {"seconds": 1.5e-5}),
        ({"timing": "single"}, {"timing": "aggregated"}),
        ({"timing": "osu", "rule": "mean", "dtype": "int32"}, {"timing": "single"}),
    ],
)
def test_of_several_of_ours_the_one_that_is_measured_most_alike_is_taken(nearer, farther):
    near, far = ours(**nearer), ours(**{"seconds": 1e-6, **farther})
    for rows in ([near, far], [far, near]):
        assert side_by_side([theirs()], rows)[0].ours == near


def test_a_result_without_a_time_is_left_out():
    assert side_by_side([theirs(median_s=None)], [ours()]) == []


@pytest.mark.parametrize("swapped", [False, True])
def test_an_import_is_compared_with_ours_without_a_verdict(swapped):
    sides = results(ours()), results(theirs())
    compared = compare(*(reversed(sides) if swapped else sides))
    content = compared.to_json()
    assert {key: content[key] for key in VERDICTS} == {key: [] for key in VERDICTS}
    assert [(pair["source"], pair["factor"]) for pair in content["beside"]] == [
        ("osu", pytest.approx(2.0))
    ]
    assert not compared.worse
    text = "\n".join(comparison_lines(compared))
    assert SOURCES["osu"].meaning in text


def test_two_imports_of_one_program_are_compared_as_two_runs():
    rounds = {"round_run_ids": ("run-1",) * 3, "round_intervals_s": (None,) * 3}
    old, new = (
        results(theirs(us[1], round_medians_s=us, **rounds))
        for us in ((4.0, 4.1, 4.2), (8.0, 8.1, 8.2))
    )
    content = compare(old, new).to_json()
    assert (len(content["regressions"]), content["beside"]) == (1, [])


def test_imports_of_two_programs_have_no_case_in_common(tmp_path):
    import_example("osu_allreduce.txt", tmp_path / "osu.h5")
    import_example("imb_mpi1.txt", tmp_path / "imb.h5")
    assert invoke("compare", tmp_path / "osu.h5", tmp_path / "imb.h5").is_bad_input(
        "no case in common"
    )
