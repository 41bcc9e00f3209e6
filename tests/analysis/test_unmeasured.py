"""What answers do not cover: sizes, ranks, types, placements and calls that no row has."""

from dataclasses import replace

import pytest
from synthetic_timings import KIB, MIB, measured_results, merged_results

from hpccoll.analysis.unmeasured import unmeasured
from hpccoll.render.unmeasured_text import not_measured
from hpccoll.store.rows import Gap

RING = {"ring": {KIB: 1e-5, 4 * MIB: 1e-3}}
BOTH = {**RING, "native": RING["ring"]}


def on(*ranks, crowded=(), **more):
    """Return results on one node of some numbers of ranks, of which the crowded ones had no cores of their own."""
    several = [measured_results(BOTH, number=number, **more) for number in ranks]
    return merged_results(
        *(
            replace(
                results,
                rows=tuple(
                    replace(
                        row,
                        ranks=number,
                        nodes=1,
                        ranks_per_node=number,
                        oversubscribed=number in crowded,
                    )
                    for row in results.rows
                ),
            )
            for number, results in zip(ranks, several, strict=True)
        )
    )


def test_sizes_beyond_the_ends_ranks_types_and_a_placement_are_not_measured():
    found = unmeasured(on(2, 3, 4, crowded=(3, 4)), "all_reduce")
    assert (found.sizes, found.shapes, found.crowded) == (
        (KIB, 4 * MIB),
        ((1, 2),),
        ((1, 3), (1, 4)),
    )
    assert (found.dtypes, found.ops, found.placement, found.native) == (
        ("float32",),
        ("sum",),
        "in place",
        False,
    )


def test_a_collective_with_nothing_but_null_has_no_answer_that_could_lack_something():
    assert unmeasured(measured_results({"null": {KIB: 1e-6}}), "all_reduce") is None
    assert not not_measured(measured_results({"null": {KIB: 1e-6}}), ["all_reduce"])


def test_native_is_missing_only_where_no_row_has_it():
    assert unmeasured(measured_results(RING), "all_reduce").native
    assert not unmeasured(measured_results(BOTH), "all_reduce").native


def test_a_barrier_lacks_no_size_type_or_placement():
    results = measured_results(
        {"dissemination": {1: 1e-5}, "native": {1: 2e-5}},
        collective="barrier",
        op=None,
        in_place=True,
    )
    found = unmeasured(results, "barrier")
    assert (found.sizes, found.dtypes, found.ops, found.placement) == ((), (), (), None)


def test_what_holds_for_some_collectives_only_names_them():
    gathers = measured_results({"bruck": {KIB: 1e-5}}, collective="all_gather", op=None, number=9)
    several = replace(
        merged_results(on(2), gathers),
        missing=(Gap(case="all_gather.x", job="j", status="failed", reason=""),),
    )
    words = not_measured(several, ["all_reduce", "all_gather"])
    of_reduce = "sizes below 1 KiB or above 4 MiB, or between two that are 4,096 times apart"
    assert f"{of_reduce} (all_reduce); sizes other than 1 KiB (all_gather)" in words
    assert "; the library's own call (all_gather); " in words
    assert "; types other than float32; reductions other than sum; calls in place; " in words
    assert "1 planned case (failed)" in words
    assert "planned case" not in not_measured(several, ["all_reduce"])


def test_if_no_rank_had_a_core_of_its_own_these_are_not_measured():
    results = on(4, crowded=(4,))
    assert unmeasured(results, "all_reduce").shapes == ()
    assert "; ranks with a core each; " in not_measured(results, ["all_reduce"])


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (
            {(1, 2): 0, (1, 3): 1, (1, 4): 1},
            "more than 2 ranks with a core each (3 and 4 ranks shared cores)",
        ),
        ({(2, 2): 0, (4, 4): 1}, "more than 2 nodes with a core each (4 nodes shared cores)"),
        (
            {(2, 2): 0, (2, 8): 1},
            "more than 2 nodes with a core each (8 ranks on 2 nodes shared cores)",
        ),
        (
            {(1, 2): 0, (2, 8): 1},
            "more than 2 ranks with a core each (8 ranks on 2 nodes shared cores)",
        ),
        (
            {(1, 2): 0, (2, 4): 0, (2, 8): 1, (2, 16): 1},
            (
                "shapes other than 2 ranks on 1 node and 4 ranks on 2 nodes with a core each "
                "(8 ranks on 2 nodes and 16 ranks on 2 nodes shared cores)"
            ),
        ),
    ],
)
def test_shapes_that_were_measured_without_a_core_for_each_rank_are_named(shapes, words):
    each = (
        (measured_results(BOTH, number=number), shape, bool(crowded))
        for number, (shape, crowded) in enumerate(shapes.items(), 1)
    )
    results = merged_results(
        *(
            replace(
                of,
                rows=tuple(
                    replace(
                        row,
                        nodes=nodes,
                        ranks=ranks,
                        ranks_per_node=ranks // nodes,
                        oversubscribed=crowded,
                    )
                    for row in of.rows
                ),
            )
            for of, (nodes, ranks), crowded in each
        )
    )
    assert f"; {words}; " in not_measured(results, ["all_reduce"])


def test_sixteen_mebibytes_are_recognised_as_not_measured():
    assert "above 4 MiB" in not_measured(on(2), ["all_reduce"])


@pytest.mark.parametrize(("factor", "is_said"), [(2, False), (4, False), (8, True)])
def test_sizes_far_apart_leave_out_those_between_them(factor, is_said):
    curve = {KIB * factor**i: 1e-5 * factor**i for i in range(3)}
    words = not_measured(measured_results({"ring": curve, "native": curve}), ["all_reduce"])
    assert (f"between two that are {factor} times apart" in words) is is_said
