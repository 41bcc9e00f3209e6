"""What a library did of a tuning table, on examples of what ranks sent with it and without."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from library_results import joined, library_results

from hpccoll.extensions.tables.formats.mpich_json import read_mpich_json, write_mpich_json
from hpccoll.extensions.tables.formats.tuning_rule import UNLIMITED, TuningRule
from hpccoll.extensions.tables.verified_calls import (
    AS_WITHOUT,
    DEFAULT,
    FAILED,
    HONOURED,
    IGNORED,
    NOT_SHOWN,
    OVERRULED,
    verify_table,
)
from hpccoll.extensions.tables.verified_table_text import (
    CHANGES_NOTHING,
    LEAST_RANKS,
    OVER_TCP,
    verified_lines,
)

TABLE = Path("/tables/t.rules")
RING, TREE, LINEAR = [[[1500, 20]] * 4, [[1000], [500, 500]] * 2, [[3000]] + [[1000]] * 3]
FILE = "OMPI_MCA_coll_tuned_dynamic_rules_filename"
FORCED = {"ring": RING, "recursive_doubling": TREE, "basic_linear": LINEAR}


def verdicts(results, rules, library="openmpi"):
    return verify_table(TABLE, rules, library, (FILE,), results)


def measured(
    plain, with_table, library="openmpi", *, forced=FORCED, size=1024, environments=None, **changes
):
    """Return results of an all-reduce where ranks sent this without a table and with it."""
    traffic = {"default": {"": plain, **forced}, "table": {"": with_table} if with_table else None}
    variables = {"table": {FILE: str(TABLE)}} | (environments or {})
    return library_results(
        library,
        {"default": {size: 100}, "table": {size: 60}},
        environments=variables,
        **{"tcp_traffic": lambda variant, _: traffic[variant] and json.dumps(traffic[variant])}
        | changes,
    )


def verified(plain, with_table, rules, library="openmpi", **changes):
    """Return the verdicts of an all-reduce where ranks sent this without a table and with it."""
    return verdicts(measured(plain, with_table, library, **changes), rules, library)


def rule(algorithm, **more):
    return TuningRule(collective="allreduce", algorithm=algorithm, line=7, **more)


@pytest.mark.parametrize(
    ("with_table", "algorithm", "verdict"),
    [
        (RING, "ring", HONOURED),
        (TREE, "ring", IGNORED),
        (LINEAR, "ring", OVERRULED),
        (TREE, "ignore", DEFAULT),
        (RING, "ignore", OVERRULED),
        (None, "ring", NOT_SHOWN),
        (RING, "unknown to forcing", NOT_SHOWN),
        # headers and barriers may differ a little between launches
        ([[1506, 18]] * 4, "ring", HONOURED),
    ],
)
def test_what_ranks_sent_tells_whether_a_rule_is_honoured_ignored_or_overruled(
    with_table, algorithm, verdict
):
    (call,) = verified(TREE, with_table, [rule(algorithm)])
    assert call.verdict == verdict
    assert call.without == ("recursive_doubling",)
    assert (call.seconds_without, call.seconds) == pytest.approx((1e-4, 6e-5))


def test_a_layer_above_the_algorithms_overrules_a_table_where_nodes_have_several_ranks():
    layered = [[700, 700, 700]] * 4
    for each, verdict in ((1, IGNORED), (2, OVERRULED)):
        (call,) = verified(layered, layered, [rule("ring")], nodes=4 // each, ranks_per_node=each)
        assert (call.verdict, call.without, call.ran) == (verdict, (), ())


def test_the_first_rule_that_may_apply_counts_and_conditions_of_mpich_that_are_not_known_show_nothing():
    others = [rule("basic_linear", bytes=(0, 512)), rule("basic_linear", ranks=(5, 8))]
    others += [rule("basic_linear", conditions=("is_sendbuf_inplace=yes",))]
    (call,) = verified(
        TREE, RING, [*others, rule("ring", conditions=("comm_type=intra", "not count<pow2"))]
    )
    assert (call.rule, call.verdict) == ("ring", HONOURED)
    (call,) = verified(TREE, RING, [rule("ring", conditions=("is_node_consecutive=yes",))])
    assert (call.rule, call.verdict) == ("ring", NOT_SHOWN)


def test_a_call_that_does_what_the_table_says_also_without_it_shows_no_obedience():
    (call,) = verified(RING, RING, [rule("ring")])
    assert call.verdict == AS_WITHOUT


def test_a_call_is_not_honoured_where_forcing_tells_no_algorithm_from_another():
    same = dict.fromkeys(FORCED, RING)
    for plain in (RING, TREE):
        (call,) = verified(plain, RING, [rule("ring")], forced=same)
        assert call.verdict == NOT_SHOWN


def test_an_algorithm_of_calls_that_the_table_rules_too_is_not_called_overruled():
    forced = {**FORCED, "nonoverlapping": [[900] * 4] * 4}
    part = TuningRule(collective="bcast", algorithm="knomial", bytes=(0, 1))
    nothing = (
        replace(part, ranks=(5, 8)),
        replace(part, nodes=(5, 8)),
        replace(part, algorithm="ignore"),
        replace(part, collective="scatter"),
    )
    for others, verdict in ((nothing, OVERRULED), ((part,), NOT_SHOWN)):
        (call,) = verified(TREE, LINEAR, [rule("nonoverlapping"), *others], forced=forced)
        assert call.verdict == verdict
        (call,) = verified(TREE, TREE, [rule("nonoverlapping"), *others], forced=forced)
        assert call.verdict == IGNORED


def test_a_call_that_fails_only_with_the_table_is_a_verdict_of_its_own():
    for status in ("failed", "wrong"):
        results = measured(
            TREE,
            None,
            status=lambda name, _, as_=status: as_ if name == "table" else "ok",
            executor=lambda name, _: None if name == "table" else "compiled",
        )
        (call,) = verdicts(results, [rule("two_proc")])
        assert (call.rule, call.verdict) == ("two_proc", FAILED)
    # nor was it measured without the table
    assert verified(TREE, None, [rule("ring")], status="failed") == []
    assert (
        verified(
            TREE, RING, [rule("ring")], status=lambda name, _: {"table": "skipped"}.get(name, "ok")
        )
        == []
    )


def test_the_partner_of_a_call_is_one_of_the_same_library_transport_and_machine():
    results = measured(TREE, RING)
    elsewhere, newer = (
        library_results("openmpi", {name: {1024: 900}}) for name in ("elsewhere", "newer")
    )
    version = {"mpi": {"version": "Open MPI v5.0.12"}}
    for other in (
        library_results("mpich", {"other": {1024: 500}}),
        library_results("openmpi", {"copies": {1024: 5}}, transport="staged"),
        replace(elsewhere, runs=tuple(replace(run, machine="8 nodes") for run in elsewhere.runs)),
        replace(newer, runs=tuple(replace(run, provenance=version) for run in newer.runs)),
    ):
        (call,) = verdicts(joined(other, results), [rule("ring")])
        assert (call.verdict, call.seconds_without) == (HONOURED, pytest.approx(1e-4))
    assert verdicts(measured(TREE, RING, "mpich"), [rule("ring")], "openmpi") == []


SITE = {"OMPI_MCA_coll_hcoll_enable": "0", "UCC_LOG_LEVEL": "info"}


@pytest.mark.parametrize(
    ("plain", "with_table", "is_one"),
    [
        (SITE, SITE, True),
        ({}, SITE, False),
        (SITE, {}, False),
        ({FILE: "/tables/other"}, {}, False),
        ({"OMPI_MCA_coll_tuned_allreduce_algorithm": "4"}, {}, False),
        ({"UCX_TLS": "tcp"}, {}, False),
        ({"UCX_TLS": "tcp"}, {"UCX_TLS": "tcp"}, True),
        ({"OMPI_MCA_coll": "^hcoll"}, {}, False),
        ({}, {"OMPI_MCA_coll_han_priority": "0"}, True),
        ({"OMPI_MCA_coll_han_priority": "0"}, {}, False),
    ],
)
def test_the_variables_that_decide_are_the_same_without_the_table_but_for_its_own(
    plain, with_table, is_one
):
    environments = {"default": plain, "table": {FILE: str(TABLE), **with_table}}
    assert len(verified(TREE, RING, [rule("ring")], environments=environments)) == is_one


def test_of_several_runs_without_the_table_the_one_with_most_of_its_variables_counts():
    han = {"OMPI_MCA_coll_han_priority": "0"}
    results = measured(TREE, RING, environments={"table": {FILE: str(TABLE), **han}})
    traffic = json.dumps({"": TREE, **FORCED})
    flat = library_results(
        "openmpi", {"flat": {1024: 70}}, environments={"flat": han}, tcp_traffic=traffic
    )
    for several in ((results, flat), (flat, results)):
        (call,) = verdicts(joined(*several), [rule("ring")])
        assert call.seconds_without == pytest.approx(7e-5)


@pytest.mark.parametrize(
    ("library", "collective", "call", "measure", "size"),
    [
        ("mpich", "all_to_all", "alltoall", "avg_msg_size", 128),
        ("mpich", "all_to_all", "alltoall", "total_msg_size", 1536),
        ("mpich", "all_reduce", "allreduce", "total_msg_size", 12 * 1536),
        ("mpich", "all_reduce", "allreduce", "count", 384),
        ("mpich", "all_gather", "allgather", "count", 32),
        ("mpich", "gather", "gather", "total_msg_size", 384),
        ("openmpi", "all_reduce", "allreduce", "", 1536),
        ("openmpi", "all_to_all_v", "alltoallv", "", 0),
    ],
)
def test_the_size_of_a_rule_is_compared_with_what_the_library_measures(
    library, collective, call, measure, size
):
    about = {"collective": call, "algorithm": "ring", "measure": measure}
    for span, is_of in (((size, size), True), ((0, size - 1), False), ((size + 1, 1 << 40), False)):
        rules = [TuningRule(**about, bytes=span, line=7)]
        (found,) = verified(
            TREE, RING, rules, library, size=1536, ranks=12, nodes=12, collective=collective
        )
        assert found.line == (7 if is_of else 0)


def test_thresholds_of_mpich_in_a_table_of_ours_name_what_mpich_runs():
    table = read_mpich_json(write_mpich_json([]))
    (call,) = verified(
        TREE, RING, table.rules, "mpich", size=1536, ranks=12, nodes=12, collective="all_to_all"
    )
    assert call.rule == "brucks"  # blocks of 128 bytes


def test_fewer_elements_than_the_largest_power_of_two_and_one_node_of_several_ranks_are_conditions_that_hold():
    for conditions, changes in (
        (("count<pow2",), {"size": 12}),
        (("not count<pow2",), {"size": 16}),
        (("comm_hierarchy=parent",), {"nodes": 1, "ranks_per_node": 4}),
        (("comm_hierarchy=flat",), {}),
    ):
        (call,) = verified(TREE, RING, [rule("ring", conditions=conditions)], **changes)
        assert call.verdict == HONOURED, conditions


def test_calls_that_differ_in_more_than_their_size_are_told_apart():
    both = joined(measured(TREE, RING), measured(TREE, TREE, dtype="float64", in_place=True))
    calls = verdicts(both, [rule("ring")])
    assert [(call.verdict, call.details) for call in calls] == [
        (HONOURED, "float32, out of place"),
        (IGNORED, "float64, in place"),
    ]


@pytest.mark.parametrize(
    ("times", "half", "gain"),
    [
        ((100, 60), 0.02, "1.67x"),
        ((100, 97), 0.001, "1.03x (noise)"),
        ((100, 60), 0.4, "1.67x (noise)"),
        ((60, 100), 0.02, "0.60x"),
    ],
)
def test_a_gain_counts_beyond_the_intervals_and_beyond_what_launches_differ_by(times, half, gain):
    for known in (True, False):
        about = {"half": half} if known else {"ci_low_s": None}
        results = library_results(
            "openmpi",
            {"default": {1024: times[0]}, "table": {1024: times[1]}},
            environments={"table": {FILE: str(TABLE)}},
            **about,
        )
        shown = gain if known else f"{gain.split()[0]} (no interval)"
        assert row_of(results, [rule("ring")]).endswith(f"  {shown}")


def row_of(results, rules, library="openmpi"):
    """Return the printed row of the one call of results."""
    lines = list(verified_lines(verdicts(results, rules, library), library))
    (row,) = [line for line in lines if line.lstrip().startswith("1 KiB")]
    return row


def test_a_gain_has_its_factor_and_whether_it_is_noise_for_programs():
    for seconds, half, within_noise in (
        (60, 0.02, False),
        (97, 0.001, True),
        (60, 0.4, True),
        (160, 0.02, False),
        (160, 0.4, True),
    ):
        results = library_results(
            "openmpi",
            {"default": {1024: 100}, "table": {1024: seconds}},
            environments={"table": {FILE: str(TABLE)}},
            half=half,
        )
        (call,) = verdicts(results, [rule("ring")])
        assert call.gain.factor == pytest.approx(100 / seconds)
        assert call.gain.within_noise is within_noise
    (unchanged,) = verified(TREE, TREE, [rule("ring")])
    assert unchanged.gain is None


def test_a_call_that_does_the_same_without_the_table_has_no_gain():
    for results, rules in (
        (measured(TREE, TREE), []),
        (measured(TREE, TREE), [rule("ring")]),
        (measured(RING, RING), [rule("ring")]),
        (measured(None, None), []),
    ):
        assert row_of(results, rules).endswith("60 us")
    assert row_of(measured(TREE, RING), [rule("ring")]).endswith("1.67x")


def test_a_call_without_a_rule_that_does_something_else_has_a_gain():
    (call,) = verified(TREE, RING, [])
    assert (call.rule, call.verdict) == (None, OVERRULED)
    assert call.gain.factor == pytest.approx(100 / 60)


def test_thresholds_of_mpich_that_change_nothing_are_left_to_the_library():
    table = read_mpich_json(write_mpich_json([]))
    sent = TREE, TREE
    traffic = {"default": {"": TREE, **FORCED}, "table": {}}
    for verdict, about in (
        (DEFAULT, {}),
        (NOT_SHOWN, {"tcp_traffic": lambda variant, _: json.dumps(traffic[variant])}),
    ):
        results = measured(*sent, "mpich", **about)
        (call,) = verdicts(results, table.rules, "mpich")
        assert (call.rule, call.verdict) == (None, verdict)
        assert CHANGES_NOTHING in verified_lines([call], "mpich")
    ours = TuningRule(collective="allreduce", algorithm="ring", ranks=(4, 4))
    changed = read_mpich_json(write_mpich_json([ours]))
    (call,) = verdicts(measured(TREE, RING, "mpich"), changed.rules, "mpich")
    assert (call.rule, call.verdict) == ("ring", HONOURED)


def test_a_call_below_the_first_size_of_all_rules_is_left_to_the_library():
    (call,) = verified(TREE, TREE, [rule("ring", bytes=(1 << 17, UNLIMITED))])
    assert (call.rule, call.verdict) == (None, DEFAULT)


def test_calls_that_show_nothing_say_with_which_variables_and_ranks_they_do():
    forced_to_the_same = dict.fromkeys((*FORCED, "k_ring"), RING)
    hidden = verified(TREE, None, [rule("ring")])
    alike = verified(RING, RING, [rule("ring")], forced=forced_to_the_same, ranks=2, nodes=2)
    for library, variables in OVER_TCP.items():
        assert variables in "\n".join(verified_lines(hidden, library))
        text = "\n".join(verified_lines(alike, library))
        assert variables not in text
        assert f"{LEAST_RANKS} ranks" in text
        assert "any of 4" in text
