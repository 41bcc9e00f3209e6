"""Verdicts on results: against published classes, NCCL's model, a machine file, a reference; and what decides none."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import raw_examples
from predicted_machines import cluster, in_racks
from published_outputs import NAMED, Call, PublishedRow, imported, log_of, printed, without_source
from synthetic_timings import times_around

from hpccoll.evidence.log_set import read_logs
from hpccoll.judge import verdicts as verdicts_module
from hpccoll.judge.held import (
    MACHINE,
    MODEL,
    NEAREST,
    PHYSICS,
    PUBLISHED,
    RATE,
    REFERENCE,
    TIME,
    Acceptance,
    HeldVerdict,
)
from hpccoll.judge.reference import make_reference
from hpccoll.judge.verdicts import LARGE
from hpccoll.model.machine_file import read_machine
from hpccoll.model.predict import Request, predict
from hpccoll.model.published_rates import TABLE as TABLE_FILE
from hpccoll.model.published_rates import figures_of, with_tables
from hpccoll.store.load_results import to_results
from hpccoll.store.result_files import ResultFiles

PASS, FAIL, CANNOT_TELL = Acceptance.PASS, Acceptance.FAIL, Acceptance.CANNOT_TELL
GIB, MIB, GB = 1 << 30, 1 << 20, 1e9
H100 = read_machine("8xh100-400g", "--cluster")

TABLE = [{"nodes": 2, "bytes": size * GIB, "low_bytes_per_s": rate * GB, "high_bytes_per_s": rate * GB, "source": name,
          "collective": "all_reduce", "algorithm": "default"}
         for size in (1, 2, 8) for rate, name in ((400, "one/a@1 x"), (420, "two#3"), (410, "one/a@2 y"))]  # fmt: skip


def judge_rows(files, against, log=None):
    return verdicts_module.judge_rows(files, to_results(files), against, log)


@pytest.fixture
def judged(tmp_path):
    """Judge calls of one output."""

    def judge(*calls, against=H100, log=None, given=None, **shape):
        files = imported(tmp_path / "out.txt", printed(calls, **shape), **(given or {}))
        return judge_rows(files, against, log)

    return judge


def machine(figures):
    """Return a machine that has figures of its own, and no class."""
    return in_racks(layout={"ranks_per_node": 8, "nodes_per_rack": 2}, published=figures)


def verdicts(rows):
    return [(one.row.bytes // MIB, one.acceptance) for one in rows]


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [
        (400, PASS),
        (381, PASS),
        (379, CANNOT_TELL),
        (341, CANNOT_TELL),
        (339, FAIL),
        (440, PASS),
        (442, CANNOT_TELL),
    ],
)
def test_a_range_of_two_sources_passes_from_95_to_105_per_cent_and_fails_below_85(
    busbw, verdict, judged
):
    (one,) = judged(Call(GIB, busbw), against=machine(TABLE))
    assert (one.acceptance, one.quantity, one.expected.origin) == (verdict, RATE, PUBLISHED)
    assert (one.expected.low, one.expected.high) == (400 * GB, 420 * GB)
    assert [each.partition(" (in the file of ")[0] for each in one.expected.sources] == [
        "one/a",
        "two#3",
    ]
    assert one.measured == pytest.approx(busbw * GB, rel=1e-3)
    assert bool(one.reason) == (verdict is CANNOT_TELL)


@pytest.mark.parametrize(
    ("busbw", "said"),
    [
        (100, HeldVerdict.BELOW_PUBLISHED),
        (381, HeldVerdict.WITHIN_PUBLISHED),
        (440, HeldVerdict.ABOVE_PUBLISHED),
    ],
)
def test_one_source_is_said_and_decides_nothing_and_sources_of_one_repository_are_one(
    busbw, said, judged
):
    of_one = [each for each in TABLE if each["source"].startswith("one/a")]
    (one,) = judged(Call(GIB, busbw), against=machine(of_one))
    assert (one.acceptance, one.verdict, one.expected.origin) == (CANNOT_TELL, said, NEAREST)
    assert one.expected.sources == ("one/a (in the file of paper)",)
    assert (one.expected.low, one.expected.high) == (400 * GB, 410 * GB)
    assert "2 independent sources" in one.reason


@pytest.mark.parametrize(
    ("low", "failing"),
    [
        ((1,), ()),
        ((2,), ()),
        ((1, 2), (1, 2)),
        ((2, 8), (2, 8)),
        ((1, 2, 8), (1, 2, 8)),
        ((8,), (8,)),
        ((1, 8), (8,)),
    ],
)
def test_a_size_alone_fails_only_if_no_larger_one_is_as_expected(low, failing, judged):
    rows = judged(
        *(Call(size * GIB, 200 if size in low else 410) for size in (1, 2, 8)),
        against=machine(TABLE),
    )
    expected = {
        size: FAIL if size in failing else CANNOT_TELL if size in low else PASS
        for size in (1, 2, 8)
    }
    assert verdicts(rows) == [(size * 1024, verdict) for size, verdict in expected.items()]
    assert all(bool(one.reason) == (one.acceptance is CANNOT_TELL) for one in rows)


def test_small_sizes_fail_only_far_below_and_only_at_sizes_that_were_published(judged):
    figures = [each | {"bytes": size} for each in TABLE[:3] for size in (64 << 10, 8 * MIB)]
    for size, busbw, verdict in (
        (64 << 10, 170, CANNOT_TELL),
        (64 << 10, 150, FAIL),
        (8 * MIB, 230, FAIL),
    ):
        (one,) = judged(Call(size, busbw), against=machine(figures))
        assert one.acceptance is verdict
    (one,) = judged(Call(MIB, 1), against=machine(figures))
    assert (one.acceptance, one.expected) == (CANNOT_TELL, None)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"nodes": 3}, "no class has 3 nodes"),
        ({"nodes": 4}, "no source published"),
        ({"gpus_per_node": 4}, "2 nodes x 4"),
        ({"collective": "all_gather"}, "all_gather"),
        ({"given": {"library": "MSCCL++"}, "library": ""}, "MSCCL++"),
    ],
)
def test_what_no_class_has_cannot_be_told_and_the_reason_names_it(shape, words, judged):
    (one,) = judged(Call(GIB, 100), against=machine(TABLE), **shape)
    assert (one.acceptance, one.expected) == (CANNOT_TELL, None)
    assert words in one.reason


def test_a_run_without_warm_up_cannot_be_told(judged):
    (one,) = judged(Call(GIB, 100), warmup=0)
    assert (one.acceptance, bool(one.expected)) == (CANNOT_TELL, True)
    assert "warm-up" in one.reason


@pytest.mark.parametrize(("busbw", "verdict"), [(180, FAIL), (450, PASS)])
def test_two_nodes_of_8_h100_have_445_to_459_by_default_and_no_model(busbw, verdict, judged):
    (one,) = judged(Call(GIB, busbw))
    assert (one.acceptance, one.expected.origin) == (verdict, PUBLISHED)
    assert [round(rate / GB) for rate in (one.expected.low, one.expected.high)] == [445, 459]
    assert one.expected.low < one.expected.value < one.expected.high < one.expected.wire_Bps
    assert len(one.expected.sources) > 3
    assert (one.expected.gpus, one.library) == (("H100", "H200"), "NCCL 2.27.7")
    assert {"", "2.23.4", "2.31.2"} < {*one.expected.libraries}


def test_figures_of_the_users_own_file_are_named_among_those_of_the_table(judged, tmp_path):
    figure = {
        "nodes": 2,
        "bytes": GIB,
        "low_bytes_per_s": 440e9,
        "high_bytes_per_s": 441e9,
        "source": "our own runs",
        "collective": "all_reduce",
        "algorithm": "default",
    }
    path = tmp_path / "ours.yaml"
    path.write_text(json.dumps({"like": "8xh100-400g", "published": [figure]}))
    (one,), (usual,) = (
        judged(Call(GIB, 450), against=each) for each in (read_machine(path, "--cluster"), H100)
    )
    assert {*one.expected.sources} - {*usual.expected.sources} == {
        "our own runs (in the file of ours)"
    }
    assert one.expected.low == 440e9


def test_figures_of_another_gpu_with_the_same_fabric_decide_nothing_and_the_gpu_is_named(judged):
    gb200 = read_machine("gb200-nvl72", "--cluster")
    shape = {"nodes": 4, "gpus_per_node": 4, "gpu": "NVIDIA Graphics Device"}
    (one,) = judged(Call(8 * GIB, 700), against=gb200, **shape)
    assert (one.verdict, one.expected.origin) == (HeldVerdict.WITHIN_PUBLISHED, NEAREST)
    assert one.expected.sources == ("Oracle: OKE GB300 topology block test log (GB300)",)


@pytest.mark.parametrize("nodes", [64, 512])
def test_figures_of_tens_of_nodes_say_nothing_of_hundreds(nodes, judged):
    (one,) = judged(Call(GIB, 100), nodes=nodes)
    assert (one.verdict, one.expected.origin) == (HeldVerdict.FAR_BELOW_WIRES, PHYSICS)
    assert f"{nodes} nodes x 8 (or 0.5 to 2 times as many nodes)" in one.reason


@pytest.mark.parametrize(
    ("busbw", "verdict"),
    [
        (13, HeldVerdict.FAR_BELOW_WIRES),
        (200, HeldVerdict.BELOW_WIRES),
        (420, HeldVerdict.BELOW_WIRES),  # no ring, of which the ports carry 406
        (813, HeldVerdict.BELOW_WIRES),  # switches reduce
        (860, HeldVerdict.IMPOSSIBLE),
    ],
)
def test_what_nobody_published_is_held_against_what_the_wires_carry(busbw, verdict, judged):
    (one,) = judged(Call(GIB, busbw), nodes=64)
    assert (one.verdict, one.expected.origin, one.expected.low) == (verdict, PHYSICS, 0)
    assert one.expected.sources == ("the ports",)
    assert one.causes == ()


def test_a_rate_that_cannot_be_fails_although_figures_were_published_and_no_neighbour_does(judged):
    rows = judged(Call(GIB, 450), Call(2 * GIB, 900), Call(8 * GIB, 480))
    assert [one.verdict for one in rows] == [
        HeldVerdict.AS_EXPECTED,
        HeldVerdict.IMPOSSIBLE,
        HeldVerdict.AS_EXPECTED,
    ]


def test_on_several_nodes_an_old_nccl_is_not_held_against_figures_of_recent_ones(judged):
    old = "nccl-headers=21805 nccl-library=21805"
    recent, one = (judged(Call(GIB, 313), library=each)[0] for each in (NAMED, old))
    assert [(each.acceptance, each.expected.origin) for each in (recent, one)] == [
        (FAIL, PUBLISHED),
        (CANNOT_TELL, NEAREST),
    ]
    assert "NCCL 2.18.5" in one.reason
    assert one.expected.low == recent.expected.low
    assert (one.verdict, one.is_low) == (HeldVerdict.BELOW_PUBLISHED, False)
    inside = [judged(Call(GIB, 466), nodes=1, library=each)[0] for each in (old, NAMED)]
    assert inside[0].expected == inside[1].expected


@pytest.mark.parametrize(("busbw", "verdict"), [(9.8, FAIL), (220, FAIL), (225, CANNOT_TELL)])
def test_below_half_of_what_recent_ones_reach_an_old_nccl_is_no_excuse(busbw, verdict, judged):
    (one,) = judged(Call(GIB, busbw), library="nccl-headers=21104 nccl-library=21104")
    assert (one.acceptance, one.expected.origin == PUBLISHED) == (verdict, verdict is FAIL)


@pytest.mark.parametrize(("busbw", "verdict"), [(5.3, FAIL), (300, CANNOT_TELL)])
def test_far_below_the_next_class_a_number_of_nodes_without_a_class_is_no_excuse(
    busbw, verdict, judged
):
    """3 nodes of 8 H100 with 5.3 GB/s (NVIDIA/nccl#1453): 4 nodes reach hundreds."""
    (one,) = judged(Call(GIB, busbw), nodes=3)
    assert (one.acceptance, one.expected.origin == PUBLISHED) == (verdict, verdict is FAIL)


@pytest.mark.parametrize(("busbw", "verdict"), [(180, FAIL), (360, PASS), (450, CANNOT_TELL)])
def test_a_ring_that_a_log_names_is_held_against_the_model_and_not_against_the_usual_algorithm(
    busbw, verdict, judged
):
    call = Call(GIB, busbw)
    (one,) = judged(call, log=read_logs({"log": log_of([call], "RING")}))
    assert (one.acceptance, one.expected.origin) == (verdict, MODEL)
    assert [round(rate / GB, -1) for rate in (one.expected.low, one.expected.high)] == [340, 370]
    assert one.expected.wire_Bps == 400 * GB


def test_a_log_says_nothing_of_runs_on_other_ranks(judged):
    call = Call(GIB, 466)
    begun = "node-0:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 cudaDev 0 commId 0x2 - Init START\n"
    log = read_logs({"log": begun + log_of([call], "RING")})
    one, other = (judged(call, log=each, nodes=1)[0] for each in (log, None))
    assert (log.ranks, one.acceptance, one.expected) == (16, PASS, other.expected)


def test_the_usual_algorithm_that_a_log_names_has_the_same_range_as_without_a_log(judged):
    call = Call(GIB, 450)
    with_log, without = (
        judged(call, log=log)[0] for log in (read_logs({"l": log_of([call], "NVLS_TREE")}), None)
    )
    assert with_log.expected == without.expected


def test_a_log_that_names_several_algorithms_of_a_size_or_turns_nvls_off_decides_nothing(judged):
    call = Call(GIB, 450)
    several = log_of([call], "RING") + log_of([call], "TREE").splitlines()[-1] + "\n"
    off = "node-0:1:1 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.\n"
    for text, words in ((several, "ring and tree"), (off, "NVLS is off")):
        (one,) = judged(call, log=read_logs({"log": text}))
        assert (one.acceptance, one.expected) == (CANNOT_TELL, None)
        assert words in one.reason


def test_calls_of_mscclpp_and_sizes_below_1_gib_have_no_model(judged):
    call = Call(512 * MIB, 300)
    (one,) = judged(call, log=read_logs({"log": log_of([call], "RING")}))
    assert one.expected.origin == NEAREST
    assert all("by default" in source for source in one.expected.sources)


def test_calls_of_nccl_are_not_held_against_figures_of_rccl(judged):
    (one,) = judged(Call(GIB, 345), against=read_machine("8xmi300x-400g", "--cluster"))
    assert (one.acceptance, one.expected) == (CANNOT_TELL, None)
    assert "RCCL" in one.reason


@pytest.mark.parametrize(
    ("gpu", "verdict"),
    [
        ("NVIDIA H100 80GB HBM3", FAIL),
        ("NVIDIA H200", FAIL),
        ("NVIDIA Graphics Device", FAIL),
        ("", FAIL),
        ("NVIDIA L40S", CANNOT_TELL),
        ("NVIDIA A100-SXM4-80GB", CANNOT_TELL),
        ("NVIDIA H20", CANNOT_TELL),
    ],
)
def test_gpus_that_a_machine_does_not_have_are_named_and_decide_nothing(gpu, verdict, judged):
    (one,) = judged(Call(GIB, 60), gpu=gpu)
    assert (one.acceptance, bool(gpu) and gpu in one.reason) == (verdict, verdict is CANNOT_TELL)


@pytest.mark.parametrize(
    "name", ["8xh100-400g", "8xb200-400g", "8xa100-200g", "8xmi300x-400g", "8xmi355x-400g"]
)
def test_what_was_published_of_a_class_passes_in_the_class_and_less_than_85_per_cent_of_it_fails(
    name, judged
):
    described, failed, passed = read_machine(name, "--cluster"), 0, 0
    gpu = "AMD Radeon Graphics" if "mi" in name else "NVIDIA Graphics Device"
    figures = [each for each in figures_of(described) if each.nbytes >= LARGE and each.healthy]
    for figure in figures[::5]:
        if figure.network not in (None, described.machine_class.network) or figure.forced:
            continue
        for share in (1.0, 0.8):
            call = Call(
                figure.nbytes, share * figure.rate / GB, bool(figure.in_place), figure.dtype
            )
            shape = {
                "nodes": figure.nodes,
                "gpus_per_node": figure.gpus_per_node,
                "collective": figure.collective,
            }
            (one,) = judged(call, against=described, gpu=gpu, **shape)
            if one.expected.origin == PUBLISHED:
                below = one.measured < 0.85 * one.expected.low
                assert one.acceptance is PASS if share == 1.0 else (one.acceptance is FAIL) == below
                passed, failed = (
                    passed + (one.acceptance is PASS),
                    failed + (one.acceptance is FAIL),
                )
    assert bool(passed) == bool(failed)
    assert passed


SIZES = [1 << 10, 1 << 14, 1 << 18]
PAPER = cluster()


def measured(slower, algorithm="ring", number=0):
    """Return results of ours on two nodes that took times of what ``PAPER`` promises of a ring, by size."""
    promised = predict(PAPER, Request(nodes=[2], sizes=SIZES, algorithms=["ring"])).predictions
    params = {"channels": 1, "window": 1} if algorithm == "ring" else {}
    outcomes = [
        raw_examples.outcome(
            raw_examples.case(each.nbytes, algorithm=algorithm),
            params=params,
            times=times_around(
                slower.get(each.nbytes, slower[0]) * each.value_s * (1 + 0.002 * number)
            ),
        )
        for each in promised
    ]
    return ResultFiles(raw_results=[raw_examples.raw(*outcomes)])


@pytest.mark.parametrize(
    ("slower", "expected"),
    [
        ({0: 1.0}, [PASS] * 3),
        ({0: 9.0}, [FAIL] * 3),
        ({0: 1.0, SIZES[1]: 9.0}, [PASS, CANNOT_TELL, PASS]),
        ({0: 1.0, SIZES[1]: 9.0, SIZES[2]: 9.0}, [PASS, FAIL, FAIL]),
        ({0: 0.01}, [CANNOT_TELL] * 3),
    ],
)
def test_our_schedules_are_held_against_their_simulation_within_its_interval(slower, expected):
    rows = judge_rows(measured(slower), PAPER)
    assert [one.acceptance for one in rows] == expected
    assert {one.expected.origin for one in rows} == {MACHINE}
    assert {one.quantity for one in rows} == {TIME}
    assert all(one.expected.low < one.expected.value < one.expected.high for one in rows)


def test_a_library_that_is_slower_than_the_fastest_schedule_decides_nothing_and_one_as_fast_passes():
    for slower, verdict in ((1.0, PASS), (9.0, CANNOT_TELL)):
        rows = judge_rows(measured({0: slower}, "native"), PAPER)
        assert [one.acceptance for one in rows] == [verdict] * 3
        assert all(("need not take" in one.reason) == (verdict is CANNOT_TELL) for one in rows)


def test_a_machine_without_costs_of_messages_says_nothing_of_our_schedules():
    rows = judge_rows(measured({0: 1.0}), read_machine("8xmi300x-400g", "--cluster"))
    assert [one.acceptance for one in rows] == [CANNOT_TELL] * 3
    assert "costs of its messages" in rows[0].reason


def together(*files):
    """Return results of one run that has the cases of several."""
    outcomes = [
        one
        for each in files
        for raw in each.raw_results
        for _, found in raw.attempts
        for one in found
    ]
    return ResultFiles(raw_results=[raw_examples.raw(*outcomes)])


def in_runs(*files):
    """Return results of runs of one job, each in a file of its own."""
    raws = [each.raw_results[0] for each in files]
    for number, raw in enumerate(raws):
        raw.attempts[:] = [
            (replace(attempt, run_id=f"run {number}"), found) for attempt, found in raw.attempts
        ]
    return ResultFiles(raw_results=raws)


def of_reference(*runs):
    return make_reference([to_results(run) for run in runs])


def test_a_reference_fails_rows_that_neighbouring_sizes_support_and_the_largest_size_alone():
    reference = of_reference(*(measured({0: 1.0}, number=number) for number in range(5)))
    for slower, expected in (
        ({0: 1.0}, [PASS] * 3),
        ({0: 0.5}, [PASS] * 3),
        ({0: 1.0, SIZES[1]: 1.25}, [PASS, CANNOT_TELL, PASS]),
        ({0: 1.25, SIZES[0]: 1.0}, [PASS, FAIL, FAIL]),
        ({0: 1.0, SIZES[2]: 1.25}, [PASS, PASS, FAIL]),
        ({0: 1.0, SIZES[0]: 2.1}, [CANNOT_TELL, PASS, PASS]),
        ({0: 1.0, SIZES[1]: 10}, [PASS, FAIL, PASS]),
        ({0: 1.0, SIZES[0]: 10}, [FAIL, PASS, PASS]),
    ):
        rows = judge_rows(measured(slower, number=2), reference)
        assert [one.acceptance for one in rows] == expected
        assert {one.expected.origin for one in rows} == {REFERENCE}
        assert all(one.expected.low < one.expected.value < one.expected.high for one in rows)


def test_a_size_that_is_slow_by_two_algorithms_fails_against_a_reference_and_by_one_of_them_not():
    def run(number, *slower):
        files = (
            measured({0: 1.0} | own, name, number)
            for own, name in zip(slower, ("ring", "native"), strict=True)
        )
        return together(*files)

    reference, slow = of_reference(*(run(number, {}, {}) for number in range(5))), {SIZES[0]: 2.1}
    for slower, failing in (
        ((slow, {}), 0),
        (({}, slow), 0),
        ((slow, slow), 2),
        ((slow, {SIZES[1]: 2.1}), 0),
    ):
        rows = judge_rows(run(2, *slower), reference)
        assert [one.acceptance for one in rows].count(FAIL) == failing
        assert {one.row.bytes for one in rows if one.acceptance is FAIL} <= {SIZES[0]}


def test_where_runs_of_a_reference_differ_much_a_row_fails_in_two_runs_and_not_in_one():
    reference = of_reference(*(measured({0: 1 + number / 9}, number=number) for number in range(5)))
    cases = (
        (4, [2], CANNOT_TELL), (4, [2, 3], FAIL), (20, [2], FAIL), (1.1, [2, 3], CANNOT_TELL),
        (4, [2, 2], CANNOT_TELL),  # a copy
    )  # fmt: skip
    for slower, numbers, verdict in cases:
        rows = judge_rows(
            in_runs(*(measured({0: slower}, number=number) for number in numbers)), reference
        )
        assert [one.acceptance for one in rows] == [verdict] * len(SIZES) * len(numbers)


def test_a_reference_that_allows_too_much_decides_nothing_but_what_is_beyond_it():
    disturbed = [measured({0: factor}, number=n) for n, factor in enumerate((1, 3, 100, 2, 20))]
    reference = of_reference(*disturbed)
    assert len(reference.loose_cases) == len(SIZES)
    for factor, verdict in ((1, CANNOT_TELL), (0.001, CANNOT_TELL), (10**6, FAIL)):
        rows = judge_rows(measured({0: factor}, number=2), reference)
        assert [one.acceptance for one in rows] == [verdict] * len(SIZES)
        if verdict is CANNOT_TELL:
            assert all("too much to call a run healthy" in one.reason for one in rows)
    healthy = of_reference(*(measured({0: 1 + n / 9}, number=n) for n in range(5)))
    assert healthy.loose_cases == []


def test_a_row_fails_if_most_runs_are_beyond_a_wide_bound():
    reference = of_reference(*(measured({0: 1 + number / 9}, number=number) for number in range(5)))
    for slow, failing in ((2, 0), (3, 3)):
        runs = [measured({0: 4 if number < slow else 1.2}, number=number) for number in range(4)]
        rows = judge_rows(in_runs(*runs), reference)
        assert [one.acceptance for one in rows].count(FAIL) == failing * len(SIZES)


def test_the_variants_of_a_sweep_are_cases_of_one_run():
    def sweep(*slower, number=0):
        files = in_runs(*(measured({0: factor}, number=number) for factor in slower))
        for raw, variant in zip(files.raw_results, ("default", "other"), strict=True):
            raw.job = replace(raw.job, variant=variant, name=f"mpi.p2.{variant}")
        return files

    reference = of_reference(*(sweep(1.0, 3.0, number=number) for number in range(5)))
    for slower, failing in (
        ((1.25, 3.0), {"default"}),
        ((1.0, 3.75), {"other"}),
        ((1.0, 3.0), set()),
    ):
        rows = judge_rows(sweep(*slower, number=2), reference)
        assert {one.row.variant for one in rows if one.acceptance is FAIL} == failing
        assert {one.acceptance for one in rows if one.row.variant not in failing} == {PASS}


def test_a_wrong_result_under_load_fails():
    assert judge_rows(under_load(measured({0: 1.0})), PAPER) == []
    assert {
        one.acceptance
        for one in judge_rows(under_load(measured({0: 1.0}), status="wrong", wrong=1), PAPER)
    } == {FAIL}


def under_load(files, **changes):
    raw = files.raw_results[0]
    (attempt, outcomes), *_ = raw.attempts
    cases = [replace(each.case, params={**each.case.params, "load": "gemm"}) for each in outcomes]
    raw.attempts[0] = (
        attempt,
        [replace(each, case=case, **changes) for each, case in zip(outcomes, cases, strict=True)],
    )
    return files


def test_each_run_is_held_against_a_reference_by_itself():
    slow, usual = (measured({0: factor}, number=2) for factor in (1.25, 1.0))
    reference = of_reference(*(measured({0: 1.0}, number=number) for number in range(5)))
    rows = judge_rows(in_runs(slow, usual), reference)
    assert {(one.row.run_id, one.acceptance) for one in rows} == {("run 0", FAIL), ("run 1", PASS)}


def test_a_wrong_result_fails_however_fast_it_is():
    files = measured({0: 1.0})
    raw = files.raw_results[0]
    (attempt, outcomes), *_ = raw.attempts
    raw.attempts[0] = attempt, [replace(each, status="wrong", wrong=1) for each in outcomes]
    assert [(one.acceptance, one.expected) for one in judge_rows(files, PAPER)] == [
        (FAIL, None)
    ] * 3


def test_a_case_that_failed_fails_whatever_is_expected():
    files = measured({0: 1.0})
    raw = files.raw_results[0]
    (attempt, outcomes), *_ = raw.attempts
    lost = raw_examples.outcome(
        outcomes[1].case, times=None, status="failed", reason="rank 3 does not answer"
    )
    raw.attempts[0] = attempt, [outcomes[0], lost, outcomes[2]]
    assert [one.acceptance for one in judge_rows(files, PAPER)] == [PASS, FAIL, PASS]


def test_of_several_runs_in_one_output_the_slowest_is_judged(tmp_path):
    runs = "".join(printed([Call(GIB, busbw)]) for busbw in (450, 450, 230, 450))
    (one,) = judge_rows(imported(tmp_path / "out.txt", runs), H100)
    assert (one.acceptance, one.measured) == (FAIL, pytest.approx(230 * GB, rel=1e-3))


def test_figures_are_of_sums_and_decide_nothing_of_other_reductions(tmp_path):
    text = printed([Call(GIB, 367)], nodes=1)
    for op, verdict in (("sum", FAIL), ("max", CANNOT_TELL)):
        (one,) = judge_rows(
            imported(tmp_path / f"{op}.txt", text.replace(" sum ", f" {op} ")), H100
        )
        assert one.acceptance is verdict


def test_a_log_that_says_why_nvls_did_not_run_passes_nothing_where_nvls_is_usual(judged):
    call = Call(GIB, 360)
    lost = "node-0:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0\n"
    on = "node-0:1:1 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 1.\n"
    for text, verdict in (
        ("", PASS),
        (lost, CANNOT_TELL),
        (on, CANNOT_TELL),
        (lost + on, CANNOT_TELL),
    ):
        (one,) = judged(call, log=read_logs({"log": text + log_of([call], "RING")}))
        assert one.acceptance is verdict


def test_sources_that_do_not_agree_decide_nothing_at_large_sizes(judged):
    wide = [{**each, "high_bytes_per_s": 700 * GB} for each in TABLE]
    (one,) = judged(Call(GIB, 410), against=machine(wide))
    assert one.acceptance is CANNOT_TELL


COLUMNS = TABLE_FILE.read_text().partition("\n")[0]
NEW_MACHINE = {
    "schema": "hpccoll-machine",
    "schema_version": "1.0",
    "name": "new",
    "kind": "described",
    "layout": {"ranks_per_node": 8},
    "class": {"fabric": "a new link", "network": "a new network", "gpus": ["X1"]},
}


def test_a_new_machine_becomes_a_class_by_a_table_and_a_file_of_ones_own_alone(judged, tmp_path):
    described = tmp_path / "new.yaml"
    described.write_text(json.dumps(NEW_MACHINE))
    place = f"a new link,a new network,8,2,all_reduce,{GIB},float32,no,,"
    figures = [
        f"{place},{rate},2.30.1,our cluster,X1,,{source},yes"
        for rate, source in ((400, "one/a"), (420, "two/b"))
    ]
    tables = []
    for number in (1, 2):
        table = tmp_path / f"{number}.csv"
        table.write_text("\n".join((COLUMNS, figures[number - 1], "")))
        tables.append(table)

    def verdict(busbw, *tables):
        with with_tables(*tables):
            (one,) = judged(
                Call(GIB, busbw), against=read_machine(described, "--cluster"), gpu="Maker X1 80GB"
            )
        return one

    assert [verdict(busbw, *tables).acceptance for busbw in (390, 410, 300)] == [PASS, PASS, FAIL]
    assert verdict(410, *tables).expected.sources == (
        "one/a (in the file of 1.csv)",
        "two/b (in the file of 2.csv)",
    )
    assert verdict(410, tables[0]).verdict is HeldVerdict.WITHIN_PUBLISHED
    assert verdict(410).expected is None


def test_without_its_source_a_figure_is_held_against_the_others(judged):
    (usual,) = judged(Call(GIB, 450))
    with without_source("NVIDIA/nccl-tests#309"):
        (without,) = judged(Call(GIB, 450))
    assert {*usual.expected.sources} - {*without.expected.sources} == {"NVIDIA/nccl-tests#309"}


@pytest.mark.skipif(
    "HPCCOLL_DATA" not in os.environ, reason="HPCCOLL_DATA names no directory of published data"
)
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "failing", "low"), [("nccl-tests.csv", 11, 0.8), ("nccl-tests-2.csv", 6, 0.6)]
)
def test_published_rows_pass_if_healthy_and_fail_if_not_without_their_own_source(
    name, failing, low, tmp_path
):
    """Where nobody published enough for a verdict, what is said tells them apart."""
    rows = PublishedRow.read(Path(os.environ["HPCCOLL_DATA"]) / "published" / name)
    found = [(row, row.judged(tmp_path)) for row in rows]
    healthy = [one for row, one in found if row.healthy]
    unhealthy = [one for row, one in found if row.healthy is False]
    assert not any(one.acceptance is FAIL for one in healthy)
    assert not any(one.acceptance is PASS for one in unhealthy)
    assert [one.acceptance for one in unhealthy if one.row.bytes >= LARGE].count(FAIL) == failing
    are_low = [one for one in unhealthy if one.is_low]
    assert len(are_low) >= low * len(unhealthy)
    judged = [one for one in healthy if one.expected and one.expected.origin == PUBLISHED]
    assert sum(one.acceptance is PASS for one in judged) >= 0.8 * len(judged)
    nearest = [one for one in healthy if one.expected and one.expected.origin == NEAREST]
    within = [one for one in nearest if one.verdict is not HeldVerdict.BELOW_PUBLISHED]
    assert len(within) >= 0.8 * len(nearest)
