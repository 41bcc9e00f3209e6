"""A picture for a slide: one panel at one size, what it leaves out, and the sizes that have one."""

import pytest
from row_examples import make_row

from hpccoll.analysis.recommendations import recommend
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.render.scaling_picture import write_scaling_pictures
from hpccoll.store.rows import Results

MIB = 1 << 20


def results_on(nodes, sizes=(MIB, 64 * MIB), **changes):
    """Return rows of two algorithms on numbers of nodes with a rank each."""
    rows = []
    for count in nodes:
        for nbytes in sizes:
            busbw = None if count == 1 else 5e9 / (1 + 0.03 * count)
            place = {"nodes": count, "ranks_per_node": 1, "oversubscribed": False}
            about = {**place, "busbw_Bps": busbw, **changes}
            rows += [
                make_row("ring", count, nbytes, seconds=1e-4 * count, **about),
                make_row("native", count, nbytes, seconds=1.4e-4 * count, **about),
            ]
    return Results(rows=tuple(rows), runs=(), planned=len(rows))


def written(results, directory, size):
    return write_scaling_pictures(results, recommend(results), directory, size)


def test_a_picture_is_written_as_png_and_svg_and_says_its_size(tmp_path):
    (picture,) = written(results_on((2, 4, 8, 16)), tmp_path, 64 * MIB)
    assert [path.name for path in picture.paths] == [
        "all_reduce-scaling-64MiB.png",
        "all_reduce-scaling-64MiB.svg",
    ]
    png, svg = (path.read_bytes() for path in picture.paths)
    assert png.startswith(b"\x89PNG")
    assert b"bus bandwidth against nodes at 64 MiB" in svg
    assert picture.note == ""


def test_a_picture_names_the_placement_that_it_draws_and_leaves_out_what_is_usual(tmp_path):
    out_of_place = results_on((2, 4), sizes=(MIB,), in_place=False).rows
    alone = tmp_path / "alone"
    (picture,) = written(Results(rows=out_of_place, runs=(), planned=4), alone, MIB)
    svg = picture.paths[1].read_text()
    assert "out of place" in svg
    assert "in place is slower" not in svg
    for usual in ("mapping block", "single timing", "rule max", "rank per node"):
        assert usual not in svg

    slower = results_on((2, 4), sizes=(MIB,), in_place=True, median_s=1.0).rows
    (picture,) = written(Results(rows=out_of_place + slower, runs=(), planned=8), tmp_path, MIB)
    assert "out of place (in place is slower)" in picture.paths[1].read_text()

    faster_on_4 = results_on((4,), sizes=(MIB,), in_place=True, median_s=1e-6).rows
    mixed = Results(rows=out_of_place + faster_on_4, runs=(), planned=6)
    (picture,) = written(mixed, tmp_path, MIB)
    assert "whichever is faster" in picture.paths[1].read_text()


def test_the_picture_says_nothing_of_nodes_on_which_other_sizes_were_measured_only(tmp_path):
    rows = results_on((2, 4), sizes=(MIB,)).rows + results_on((1,), sizes=(64 * MIB,)).rows
    (picture,) = written(Results(rows=rows, runs=(), planned=6), tmp_path, MIB)
    assert "1 node" in picture.note
    assert "1 node" not in picture.paths[1].read_text()


def test_numbers_of_nodes_without_bus_bandwidth_or_without_the_size_are_said(tmp_path):
    some = results_on((1, 2, 4))
    others = results_on((8,), sizes=(MIB,))
    rows = Results(rows=some.rows + others.rows, runs=(), planned=0)
    (picture,) = written(rows, tmp_path, 64 * MIB)
    assert "1 node" in picture.note
    assert "8 nodes" in picture.note
    assert "Not drawn: 1 node" in picture.paths[1].read_text()


def test_a_collective_without_bus_bandwidth_is_drawn_by_its_time(tmp_path):
    barrier = results_on((2, 4), sizes=(1,), collective="barrier", busbw_Bps=None)
    (picture,) = written(barrier, tmp_path, 1)
    assert "time against nodes" in picture.paths[1].read_text()


def test_a_size_without_a_picture_is_refused_with_those_that_have_one(tmp_path):
    with pytest.raises(BadInputError, match="1 MiB or 64 MiB"):
        written(results_on((2, 4)), tmp_path, 8)


def test_results_on_one_number_of_nodes_are_refused_with_what_was_measured(tmp_path):
    with pytest.raises(UnusableError, match="only 2 nodes were measured"):
        written(results_on((2,)), tmp_path, MIB)


def test_numbers_of_nodes_on_shared_cores_are_drawn_if_no_others_scale_and_the_picture_says_so(
    tmp_path,
):
    rows = []
    for nodes in (2, 3, 4):
        place = {"nodes": nodes, "ranks_per_node": 1, "oversubscribed": nodes > 2}
        rows.append(make_row("ring", nodes, MIB, seconds=1e-4 * nodes, busbw_Bps=5e9, **place))
    (picture,) = written(Results(rows=tuple(rows), runs=(), planned=3), tmp_path, MIB)
    assert "more ranks than cores (3, 4 nodes)" in picture.paths[1].read_text()
    assert picture.note == "More ranks than cores: 3 and 4 nodes."


def test_numbers_of_nodes_on_shared_cores_are_left_out_and_named_if_others_scale(tmp_path):
    fitting = results_on((2, 4), sizes=(MIB,))
    crowded = results_on((8,), sizes=(MIB,), oversubscribed=True)
    rows = Results(rows=fitting.rows + crowded.rows, runs=(), planned=6)
    (picture,) = written(rows, tmp_path, MIB)
    assert "oversubscribed" not in picture.paths[1].read_text()
    assert picture.note == "Not drawn: 8 nodes, with more ranks than cores."


def test_results_of_another_program_on_several_numbers_of_nodes_are_drawn(tmp_path):
    imported = results_on((2, 4, 8), kind="imported", source="nccl-tests")
    (picture,) = written(imported, tmp_path, MIB)
    svg = picture.paths[1].read_text()
    assert "bus bandwidth against nodes at 1 MiB" in svg
    assert "imported on" in svg
    assert "nccl-tests" in svg


def test_sizes_of_one_number_of_nodes_each_are_refused_without_saying_that_several_are_needed(
    tmp_path,
):
    small, large = results_on((2,), sizes=(MIB,)), results_on((4,), sizes=(64 * MIB,))
    rows = Results(rows=small.rows + large.rows, runs=(), planned=4)
    with pytest.raises(UnusableError, match="no collective was measured at one size on several"):
        written(rows, tmp_path, MIB)
    with pytest.raises(UnusableError, match="nothing was measured"):
        written(Results(rows=(), runs=(), planned=0), tmp_path, MIB)
