"""Choices among a library's own algorithms: what replaces its default, where, and what does not count."""

from dataclasses import replace

import pytest
from library_results import joined, library_results

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.tables.library_choice_text import library_choice_lines
from hpccoll.extensions.tables.library_choices import library_choices
from hpccoll.extensions.tables.table_conclusion import TOO_NOISY, unmeasured_findings

SIZES = 1024, 4096, 16384, 65536


def curve(*times):
    return dict(zip(SIZES, times, strict=True))


def chosen(results, library="openmpi", **how):
    return library_choices(results, library, "", **{"by_nodes": False, "has_default": True, **how})


def answers(results, library="openmpi", **how):
    """Return the first size and the algorithm of each range."""
    return [(each.first, each.choice.name) for each in chosen(results, library, **how).ranges]


FASTER = {"default": curve(10, 10, 40, 160), "openmpi-ring": curve(20, 20, 20, 80)}


def test_an_algorithm_replaces_the_default_from_the_geometric_mean_of_two_sizes_on():
    assert answers(library_results("openmpi", FASTER)) == [(0, "native"), (8192, "ring")]


KIB, MIB = 1 << 10, 1 << 20
LARGE = {
    "default": {256 * KIB: 224, MIB: 896},
    "openmpi-ring": {256 * KIB: 100, MIB: 400},
}


def test_below_half_the_smallest_measured_size_the_default_stays():
    results = library_results("openmpi", LARGE)
    assert answers(results) == [(128 * KIB, "ring")]
    lines = [line.split() for line in printed(results)]
    assert ["0", "B", "default", "(not", "measured)"] in lines
    assert "sizes below 256 KiB or above 1 MiB" in "\n".join(printed(results))


@pytest.mark.parametrize(
    ("collective", "smallest", "first"),
    [
        ("all_reduce", 8, 0),
        ("all_reduce", 16, 8),
        ("all_reduce", 17, 9),
        ("all_gather", 32, 0),
        ("all_gather", 64, 32),
    ],
)
def test_an_algorithm_serves_all_sizes_if_the_smallest_measured_one_has_one_element_in_each_block(
    collective, smallest, first
):
    curves = {"default": {smallest: 20, MIB: 20}, "openmpi-ring": {smallest: 10, MIB: 10}}
    results = library_results("openmpi", curves, collective=collective)
    assert answers(results) == [(first, "ring")]
    text = "\n".join(printed(results))
    assert ("default (not measured)" in text) == bool(first)
    assert ("sizes below" in text) == bool(first)
    assert "above 1 MiB" in text


def test_a_barrier_has_no_sizes_that_were_not_measured():
    curves = {"default": {1024: 20}, "openmpi-recursive_doubling": {1024: 10}}
    results = library_results("openmpi", curves, collective="barrier", op=None)
    assert answers(results) == [(0, "recursive_doubling")]
    assert "not measured" not in "\n".join(printed(results))


def test_a_table_that_cannot_leave_calls_to_the_library_warns_of_sizes_below_the_measured_ones():
    curves = {"default": LARGE["default"], "nccl-tree": LARGE["openmpi-ring"]}
    environments = {"nccl-tree": {"NCCL_PROTO": "LL"}}
    results = library_results("nccl", curves, environments=environments)
    choices = chosen(results, "nccl", has_default=False)
    (tree,) = choices.ranges
    assert (tree.first, tree.choice.algorithm) == (0, "tree")
    (finding,) = unmeasured_findings(choices.ranges)
    assert (finding.severity, finding.values["smallest"]) == ("warning", 256 * KIB)
    assert any(finding.text in line for line in library_choice_lines(choices))


def test_a_gain_within_the_noise_leaves_the_default():
    assert answers(library_results("openmpi", FASTER, half=0.4)) == [(0, "native")]


def test_a_gain_that_another_launch_may_have_leaves_the_default_however_narrow_intervals_are():
    curves = {"default": curve(10, 10, 40, 160), "openmpi-ring": curve(10, 10, 39, 155)}
    assert answers(library_results("openmpi", curves, half=0.001)) == [(0, "native")]


def test_a_size_that_is_not_clear_between_others_has_no_range_of_its_own():
    curves = {"default": curve(20, 20, 20, 80), "openmpi-ring": curve(10, 19.9, 10, 40)}
    assert answers(library_results("openmpi", curves)) == [(512, "ring")]
    curves["openmpi-ring"][4096] = 20.8  # by less than two more ranges cost
    narrow = library_results("openmpi", curves, half=0.001)
    assert answers(narrow) == [(512, "ring"), (2048, "native"), (8192, "ring")]


