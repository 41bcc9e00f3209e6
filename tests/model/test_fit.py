"""What is fitted to a run is what its messages and folds took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_observations import MACHINE, SIZES, observation, observed

from hpccoll.model.fit import fit, fit_link
from hpccoll.schedule import Layout


@given(
    alpha=st.floats(1e-7, 1e-2), beta=st.floats(1e-12, 1e-6),
    sizes=st.lists(st.integers(1, 1 << 30), min_size=3, max_size=20, unique=True),
)  # fmt: skip
def test_times_on_a_line_are_fitted_by_that_line(alpha, beta, sizes):
    link = fit_link((n, alpha + n * beta) for n in sizes)
    for n in sizes:
        assert link.alpha_s + n * link.beta_s == pytest.approx(alpha + n * beta, rel=1e-4)
    assert (link.sizes, link.outside) == (len(sizes), {})


def test_sizes_that_a_bucket_lets_pass_do_not_bend_the_line_and_are_named():
    def seconds(n):
        return (5e-5 + 8e-9 * n) * (0.4 if n in (8192, 16384) else 1)

    link = fit_link((n, seconds(n)) for n in SIZES)
    assert (link.alpha_s, link.beta_s) == pytest.approx((5e-5, 8e-9))
    assert link.outside == pytest.approx({8192: 0.4, 16384: 0.4})


def test_where_most_sizes_are_off_none_is_left_out():
    times = [(n, (1e-5 + 1e-9 * n) * 3 ** (k % 3)) for k, n in enumerate(SIZES)]
    assert fit_link(times).outside == {}


def test_a_link_is_half_a_round_trip_of_two_ranks_that_far_apart():
    trips = observed("send_recv", "ping_pong", Layout.of(4, 2)) + observed("send_recv", "ping_pong", Layout.of(4, 4))
    machine = fit(trips)
    assert machine.links.keys() == {"node", "rack"}
    for tier, link in machine.links.items():
        assert (link.alpha_s, link.beta_s) == pytest.approx((MACHINE.links[tier].alpha_s, MACHINE.links[tier].beta_s))
    near = observed("send_recv", "ping_pong", Layout.of(4, 2), peer=1)
    assert fit(near).links.keys() == {"node"}


def test_the_librarys_ping_pong_counts_where_ours_was_not_measured_and_two_sizes_are_no_line():
    theirs = [observation("send_recv", "native", n, 2 * (1e-5 + 1e-9 * n)) for n in SIZES]
    assert fit(theirs).links["rack"].alpha_s == pytest.approx(1e-5)
    both = fit([*theirs, *observed("send_recv", "ping_pong")])
    assert both.links["rack"].alpha_s == pytest.approx(5e-5)
    assert fit(theirs[:2]).links == {}


def test_gamma_is_what_a_reduce_scatter_takes_longer_than_the_all_gather_of_a_ring():
    trips = observed("send_recv", "ping_pong")
    halves = observed("reduce_scatter", "ring") + observed("all_gather", "ring")
    machine = fit(trips + halves)
    assert machine.gamma_s == pytest.approx(3e-10)
    assert 0 < machine.folds < len(SIZES)  # those where bytes take longer than rounds
    alone = fit(trips + observed("reduce_scatter", "ring"))
    assert (alone.gamma_s, alone.folds) == (0, 0)


def test_gamma_is_never_below_nothing():
    slow = [
        observation("all_gather", "ring", one.nbytes, 2 * one.seconds) for one in observed("reduce_scatter", "ring")
    ]
    machine = fit(observed("send_recv", "ping_pong") + observed("reduce_scatter", "ring") + slow)
    assert machine.gamma_s == 0 < machine.folds
