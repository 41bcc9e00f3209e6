"""The verdict on results as a whole: which rows decide, what a gate asks for, what is grouped."""

from dataclasses import replace

import pytest
from acceptance_examples import ACS, GB, GIB, MIB, SPLIT, acceptance, judged, of_two_nodes, timed

from hpccoll.judge.held import RATE, TIME, Acceptance, HeldVerdict


def test_a_row_that_fails_refuses_all_and_the_largest_that_fails_decides():
    smaller = judged(20 * GB, 100 * GB, 110 * GB, MIB)
    found = acceptance([smaller, *of_two_nodes()])
    assert (found.verdict, found.is_refused) == (Acceptance.FAIL, True)
    assert found.decisive.row.bytes == GIB  # 0.40 of the low end; 1 MiB has 0.20


def test_of_one_size_the_row_farthest_below_its_range_decides():
    rows = [judged(rate * GB, 445 * GB, 459 * GB, in_place=rate < 200) for rate in (200, 180, 190)]
    assert acceptance(rows).decisive is rows[1]


def test_rows_of_which_nothing_can_be_told_refuse_unless_none_are_required():
    rows = [each for each in of_two_nodes() if each.verdict is HeldVerdict.CANNOT_TELL]
    found = acceptance(rows)
    assert (found.verdict, found.is_refused, found.decisive) == (
        Acceptance.CANNOT_TELL,
        True,
        rows[-1],
    )
    assert acceptance(rows, required=1).is_refused
    assert not acceptance(rows, required=0).is_refused


@pytest.mark.parametrize(("required", "refused"), [(3, False), (4, True)])
def test_a_gate_asks_for_rows_that_were_judged(required, refused):
    found = acceptance(of_two_nodes(450 * GB), required=required)
    assert (found.decided, found.is_refused) == ({"": 3}, refused)
    assert found.verdict is (Acceptance.CANNOT_TELL if refused else Acceptance.PASS)


def test_of_times_the_longest_beside_its_range_decides():
    slower = HeldVerdict.SLOWER
    found = acceptance([timed(1.5, 0.9, 1.1, verdict=slower), timed(1.6, 0.9, 1.1, verdict=slower)])
    assert found.decisive.measured == 1.6


def test_each_collective_and_shape_is_a_part_and_those_that_fail_come_first():
    passing = [judged(350 * GB, 340 * GB, 360 * GB, nodes=4, ranks=32)]
    found = acceptance(passing + of_two_nodes())
    parts = [(part.judged[0].row.nodes, part.verdict) for part in found.parts]
    assert parts == [(2, Acceptance.FAIL), (4, Acceptance.PASS)]
    assert sum(len(part.judged) for part in found.parts) == len(found.judged)


def test_times_and_bandwidths_are_parts_of_their_own():
    other = judged(3 * GB, 2 * GB, 4 * GB, nodes=4, ranks=4)
    parts = acceptance([timed(1.0, 0.9, 1.1), other]).parts
    assert [part.judged[0].quantity for part in parts] == [TIME, RATE]


def test_of_rows_that_pass_the_largest_decides():
    found = acceptance(of_two_nodes(450 * GB)[:5])
    assert (found.verdict, found.decisive.row.bytes) == (Acceptance.PASS, GIB)


def test_a_wrong_result_decides_before_any_that_is_slow():
    wrong = judged(3 * GB, verdict=HeldVerdict.WRONG, reason="the result is wrong")
    assert acceptance([*of_two_nodes(), wrong]).decisive is wrong


def test_of_wrong_results_the_largest_decides():
    wrong = [
        judged(3 * GB, nbytes=size, verdict=HeldVerdict.WRONG, reason="it is wrong")
        for size in (16, GIB, MIB)
    ]
    assert acceptance(wrong).decisive is wrong[1]


# nothing is published of the size, or what it reaches is impossible
@pytest.mark.parametrize("low", [None, 467 * GB])
def test_a_small_size_that_passes_does_not_decide_for_large_ones(low):
    large = judged(
        885 * GB, low, 485 * GB, 8 * GIB, HeldVerdict.CANNOT_TELL, "above what is expected"
    )
    found = acceptance([judged(5 * GB, 4 * GB, 6 * GB, MIB), large], required=1)
    assert (found.verdict, found.decisive, found.is_refused) == (
        Acceptance.CANNOT_TELL,
        large,
        True,
    )


@pytest.mark.parametrize(
    "other", [{"nodes": 4, "ranks": 32}, {"run_id": "b"}, {"dtype": "float16"}]
)
def test_a_place_a_run_and_a_type_that_cannot_be_told_leave_the_whole_open(other):
    passes = judged(450 * GB, 445 * GB, 459 * GB)
    found = acceptance([passes, judged(60 * GB, reason="nothing is known", **other)])
    assert (found.verdict, found.is_refused) == (Acceptance.CANNOT_TELL, False)
    assert (
        acceptance([passes, judged(60 * GB, reason="nothing is known")]).verdict is Acceptance.PASS
    )


def test_rows_are_required_of_each_file_also_of_one_without_any():
    rows = [
        judged(450 * GB, 445 * GB, 459 * GB, run_id="a"),
        judged(450 * GB, 445 * GB, 459 * GB, run_id="b"),
    ]
    files = {"a": "one.txt", "b": "two.txt"}
    assert not acceptance(rows, files=files, required=1).is_refused
    assert acceptance(rows, files=files, required=2).is_refused
    assert acceptance(rows, files=files | {"c": "three.txt"}, required=1).is_refused


def test_cases_that_the_reference_alone_has_refuse_a_gate_that_requires_rows():
    rows = [timed(1.0, 0.9, 1.1)]
    assert not acceptance(rows, missing=3).is_refused
    assert acceptance(rows, missing=3, required=1).is_refused


def test_causes_are_named_once_and_those_of_the_decisive_row_come_first():
    low = judged(300 * GB, 385 * GB, 395 * GB, causes=[SPLIT])
    other = replace(ACS, because="the log names one NIC")
    found = acceptance([replace(low, causes=(SPLIT, other)), *of_two_nodes()])
    assert found.causes == {ACS.because: [ACS, SPLIT], other.because: [other]}


def test_symptoms_with_the_same_causes_are_named_together_with_their_causes_once():
    rows = [
        judged(
            rate * GB,
            445 * GB,
            459 * GB,
            collective=name,
            causes=[replace(cause, because=f"{name} has {rate} of 452") for cause in (ACS, SPLIT)],
        )
        for rate, name in ((180, "all_reduce"), (185, "all_gather"))
    ]
    ((because, causes),) = acceptance(rows).causes.items()
    assert because == "all_reduce has 180 of 452; all_gather has 185 of 452"
    assert [each.what for each in causes] == [ACS.what, SPLIT.what]


def test_expectations_of_several_origins_are_kept_apart():
    found = acceptance([*of_two_nodes(), timed(1.0, 0.9, 1.1)])
    assert {origin: len(rows) for origin, rows in found.origins.items()} == {
        "published": 4,
        "reference": 1,
    }


def test_json_names_the_file_of_each_row():
    rows = acceptance(files={"run-1": "nccl.txt"}).to_json()
    assert ({row["file"] for row in rows}, len(rows)) == ({"nccl.txt"}, 6)