def test_a_range_says_what_it_gains_and_at_most_loses_and_which_is_next():
    curves = FASTER | {"openmpi-rabenseifner": curve(30, 30, 22, 79)}
    (*_, ring) = chosen(library_results("openmpi", curves)).ranges
    small, large = ring.sizes
    assert (ring.choice.name, small.nbytes, small.seconds * 1e6, small.gain) == (
        "ring",
        16384,
        *map(pytest.approx, (20, 2)),
    )
    assert small.gain_ends == (
        pytest.approx(2 * 0.98 / 1.02, rel=0.01),
        pytest.approx(2 * 1.02 / 0.98, rel=0.01),
    )
    assert (small.runner_up, small.lead) == ("rabenseifner", pytest.approx(1.1))
    assert (large.lead, large.lead_at_least) == (
        pytest.approx(79 / 80),
        pytest.approx(79 / 80 * 0.98 / 1.02, rel=0.01),
    )


ONE_SHAPE = ("all_reduce", 4, (4,))


def unused(*several):
    """Return the algorithm, the reason, and the gains by size of what the table does not use."""
    gains = chosen(joined(*several)).unused[ONE_SHAPE]
    return [
        (gain.algorithm, gain.reason, pytest.approx(dict(gain.gains), rel=0.01)) for gain in gains
    ]


def test_what_measures_faster_and_is_not_chosen_has_a_reason():
    noisy = library_results("openmpi", FASTER, half=0.4)
    assert unused(noisy) == [("ring", "noise", {16384: 2, 65536: 2})]
    slower = {"default": curve(10, 10, 40, 160), "openmpi-ring": curve(20, 20, 45, 180)}
    both = library_results("openmpi", FASTER), library_results("openmpi", slower, dtype="float16")
    mean = (2 * 40 / 45) ** 0.5
    assert unused(*both) == [("ring", "other calls", {16384: mean, 65536: mean})]
    # a noisier algorithm that seems faster still is the best choice of the range
    curves = FASTER | {"openmpi-rabenseifner": curve(40, 40, 15, 60)}
    results = library_results("openmpi", curves)
    rows = tuple(
        replace(row, round_intervals_s=((row.median_s / 5, row.median_s * 5),))
        if row.requested == "rabenseifner"
        else row
        for row in results.rows
    )
    reasons = {(name, why) for name, why, *_ in unused(replace(results, rows=rows))}
    assert reasons == {("ring", "range"), ("rabenseifner", "noise")}


def test_what_measures_as_fast_is_not_noise_however_wide_its_interval_is():
    equal = {"default": curve(10, 10, 10, 10), "openmpi-ring": curve(10, 10, 10, 10)}
    for half in (0.02, 0.1, 0.4):
        assert unused(library_results("openmpi", equal, half=half)) == []


def test_what_gains_nothing_in_another_type_is_not_noise_even_if_that_type_is_noisy():
    """The algorithm is clearly faster in float32; in float16 it measures as fast, in wide intervals."""
    equal = {"default": curve(10, 10, 40, 160), "openmpi-ring": curve(20, 20, 39, 156)}
    clear = library_results("openmpi", FASTER)
    both = unused(clear, library_results("openmpi", equal, dtype="float16", half=0.4))
    assert {reason for _, reason, _ in both} == {"other calls"}


def printed(results):
    return list(library_choice_lines(chosen(results)))


def test_a_table_that_noise_keeps_as_it_is_says_so_and_names_what_measured_faster():
    noisy = library_results("openmpi", FASTER, half=0.4)
    text = "\n".join(printed(noisy))
    assert TOO_NOISY.format(where="2 of 4 sizes") in text
    assert "no algorithm is clearly faster than the default; too noisy" in text
    assert "ring measured 2.00x as fast as the default at 2 of 4 sizes, within the noise" in text
    assert "ring, 2.00x as fast, within the noise" in text
    assert "Noise: " in text
    clear = library_results("openmpi", FASTER | {"openmpi-ring": curve(20, 20, 80, 320)})
    assert "nois" not in "\n".join(printed(clear)).lower()


def test_a_runner_up_is_as_long_or_as_fast_and_never_a_small_fraction():
    curves = {"default": curve(10, 10, 40, 16000), "openmpi-ring": curve(20, 20, 80, 160)}
    text = "\n".join(printed(library_results("openmpi", curves, half=0.999)))
    assert "ring, 100x as fast, within the noise" in text
    (default,) = chosen(library_results("openmpi", curves, half=0.999)).ranges
    assert default.sizes[-1].lead_at_most > 1
    assert "default, 2.00x as long" in "\n".join(printed(library_results("openmpi", FASTER)))


