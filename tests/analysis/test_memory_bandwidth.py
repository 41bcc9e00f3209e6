"""The limit of memory: which rows have one, and what it is of a rate of copies."""

from dataclasses import replace

import pytest
from row_examples import make_row

from hpccoll.analysis.limits import MEMORY, limit_of, limit_share
from hpccoll.analysis.memory_bandwidth import UNKNOWN_RATES, CopyRates
from hpccoll.analysis.series_points import SeriesPoint
from hpccoll.analysis.wire_bandwidth import Wire
from hpccoll.store.schema import COPY_RATES as KEY

KIB, MIB = 1 << 10, 1 << 20
RECORDED = {
    "ranks": 2,
    "sizes": [
        {"bytes": 64 * KIB, "Bps": 80e9},
        {"bytes": 1 * MIB, "Bps": 80e9},
        {"bytes": 4 * MIB, "Bps": 20e9},
        {"bytes": 64 * MIB, "Bps": 20e9},
    ],
}


@pytest.fixture
def memory(make_run):
    return CopyRates.of(make_run(provenance={KEY: RECORDED}))


@pytest.fixture
def share(memory):
    """Return the share of the limit of memory that a row reaches."""

    def share(row):
        return limit_share(SeriesPoint(row, "ring", "a machine", (), Wire(), memory), MEMORY)

    return share


def test_a_run_without_rates_has_no_limit(make_run):
    assert CopyRates.of(make_run()) == CopyRates.of(None) == UNKNOWN_RATES
    assert UNKNOWN_RATES.rate(MIB) is None


@pytest.mark.parametrize(
    "damaged", [3, {"ranks": 2}, {"ranks": 2, "sizes": [{"bytes": 0, "Bps": 1e9}]}]
)
def test_damaged_rates_are_unknown(make_run, damaged):
    assert CopyRates.of(make_run(provenance={KEY: damaged})) == UNKNOWN_RATES


def test_the_rate_is_logarithmic_between_sizes_and_constant_beyond_those_that_caches_hold(memory):
    rates = [
        memory.rate(nbytes)
        for nbytes in (64 * KIB - 1, 64 * KIB, 2 * MIB, 4 * MIB, 64 * MIB, 256 * MIB)
    ]
    assert rates == [None, *(pytest.approx(rate) for rate in (80e9, 40e9, 20e9, 20e9, 20e9))]


def test_there_is_no_limit_beyond_sizes_that_memory_cut_because_caches_may_have_held_them(memory):
    cut = CopyRates(memory.ranks, memory.sizes[:-1], memory.rates[:-1])
    assert [cut.rate(nbytes) for nbytes in (4 * MIB, 4 * MIB + 1)] == [pytest.approx(20e9), None]
    point = SeriesPoint(make_row(nbytes=16 * MIB), "ring", "a machine", (), Wire(), cut)
    assert limit_share(point, MEMORY) is None


def test_an_all_reduce_of_two_ranks_moves_five_times_its_size_from_buffers_that_hold_it_twice(
    share,
):
    row = make_row(nbytes=MIB, seconds=1e-3)  # two buffers of 1 MiB: 40 GB/s
    assert share(row) == pytest.approx(5 * MIB / 40e9 / 1e-3)
    assert share(replace(row, in_place=True)) == pytest.approx(5 * MIB / 80e9 / 1e-3)  # one buffer


def test_the_time_at_the_limit_is_that_of_its_bytes_at_the_rate_of_a_copy(memory):
    point = SeriesPoint(
        make_row(nbytes=16 * MIB, seconds=1.0), "ring", "a machine", (), Wire(), memory
    )
    assert limit_of(point).seconds == pytest.approx(5 * 16 * MIB / 20e9)


def test_what_caches_save_is_more_than_all_and_not_hidden(share):
    assert share(make_row(nbytes=16 * MIB, seconds=0.5 * 5 * 16 * MIB / 20e9)) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": 4},  # others copied while the rate was measured
        {"nodes": 2, "ranks_per_node": 1},
        {"oversubscribed": True},
        {"device": "cuda"},
        {"floor": True},
        {"bytes": 16 * KIB},
        {"collective": "send_recv"},  # one rank moves data at a time
        {"collective": "all_to_all_v"},
        {"collective": "step"},
        {"busbw_Bps": None},
    ],
)
def test_a_row_has_no_limit_unless_all_ranks_that_copied_move_its_data_in_memory(share, changes):
    assert share(replace(make_row(nbytes=MIB), **changes)) is None
