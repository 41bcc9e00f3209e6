"""Messages between two ranks: a heat map of all pairs, and lines of the median pair."""

import pytest
from finding_values import assert_findings
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.rank_pairs import foremost_pair_findings
from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.row_labels import tier_label
from hpccoll.render.answers import Answers, conclusion_lines
from hpccoll.render.charts import FIGURES
from hpccoll.store.call_key import rank_pair

BY_NAME = {figure.name: figure for figure in FIGURES}
US = {(0, 1): 1, (2, 3): 2, (0, 2): 5, (0, 3): 6, (1, 2): 7, (1, 3): 9}
"""Microseconds at the smallest size: ranks 0 and 1 are on one node, 2 and 3 on another."""


@pytest.fixture(scope="module")
def make_pair(make_row):
    """A row of a ping-pong between two ranks of four; anything else may be changed."""

    def make(first, second, algorithm="ping_pong", **changes):
        usual = {
            "collective": "send_recv",
            "op": None,
            "ranks": 4,
            "root": first,
            "params": {"peer": second},
        }
        return make_row(algorithm, **(usual | changes))

    return make


@pytest.fixture(scope="module")
def pairs(make_pair, make_run, of_rows):
    """All pairs of four ranks on two nodes, at two sizes, of ours and of the library that takes half as long again."""
    shape = {"nodes": 2, "ranks_per_node": 2}
    rows = [
        make_pair(
            *two,
            name,
            nbytes=nbytes,
            seconds=us * slower * scale * 1e-6,
            busbw_Bps=2 * nbytes / us * 1e6,
            **shape,
        )
        for two, us in US.items()
        for name, slower in (("ping_pong", 1), ("native", 1.5))
        for nbytes, scale in ((8, 1), (1 << 20, 100))
    ]
    return of_rows(*rows, runs=(make_run(provenance={"hosts": ["alpha", "beta"]}),))


def test_a_line_is_the_median_pair_with_the_range_of_all(pairs):
    (group,) = chart_groups(pairs, recommend(pairs))
    (data,) = BY_NAME["time"].specification(group)["datasets"].values()
    ours = {
        d["series"]: d for d in data if d["size"] == "8 B" and d["series"].startswith("ping_pong")
    }
    between = ours["ping_pong between nodes"]
    assert (between["value"], between["low"], between["high"]) == pytest.approx((6e-6, 5e-6, 9e-6))
    assert between["pair"] == "rank 0 on alpha and rank 3 on beta"
    assert between["range"] == "5 us to 9 us"
    assert ours["ping_pong on one node"]["value"] == pytest.approx(1e-6)
    assert BY_NAME["time"].group_caption(group) == BY_NAME["time"].pairs_caption


def test_each_rule_of_the_findings_on_pairs_shows_in_its_rows(pairs, make_pair, make_run, of_rows):
    wide = {"ci_low_s": 4e-6, "ci_high_s": 8e-6, "nbytes": 8, "nodes": 2, "ranks_per_node": 2}
    noisy = [make_pair(0, second, seconds=us * 1e-6, **wide) for second, us in ((2, 5), (3, 6))]
    again = make_run(run_id="run-2", created="2026-02-01T00:00:00Z")
    repeated = (
        make_pair(0, 1),
        make_pair(0, 1, seconds=3e-5, run_id="run-2"),
        make_pair(0, 2, seconds=5e-5),
    )
    kind = "pairs"
    assert_findings("pair_findings", {
        "the median and the slow pairs of each series": (f"{kind} highest_busbw", pairs),
        "pairs within the noise are not slow": (kind, of_rows(*noisy)),
        "one pair has no finding": (kind, of_rows(*noisy[:1])),
        "of a repeated pair the last measurement counts": (kind, of_rows(*repeated, runs=(make_run(), again))),
        "nor have floors": (kind, of_rows(*(make_pair(0, peer, "null") for peer in (1, 2)))),
    })  # fmt: skip


def test_many_pairs_have_one_answer_and_no_advice_for_each(pairs, make_pair, of_rows):
    assert recommend(pairs) == ()
    found = foremost_pair_findings(pairs)["send_recv"]
    assert [each.values["series"] for each in found] == [
        "native between nodes",
        "native on one node",
    ]
    lines = conclusion_lines(pairs, Answers(()))
    assert [each.text in line for each, line in zip(found, lines, strict=True)] == [True, True]
    of_one = of_rows(make_pair(0, 1), make_pair(0, 1, "native"), make_pair(0, 1, nbytes=4096))
    assert [each.setting.collective for each in recommend(of_one)] == ["send_recv"]
    assert foremost_pair_findings(of_one) == {}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from([*US]), st.sampled_from(["ping_pong", "native"])),
        st.sampled_from([8, 4096]),
        min_size=1,
    )
)
@example({((0, 1), "native"): 8, ((0, 2), "native"): 8})
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pairs_have_an_answer_of_their_own_unless_their_tier_has_a_finding(
    make_pair, of_rows, measured
):
    shape = {"nodes": 2, "ranks_per_node": 2}
    several = [
        make_pair(*two, name, nbytes=nbytes, **shape) for (two, name), nbytes in measured.items()
    ]
    rows = of_rows(*several)
    answered = {each.values["tier"] for each in foremost_pair_findings(rows).get("send_recv", ())}
    alone = {rank_pair(row) for row in several if tier_label(row) not in answered}
    assert sorted(
        tuple(dict(each.setting.arguments)[of] for of in ("root", "peer"))
        for each in recommend(rows)
    ) == sorted(alone)


def test_pairs_of_which_only_the_floor_was_measured_have_no_map(make_pair, of_rows):
    (group,) = chart_groups(of_rows(*(make_pair(0, peer, "null") for peer in (1, 2))))
    assert {name for name, figure in BY_NAME.items() if figure.specification(group)} == {"time"}