def test_what_a_table_cannot_tell_apart_must_agree():
    slower = {"default": curve(10, 10, 40, 160), "openmpi-ring": curve(20, 20, 50, 170)}
    both = joined(
        library_results("openmpi", FASTER), library_results("openmpi", slower, dtype="float16")
    )
    assert answers(both) == [(0, "native")]


def test_results_on_other_nodes_are_apart_only_for_tables_that_know_them():
    slower = {"default": curve(10, 10, 40, 160), "openmpi-ring": curve(20, 20, 50, 170)}
    both = joined(
        library_results("openmpi", FASTER),
        library_results("openmpi", slower, nodes=2, ranks_per_node=2),
    )
    assert [each.nodes for each in chosen(both).ranges] == [(2, 4)]
    assert [(e.nodes, e.choice.name) for e in chosen(both, by_nodes=True).ranges] == [
        ((2,), "native"), ((4,), "native"), ((4,), "ring"),
    ]  # fmt: skip


def test_what_ran_another_algorithm_than_requested_does_not_count_and_is_named():
    curves = FASTER | {"openmpi-rabenseifner": curve(5, 5, 5, 5)}
    wrong = library_results(
        "openmpi",
        curves,
        executed=lambda name, _: "ring" if name.startswith("openmpi") else "unknown",
    )
    found = chosen(wrong)
    assert [each.choice.name for each in found.ranges] == ["native", "ring"]
    assert found.left_out == ("4 results of openmpi-rabenseifner, which ran ring",)


@pytest.mark.parametrize(
    "curves",
    [
        {"default": curve(1, 1, 1, 1)},
        {"openmpi-ring": curve(1, 1, 1, 1)},
        {"default": curve(1, 1, 1, 1), "mpich-ring": curve(1, 1, 1, 1)},
        {"default": {64: 1}, "openmpi-ring": {128: 1}},
    ],
)
def test_results_without_a_comparison_are_refused_with_the_sweep_that_has_one(curves):
    with pytest.raises(BadInputError, match=r"default.*do: .*libraries\.yaml"):
        chosen(library_results("openmpi", curves))


def test_where_load_changes_the_choice_the_table_keeps_the_idle_one_and_a_finding_says_what_that_loses():
    under = {"default": curve(30, 30, 30, 240), "openmpi-ring": curve(60, 60, 90, 160)}
    loaded = library_results(
        "openmpi", under, load="gemm", params={"load": "gemm"}, oversubscribed=False
    )
    found = chosen(joined(library_results("openmpi", FASTER), loaded))
    assert found.ranges == chosen(library_results("openmpi", FASTER)).ranges
    (differs, same) = found.under_load
    ((loss,), idle, loaded) = (differs.values[name] for name in ("losses", "idle", "loaded"))
    assert (loss["size"], loss["loss"], idle, loaded) == (16384, pytest.approx(3), "ring", "native")
    assert (same.kind, same.values) == ("load_same", {"sizes": 3})


def test_times_without_an_interval_do_not_count():
    with pytest.raises(BadInputError, match=r"8 results without a 95 % interval"):
        chosen(library_results("openmpi", FASTER, ci_low_s=None))


TUNING = "n1:1:1 [0] NCCL INFO AllReduce: 8 Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..3}}"


def test_of_nccl_algorithm_and_protocol_are_those_of_the_lines_and_what_the_default_ran_is_a_choice():
    curves = {
        "default": curve(10, 10, 40, 160),
        "nccl-tree": curve(8, 8, 60, 200),
        "nccl-nvls": curve(30, 30, 50, 99),
    }
    ran = {
        "default": ("ring", "LL128"),
        "nccl-tree": ("tree", "LL"),
        "nccl-nvls": ("nvls", "SIMPLE"),
    }
    results = library_results(
        "nccl",
        curves,
        executed=lambda name, _: ran[name][0],
        evidence=lambda name, _: TUNING.format(*ran[name]),
        environments={"nccl-tree": {"NCCL_ALGO": "Tree"}, "nccl-nvls": {"NCCL_ALGO": "NVLS"}},
    )
    assert answers(results, "nccl", has_default=False) == [
        (0, "tree protocol=ll"), (8192, "ring protocol=ll128"), (32768, "nvls protocol=simple"),
    ]  # fmt: skip
    assert answers(results, "nccl") == [
        (512, "tree protocol=ll"), (8192, "native"), (32768, "nvls protocol=simple"),
    ]  # fmt: skip


