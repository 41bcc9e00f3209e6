"""Messages between two ranks: a heat map of all pairs, and lines of the median pair."""

import pytest
from finding_values import only_values, values_of_kind

from hpccoll.analysis.chart_groups import chart_groups
from hpccoll.analysis.rank_pairs import median_pairs
from hpccoll.analysis.recommendations import recommend
from hpccoll.render.charts import FIGURES

BY_NAME = {figure.name: figure for figure in FIGURES}
US = {(0, 1): 1, (2, 3): 2, (0, 2): 5, (0, 3): 6, (1, 2): 7, (1, 3): 9}
"""Microseconds at the smallest size: ranks 0 and 1 are on one node, 2 and 3 on another."""


@pytest.fixture(scope="module")
def make_pair(make_row):
    """A row of a ping-pong between two ranks of four; anything else may be changed."""

    def make(first, second, algorithm="ping_pong", **changes):
        usual = {"collective": "send_recv", "op": None, "ranks": 4, "root": first, "params": {"peer": second}}
        return make_row(algorithm, **(usual | changes))

    return make


@pytest.fixture(scope="module")
def pairs(make_pair, make_run, of_rows):
    """All pairs of four ranks on two nodes, at two sizes, of ours and of the library that takes half as long again."""
    shape = {"nodes": 2, "ranks_per_node": 2}
    rows = [
        make_pair(
            *two, name, nbytes=nbytes, seconds=us * slower * scale * 1e-6, busbw_Bps=2 * nbytes / us * 1e6, **shape
        )
        for two, us in US.items()
        for name, slower in (("ping_pong", 1), ("native", 1.5))
        for nbytes, scale in ((8, 1), (1 << 20, 100))
    ]
    return of_rows(*rows, runs=(make_run(provenance={"hosts": ["alpha", "beta"]}),))


@pytest.fixture(scope="module")
def group(pairs):
    (found,) = chart_groups(pairs, recommend(pairs))
    return found


def drawn(group, name):
    specification = BY_NAME[name].specification(group)
    (data,) = specification["datasets"].values()
    return specification, data


def test_a_line_is_the_median_pair_with_the_range_of_all(group):
    _, data = drawn(group, "time")
    ours = {d["series"]: d for d in data if d["size"] == "8 B" and d["series"].startswith("ping_pong")}
    between = ours["ping_pong between nodes"]
    assert (between["value"], between["low"], between["high"]) == pytest.approx((6e-6, 5e-6, 9e-6))
    assert between["pair"] == "ranks 0 (alpha) and 3 (beta)"
    assert between["range"] == "5 us to 9 us"
    assert ours["ping_pong on one node"]["value"] == pytest.approx(1e-6)
    assert BY_NAME["time"].group_caption(group) == BY_NAME["time"].pairs_caption


def test_the_finding_names_the_fastest_and_the_slowest_pair(group):
    found = {(values["series"], values["nbytes"]): values for values in values_of_kind(group, "pair_extremes")}
    assert found["ping_pong between nodes", 8] == {
        "series": "ping_pong between nodes", "nbytes": 8, "pairs": 4,
        "median": pytest.approx(6e-6), "ratio": pytest.approx(1.8),
        "fastest": "ranks 0 (alpha) and 2 (beta)", "fastest_value": pytest.approx(5e-6),
        "slowest": "ranks 1 (alpha) and 3 (beta)", "slowest_value": pytest.approx(9e-6),
        "clear": True,
    }  # fmt: skip
    assert only_values(group, "highest_busbw")["pair"] == "ranks 0 (alpha) and 1 (alpha)"


def test_pairs_within_the_noise_have_no_slowest_one_and_neither_has_one_pair(make_pair, of_rows):
    wide = {"ci_low_s": 4e-6, "ci_high_s": 8e-6, "nbytes": 8, "nodes": 2, "ranks_per_node": 2}
    rows = [make_pair(0, second, seconds=us * 1e-6, **wide) for second, us in ((2, 5), (3, 6))]
    ((both,), (one,)) = (chart_groups(of_rows(*some)) for some in (rows, rows[:1]))
    assert only_values(both, "pair_extremes")["clear"] is False
    assert values_of_kind(one, "pair_extremes") == []


def test_of_a_repeated_pair_the_last_measurement_counts(make_pair, make_run, of_rows):
    again = make_run(run_id="run-2", created="2026-02-01T00:00:00Z")
    rows = make_pair(0, 1), make_pair(0, 1, seconds=3e-5, run_id="run-2"), make_pair(0, 2, seconds=5e-5)
    (group,) = chart_groups(of_rows(*rows, runs=(make_run(), again)))
    (middle,) = median_pairs(group.usable)
    assert middle.range == (3e-5, 5e-5)


def test_pairs_of_which_only_the_floor_was_measured_have_no_map_and_no_extremes(make_pair, of_rows):
    (group,) = chart_groups(of_rows(*(make_pair(0, peer, "null") for peer in (1, 2))))
    charts = {name for name, figure in BY_NAME.items() if figure.specification(group)}
    assert charts == {"time"}
    assert values_of_kind(group, "pair_extremes") == []
