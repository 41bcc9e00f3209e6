"""What a library did of a tuning table, on examples of what ranks sent with it and without."""

import json
from pathlib import Path

import pytest
from library_results import library_results

from hpccoll.analysis.verified_calls import DEFAULT, HONOURED, IGNORED, NOT_SHOWN, OVERRULED, verify_table
from hpccoll.interop.tuning_tables.tuning_rule import TuningRule

TABLE = Path("/tables/t.rules")
RING, TREE, LINEAR = [[[1500, 20]] * 4, [[1000], [500, 500]] * 2, [[3000]] + [[1000]] * 3]
FORCED = {"ring": RING, "recursive_doubling": TREE, "basic_linear": LINEAR}


def verified(plain, with_table, rules, library="openmpi", **changes):
    """Return the verdicts of an all-reduce of 1 KiB where ranks sent this without a table and with it."""
    traffic = {"default": {"": plain, **FORCED}, "table": {"": with_table} if with_table else None}
    results = library_results(
        library, {"default": {1024: 100}, "table": {1024: 60}}, environments={"table": {"F": str(TABLE)}},
        tcp_traffic=lambda variant, _: traffic[variant] and json.dumps(traffic[variant]), **changes,
    )  # fmt: skip
    return verify_table(TABLE, rules, library, results)


def rule(algorithm, **more):
    return TuningRule(collective="allreduce", algorithm=algorithm, line=7, **more)


@pytest.mark.parametrize(
    ("with_table", "algorithm", "verdict"),
    [
        (RING, "ring", HONOURED), (TREE, "ring", IGNORED), (LINEAR, "ring", OVERRULED), (TREE, "ignore", DEFAULT),
        (RING, "ignore", OVERRULED), (None, "ring", NOT_SHOWN), (RING, "unknown to forcing", NOT_SHOWN),
        ([[1506, 18]] * 4, "ring", HONOURED),  # headers and barriers may differ a little between launches
    ],
)  # fmt: skip
def test_what_ranks_sent_tells_whether_a_rule_is_honoured_ignored_or_overruled(with_table, algorithm, verdict):
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
    (call,) = verified(TREE, RING, [*others, rule("ring", conditions=("comm_type=intra", "not count<pow2"))])
    assert (call.rule, call.verdict) == ("ring", HONOURED)
    (call,) = verified(TREE, RING, [rule("ring", conditions=("is_node_consecutive=yes",))])
    assert (call.rule, call.verdict) == ("ring", NOT_SHOWN)


def test_a_run_with_other_variables_that_decide_is_no_run_without_the_table():
    results = library_results(
        "openmpi", {"default": {1024: 100}, "table": {1024: 60}},
        environments={"table": {"F": str(TABLE)}, "default": {"OMPI_MCA_coll_tuned_allreduce_algorithm": "4"}},
    )  # fmt: skip
    assert verify_table(TABLE, [rule("ring")], "openmpi", results) == []