def test_what_needs_more_than_its_algorithm_is_no_choice_for_nccl():
    curves = {
        "default": curve(10, 10, 40, 160),
        "nccl-collnet_chain": curve(1, 1, 1, 1),
        "nccl-ring": curve(9, 9, 9, 9),
    }
    environments = {
        "nccl-collnet_chain": {"NCCL_ALGO": "CollnetChain", "NCCL_COLLNET_ENABLE": "1"},
        "nccl-ring": {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"},
    }
    results = library_results("nccl", curves, environments=environments)
    assert answers(results, "nccl", has_default=False) == [(0, "ring protocol=ll")]


def test_calls_through_copies_in_host_memory_are_no_calls_of_the_library():
    curves = {"default": curve(10, 10, 40, 160), "openmpi-ring": curve(20, 20, 20, 80)}
    staged = library_results(
        "openmpi", {"openmpi-ring": curve(1, 1, 1, 1)}, transport="staged", device="cuda"
    )
    assert answers(joined(library_results("openmpi", curves), staged)) == [
        (0, "native"),
        (8192, "ring"),
    ]


def test_a_setting_with_the_default_alone_says_nothing_about_the_others_and_is_named():
    for alone in (
        {"dtype": "float16"},
        {"in_place": True},
        {"mapping": "cyclic"},
        {"nodes": 2, "ranks_per_node": 2},
        {"collective": "broadcast", "op": None},
    ):
        found = chosen(
            joined(
                library_results("openmpi", FASTER),
                library_results("openmpi", {"default": curve(1, 1, 1, 1)}, **alone),
            )
        )
        assert [(each.first, each.choice.name, each.nodes) for each in found.ranges] == [
            (0, "native", (4,)),
            (8192, "ring", (4,)),
        ]
        (line,) = found.left_out
        assert line.startswith(f"4 results of {alone.get('collective', 'all_reduce')}")


def test_sizes_that_only_some_settings_have_do_not_count_and_are_named():
    fewer = {name: {4096: times[4096], 65536: times[65536]} for name, times in FASTER.items()}
    found = chosen(
        joined(
            library_results("openmpi", FASTER), library_results("openmpi", fewer, dtype="float16")
        )
    )
    assert [(each.first, each.choice.name) for each in found.ranges] == [
        (0, "native"),
        (16384, "ring"),
    ]
    assert found.left_out[0].startswith("4 results of all_reduce at sizes")


def test_a_launch_by_hand_with_a_table_or_another_variable_that_decides_is_no_default():
    results = library_results("openmpi", FASTER)
    for variable in (
        "OMPI_MCA_coll_tuned_dynamic_rules_filename",
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
    ):
        by_hand = library_results("openmpi", {"by hand": curve(20, 20, 20, 80)})
        runs = tuple(
            replace(run, variant=None, provenance={**run.provenance, "variables": {variable: "/t"}})
            for run in by_hand.runs
        )
        rows = tuple(replace(row, variant=None, requested=None) for row in by_hand.rows)
        found = chosen(joined(results, replace(by_hand, rows=rows, runs=runs)))
        assert [round(each.gain, 3) for each in found.ranges[1].sizes] == [2, 2]
        assert found.left_out == (
            f"4 results of all_reduce with {variable}=/t, with no default or no other algorithm beside",
        )


def test_variables_that_all_runs_have_leave_the_choice():
    site = {name: {"UCC_LOG_LEVEL": "info", "OMPI_MCA_coll_hcoll_enable": "0"} for name in FASTER}
    assert answers(library_results("openmpi", FASTER, environments=site)) == [
        (0, "native"),
        (8192, "ring"),
    ]


def test_an_algorithm_that_was_measured_with_more_than_its_own_variables_is_no_choice():
    own = {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_han_priority": "0",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": "4",
    }
    results = library_results("openmpi", FASTER, environments={"openmpi-ring": own})
    assert answers(results) == [(0, "native"), (8192, "ring")]
    segments = "OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize"
    for more in {segments: "65536"}, {"UCX_TLS": "tcp"}:
        with pytest.raises(BadInputError, match=next(iter(more))):
            chosen(library_results("openmpi", FASTER, environments={"openmpi-ring": own | more}))


def test_settings_without_an_algorithm_in_common_make_no_table_of_nccl():
    one, other = (
        library_results(
            "nccl",
            {"default": curve(9, 9, 9, 9), f"nccl-{name}": curve(1, 1, 1, 1)},
            dtype=dtype,
            environments={f"nccl-{name}": {"NCCL_PROTO": "LL"}},
        )
        for name, dtype in (("ring", "float32"), ("tree", "float16"))
    )
    with pytest.raises(BadInputError, match="no algorithm in common"):
        chosen(joined(one, other), "nccl", has_default=False)
