"""The answer in words, as a terminal and the report print it."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_timings import KIB, MIB, linear_curve, measured_results, merged_results

from hpccoll.analysis.answers import Answers, all_table_lines, library_name, size_range
from hpccoll.analysis.recommendations import recommend, verdicts_by_setting

SIZES = [KIB << 2 * i for i in range(8)]
EARLY, LATE = linear_curve(1e-5, 1e-9, SIZES), linear_curve(1e-4, 2e-10, SIZES)
DRIFT = (1, 3, 2)


def answers(*several):
    return Answers(recommend(merged_results(*several)))


def scaled(curve, factor):
    return {size: factor * seconds for size, seconds in curve.items()}


def test_a_sentence_names_the_choice_the_sizes_and_the_gain_over_the_library():
    (sentence,) = answers(measured_results({"ring": LATE, "native": EARLY}, drift=DRIFT)).sentences("all_reduce")
    assert re.fullmatch(
        r"all_reduce on 2 nodes: use ring from 120 KiB to 16 MiB, [0-9.]+ (times as fast as|% faster than) MPICH's own "
        r"\(clearly so at all 4 sizes\); MPICH's own from 1 KiB to 120 KiB \(clear at all 4 sizes\)\.",
        sentence,
    )


ON_GPU = {"device": "cuda", "transport": "nccl"}


def test_timings_are_answered_each_for_itself_and_single_operations_come_first():
    single = measured_results({"ring": LATE, "native": EARLY}, drift=DRIFT, **ON_GPU)
    back_to_back = measured_results(
        {"ring": EARLY, "native": LATE}, drift=DRIFT, number=2, timing="aggregated", operations=1, **ON_GPU
    )
    both = answers(single, back_to_back)
    (sentence,) = both.sentences("all_reduce")
    assert sentence == answers(single).sentences("all_reduce")[0]
    assert {line.setting for line in both.table("all_reduce")} == {"2 nodes", "2 nodes, aggregated timing"}
    assert (
        "use NCCL's own from 120 KiB to 16 MiB (clear at all 4 sizes); ring from"
        in answers(back_to_back).sentences("all_reduce")[0]
    )


def test_a_sweep_of_graphs_has_the_librarys_own_call_without_one():
    (sentence,) = answers(
        measured_results(
            {"native graph=0": LATE, "native graph=1": scaled(LATE, 0.5), "ring graph=0": EARLY}, drift=DRIFT, **ON_GPU
        )
    ).sentences("all_reduce")
    assert "native graph=1" in sentence
    assert "NCCL's own" in sentence
    assert "graph=0" not in sentence


def test_a_rival_is_named_and_a_gain_that_a_round_denies_is_no_advice():
    close = measured_results({"ring": LATE, "star": scaled(LATE, 1.01), "native": scaled(LATE, 1.5)}, spread=0.05)
    (sentence,) = answers(close).sentences("all_reduce")
    assert (
        "ring at 1 KiB to 16 MiB (a tie with star), 50 % faster than MPICH's own (clearly so at all 8 sizes)."
        in sentence
    )
    rounds = [
        measured_results({"ring": {KIB: 1.0, MIB: ring}, "native": {KIB: 1.5, MIB: 1.0}}, number=number)
        for number, ring in enumerate((0.5, 0.5, 3), 1)
    ]
    (sentence,) = answers(*rounds).sentences("all_reduce")
    assert sentence == (
        "all_reduce on 2 nodes: no advice at 1 KiB to 1 MiB: MPICH's own and ring differ by less than the noise "
        "at 1 of 2 sizes."
    )
    assert answers(*rounds).table("all_reduce")[0].gain == "not clear (0.71 to 1.73x by round)"


@pytest.mark.parametrize("factors", [(1.01, 1.05, 1.5), (0.99, 1.3, 1.31), (1, 1, 1)])
def test_a_gain_within_the_spread_of_the_rounds_is_none(factors):
    rounds = [
        measured_results({"ring": LATE, "native": scaled(LATE, factor)}, number=number)
        for number, factor in enumerate(factors, 1)
    ]
    (sentence,) = answers(*rounds).sentences("all_reduce")
    assert "no advice" in sentence
    assert "use " not in sentence
    assert "faster" not in sentence
    steady = [
        measured_results({"ring": LATE, "native": scaled(LATE, factor)}, number=number)
        for number, factor in enumerate((1.2, 1.5, 2), 1)
    ]
    assert "use ring at 1 KiB to 16 MiB, 50 % faster" in answers(*steady).sentences("all_reduce")[0]


def test_only_the_sizes_that_show_a_winner_have_advice():
    tied = {size: LATE[size] * (0.97 if size < 256 * KIB else 2) for size in SIZES}
    curves = {"ring": LATE, "native": tied, "star": scaled(LATE, 9)}
    (sentence,) = answers(measured_results(curves, spread=0.05)).sentences("all_reduce")
    assert re.fullmatch(
        r".*: use ring from (\S+ \S+) to 16 MiB, .*; no advice from 1 KiB to \1: MPICH's own and ring differ by "
        r"less than the noise\.",
        sentence,
    )


def test_choices_at_sizes_of_their_own_are_not_compared():
    apart = {"ring": {KIB: 1e-5}, "native": {MIB: 1e-5}}
    found = answers(measured_results(apart))
    (sentence,) = found.sentences("all_reduce")
    assert "only ring was measured" in sentence
    assert "only MPICH's own was measured" in sentence
    assert "use " not in sentence
    assert {line.certainty for line in found.table("all_reduce")} == {"no advice: nothing to compare with"}
    assert verdicts_by_setting(recommend(measured_results(apart))) == {}


def test_too_few_iterations_for_an_interval_are_the_reason_for_no_advice():
    (few,) = recommend(measured_results({"ring": LATE, "native": scaled(LATE, 2)}))
    bare = {
        choice: {size: replace(time, intervals=dict.fromkeys(time.rounds)) for size, time in curve.items()}
        for choice, curve in few.measured.curves.items()
    }
    undecided = tuple(
        replace(each, verdicts=tuple(replace(of, verdict="tie", beats_native=False) for of in each.verdicts))
        for each in few.ranges
    )
    without = replace(few, measured=replace(few.measured, curves=bare), ranges=undecided)
    (sentence,) = Answers([without]).sentences("all_reduce")
    assert sentence.endswith("no advice at 1 KiB to 16 MiB: fewer than 6 iterations have no 95 % interval.")


def test_without_native_a_sentence_says_at_how_many_sizes_the_choice_is_clear():
    nearly = {size: seconds * (1.001 if size < 16 * KIB else 2) for size, seconds in LATE.items()}
    (sentence,) = answers(measured_results({"ring": LATE, "star": nearly}, spread=0.05)).sentences("all_reduce")
    assert sentence == "all_reduce on 2 nodes: use ring at 1 KiB to 16 MiB (clear at 6 of 8 sizes)."
    few = {size: seconds * (1.001 if size < 4 * MIB else 2) for size, seconds in LATE.items()}
    (sentence,) = answers(measured_results({"ring": LATE, "star": few}, spread=0.05)).sentences("all_reduce")
    assert sentence.endswith(
        "no advice at 1 KiB to 16 MiB: ring and star differ by less than the noise at 6 of 8 sizes."
    )


def test_where_nothing_is_clear_the_sentence_says_so():
    rounds = [
        measured_results({"ring": scaled(LATE, ring), "native": scaled(LATE, native)}, number=number)
        for number, (ring, native) in enumerate(((1, 1.5), (1, 1.3), (1.02, 1)), 1)
    ]
    (sentence,) = answers(*rounds).sentences("all_reduce")
    assert sentence == (
        "all_reduce on 2 nodes: no advice at 1 KiB to 16 MiB: MPICH's own and ring differ by less than the noise."
    )


def test_a_small_gain_that_is_clear_has_a_number():
    close = measured_results({"ring": LATE, "native": scaled(LATE, 1.004)}, spread=0.0001)
    (sentence,) = answers(close).sentences("all_reduce")
    assert sentence.endswith("use ring at 1 KiB to 16 MiB, 0.4 % faster than MPICH's own (clearly so at all 8 sizes).")


def test_a_gain_counts_the_sizes_at_which_native_was_measured():
    native = {size: 1.5 * LATE[size] for size in SIZES[4:]}
    found = measured_results({"ring": LATE, "star": scaled(LATE, 2), "native": native}, spread=0.05)
    (sentence,) = answers(found).sentences("all_reduce")
    assert sentence.endswith(
        "50 % faster than MPICH's own (clearly so at all 4 sizes; native was measured at 4 of 8 sizes)."
    )


def test_native_is_no_rival_of_a_gain_but_others_are_rivals_of_native():
    tied = measured_results({"ring": scaled(LATE, 1.01), "native": LATE}, spread=0.05)
    assert answers(tied).sentences("all_reduce") == [
        "all_reduce on 2 nodes: no advice at 1 KiB to 16 MiB: MPICH's own and ring differ by less than the noise."
    ]


def test_auto_is_compared_with_native_and_is_no_choice():
    half = {"auto": scaled(LATE, 0.5), "native": LATE}
    (sentence,) = answers(measured_results(half, spread=0.05)).sentences("all_reduce")
    faster = "auto is 2.0 times as fast as MPICH's own (clearly faster at all 8 sizes)."
    assert sentence == f"all_reduce on 2 nodes: {faster}"
    some = {"auto": {KIB: 1.0, MIB: 1.0}, "native": {KIB: 1.0, MIB: 1.69}}
    (sentence,) = answers(measured_results(some, spread=0.05)).sentences("all_reduce")
    assert sentence.endswith(
        "30 % faster than MPICH's own (as fast to 69 % faster by size, clearly faster at 1 of 2 sizes)."
    )
    alike = {"auto": LATE, "native": scaled(LATE, 1.001)}
    (sentence,) = answers(measured_results(alike, spread=0.05)).sentences("all_reduce")
    assert sentence == "all_reduce on 2 nodes: auto is not clearly faster than MPICH's own."
    rarely = {"auto": LATE, "native": {size: LATE[size] * (2 if size < 4 * KIB else 1.001) for size in SIZES}}
    (sentence,) = answers(measured_results(rarely, spread=0.05)).sentences("all_reduce")
    assert sentence == "all_reduce on 2 nodes: auto is not clearly faster than MPICH's own."
    worse = {"auto": {KIB: 1.0, MIB: 2.0}, "native": {KIB: 2.0, MIB: 1.0}}
    (sentence,) = answers(measured_results(worse, spread=0.05)).sentences("all_reduce")
    assert sentence.endswith("by size, clearly faster at 1 of 2 sizes, clearly slower at 1 of 2 sizes).")
    both = answers(measured_results({**half, "ring": scaled(LATE, 2)}, spread=0.05))
    assert [sentence.partition(": ")[2].split()[:2] for sentence in both.sentences("all_reduce")] == [
        ["use", "MPICH's"], ["auto", "is"],
    ]  # fmt: skip
    assert {line.choice for line in both.table("all_reduce")} == {"native"}
    assert answers(measured_results({"auto": LATE})).by_collective == {}


def test_a_single_choice_is_described_by_its_times():
    (sentence,) = answers(measured_results({"ring": {KIB: 1e-5, 4 * KIB: 2e-5}})).sentences("all_reduce")
    assert (
        sentence
        == "all_reduce on 2 nodes: only ring was measured, and no advice follows: 10 us at 1 KiB and 20 us at 4 KiB."
    )


def test_a_collective_without_sizes_names_none():
    curves = {"dissemination": {1: 1e-5}, "native": {1: 2e-5}}
    (sentence,) = answers(measured_results(curves, collective="barrier", op=None, in_place=True)).sentences("barrier")
    assert sentence == "barrier on 2 nodes: use dissemination, 2.0 times as fast as MPICH's own (clearly so)."


def test_the_foremost_setting_has_the_most_ranks_with_cores_of_their_own():
    def on(ranks, *, oversubscribed):
        results = measured_results({"ring": LATE, "native": EARLY}, number=ranks)
        rows = tuple(replace(row, ranks=ranks, oversubscribed=oversubscribed) for row in results.rows)
        return replace(results, rows=rows)

    several = answers(on(2, oversubscribed=False), on(4, oversubscribed=False), on(8, oversubscribed=True))
    assert [each.setting.ranks for each in several.foremost("all_reduce")] == [4]
    assert [line.setting for line in several.table("all_reduce")][::2] == [
        "4 ranks on 2 nodes", "2 nodes", "8 ranks on 2 nodes",
    ]  # fmt: skip
    crowded = answers(on(8, oversubscribed=True))
    assert crowded.sentences("all_reduce")[0].startswith(
        "all_reduce on 8 ranks on 2 nodes (more ranks than cores): use"
    )


def test_settings_are_named_by_what_distinguishes_them():
    several = [measured_results({"ring": LATE}, number=number, mapping=name)
               for number, name in enumerate(("block", "cyclic"), 1)]  # fmt: skip
    found = Answers(recommend(merged_results(*several)))
    names = [found.setting_name(each) for each in found.by_collective["all_reduce"]]
    assert names == ["2 nodes", "2 nodes, mapping cyclic"]
    machines = answers(measured_results({"ring": LATE}), measured_results({"ring": LATE}, number=2,
                                                                         about={"machine": "others"}))  # fmt: skip
    assert {line.setting for line in machines.table("all_reduce")} == {"2 nodes, 2 nodes", "2 nodes, others"}


def test_transports_and_parameters_are_named_where_they_differ():
    curves = {"ring channels=1": LATE, "ring channels=4": EARLY, "star": scaled(LATE, 3)}
    assert [line.choice for line in answers(measured_results(curves)).table("all_reduce")] == [
        "ring channels=4", "ring channels=1",
    ]  # fmt: skip
    shm = measured_results({"star": scaled(EARLY, 9)}, transport="shm", number=2)
    assert [line.choice for line in answers(measured_results({"ring": LATE}), shm).table("all_reduce")] == ["ring mpi"]


@given(st.lists(st.floats(1e-6, 1e-2), min_size=16, max_size=16))
def test_a_size_in_words_lies_between_the_sizes_of_its_ranges(times):
    curves = {"ring": dict(zip(SIZES, times[:8], strict=True)), "star": dict(zip(SIZES, times[8:], strict=True))}
    (found,) = recommend(measured_results(curves))
    for number, (before, after) in enumerate(zip(found.ranges, found.ranges[1:], strict=False), 1):
        value, unit = re.search(r"(?:from|at) (\d+) (B|KiB|MiB)", size_range(found, number)).groups()
        cut = int(value) * {"B": 1, "KiB": KIB, "MiB": KIB**2}[unit]
        assert before.sizes.sizes[-1] < cut <= after.sizes.sizes[0]


def test_a_table_for_a_terminal_has_every_range_once():
    several = answers(measured_results({"ring": LATE, "native": EARLY}, drift=DRIFT))
    lines = list(all_table_lines(several))
    assert lines[0] == "all_reduce on 2 nodes"
    assert lines[1].startswith("  from 1 KiB to 120 KiB: native; clear at all 4 sizes")
    assert re.match(r"  from 120 KiB to 16 MiB: ring, speed-up over native \S+.*; clear at all 4 sizes", lines[2])


def test_a_table_for_a_terminal_marks_ranks_that_shared_cores():
    results = measured_results({"ring": LATE})
    crowded = replace(results, rows=tuple(replace(row, oversubscribed=True) for row in results.rows))
    assert next(all_table_lines(answers(crowded))) == "all_reduce on 2 nodes (more ranks than cores)"


def test_choices_of_different_launches_are_named():
    apart = answers(measured_results({"ring": LATE}), measured_results({"native": scaled(LATE, 2)}, number=2))
    assert apart.table("all_reduce")[0].certainty.endswith("not in one launch with native")


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("MPICH 5.0.2", "MPICH"),
        ("Open MPI v5.0.11", "Open MPI"),
        ("Intel(R) MPI Library 2021.13 for Linux", "Intel(R) MPI Library"),
        ("CRAY MPICH version 8.1.28", "CRAY MPICH"),
        ("", "the library"),
    ],
)
def test_the_name_of_a_library_is_its_version_without_the_number(version, name):
    assert library_name(version) == name
