"""What other algorithms would save in a counted program."""

from types import SimpleNamespace

import pytest
from counted_examples import CountedRankExample, write_ranks
from row_examples import make_row

from hpccoll.analysis.counted_gain import (
    gain_without_measuring,
    program_gain,
    promising_variants,
)
from hpccoll.analysis.counted_shares import counted_shares
from hpccoll.store.schema import HOST_LOAD
from hpccoll.sweep.counted_launch import join_rank_files


def measured(seconds, algorithm=None, **changes):
    """A row of the default, or of an algorithm of MPICH, at 8 bytes on 4 ranks of 2 nodes."""
    variant = f"mpich-{algorithm}" if algorithm else "default"
    executed = algorithm or "unknown"
    fields = {
        "dtype": "float64",
        "variant": variant,
        "requested": algorithm,
        "executed": executed,
        "nodes": 2,
        "oversubscribed": False,
    }
    call = {"ranks": 4, "nbytes": 8, "seconds": seconds, "half_interval": 0.01}
    return make_row("native", **(call | fields | changes))


def gain_of(shares, *rows, version="MPICH 5.0.2", **provenance):
    run = SimpleNamespace(provenance={"mpi": {"version": version}, **provenance})
    return program_gain(shares, SimpleNamespace(rows=rows, runs=[run]))


@pytest.fixture
def shares(tmp_path):
    """1,000 all-reduces of 1 ms, a tenth of the run of 10 s."""
    return counted_shares(join_rank_files(write_ranks(tmp_path)))


def test_a_program_gains_the_ratio_of_the_best_to_the_default(shares):
    gain = gain_of(shares, measured(2e-3), measured(1e-3, "ring"), measured(1.5e-3, "tree"))
    (call,) = gain.gains
    assert (call.best, call.gain_s) == ("ring", pytest.approx(0.5))
    low, high = gain.interval_s
    assert 0.47 < low < 0.5 < high < 0.53
    assert gain.is_worth_it


def test_a_gain_within_the_noise_is_not_clear(shares):
    noisy = measured(0.99e-3, "ring", half_interval=0.2)
    gain = gain_of(shares, measured(1e-3), noisy)
    assert (gain.gains[0].best, gain.interval_s[0], gain.is_worth_it) == ("ring", 0, True)
    assert not gain.is_clear
    assert gain.findings[0].remedy
    assert gain_of(shares, measured(1e-3), measured(8e-4, "ring")).is_clear


def launched(algorithm, *seconds):
    """The rows of an algorithm, of a launch each."""
    return [measured(each_s, algorithm) for each_s in seconds]


def test_a_choice_is_clearly_faster_only_if_all_its_launches_are(shares):
    slow_default = launched(None, 90e-6, 27e-6, 28e-6)
    gain = gain_of(shares, *slow_default, *launched("ring", 26e-6, 25e-6, 24e-6))
    (call,) = gain.gains
    assert (call.launches, call.default_s) == (3, 28e-6)
    assert gain.is_clear
    overlapping = gain_of(shares, *slow_default, *launched("ring", 38e-6, 25e-6, 24e-6))
    assert not overlapping.is_clear


def test_what_slows_the_machine_for_some_launches_is_no_gain(shares):
    default = launched(None, 5.63e-3, 2.07e-3, 17.9e-3)
    gain = gain_of(shares, *default, *launched("recexch", 2.36e-3, 2.32e-3, 20e-3))
    (call,) = gain.gains
    assert (call.best, call.gain_s) == ("default", 0)
    gain = gain_of(shares, *default, *launched("ring", 5.63e-3, 1.86e-3, 16.11e-3))
    assert gain.gains[0].gain_s == pytest.approx(0.1)
    assert not gain.is_clear
    assert "best" not in [finding.kind for finding in gain.findings]


def test_ranks_that_share_cores_are_named_as_a_reason_for_noise(shares):
    alone = gain_of(shares, measured(1e-3), measured(5e-4, "ring"))
    sharing = gain_of(
        shares,
        measured(1e-3, oversubscribed=True),
        measured(5e-4, "ring", oversubscribed=True),
    )
    kinds = [[finding.kind for finding in gain.findings] for gain in (alone, sharing)]
    assert ["oversubscribed" in names for names in kinds] == [False, True]


def test_launches_of_one_choice_that_differ_are_named(shares):
    alike = gain_of(shares, *launched(None, 1e-3, 1.1e-3), *launched("ring", 5e-4, 5e-4))
    differing = gain_of(shares, *launched(None, 3e-3, 1e-3), *launched("ring", 5e-4, 5e-4))
    kinds = [[finding.kind for finding in gain.findings] for gain in (alike, differing)]
    assert ["launches differ" in names for names in kinds] == [False, True]
    (call,) = differing.gains
    assert call.spread == pytest.approx(3)


def test_a_choice_with_fewer_launches_than_the_default_is_not_the_best(shares):
    twice = [*launched(None, 1e-3, 1e-3), *launched("ring", 8e-4, 8e-4)]
    gain = gain_of(shares, *twice, measured(1e-4, "lucky"))
    assert gain.gains[0].best == "ring"


def test_the_fastest_variants_that_beat_the_default_are_promising(shares):
    rows = [measured(1e-3), measured(2e-3, "slow")]
    rows += [
        measured(seconds, name)
        for name, seconds in zip("abcd", (4e-4, 1e-4, 3e-4, 2e-4), strict=True)
    ]
    results = SimpleNamespace(rows=rows)
    assert promising_variants(shares, results, "all_reduce") == ("mpich-b", "mpich-d", "mpich-c")
    assert promising_variants(shares, results, "broadcast") == ()
    again = SimpleNamespace(rows=[*rows, measured(1e-3), measured(2e-4, "c")])
    assert promising_variants(shares, again, "all_reduce") == ("mpich-c",)


def test_a_gain_that_was_measured_on_a_busy_machine_says_so(shares):
    load = {HOST_LOAD: [{"host": "n1", "other_cores": 1.3, "stolen": 0, "busiest": []}]}
    rows = [measured(1e-3), measured(5e-4, "ring")]
    kinds = [finding.kind for finding in gain_of(shares, *rows, **load).findings]
    assert "disturbed" in kinds
    assert "disturbed" not in [finding.kind for finding in gain_of(shares, *rows).findings]


def test_calls_of_a_program_that_a_script_launches_twice_gain_twice(tmp_path):
    begin = CountedRankExample().began_unix_ns
    write_ranks(tmp_path)
    write_ranks(tmp_path, launch="2", began_unix_ns=begin + 20_000_000_000)
    twice = counted_shares(join_rank_files(tmp_path))
    gain = gain_of(twice, measured(1e-3), measured(5e-4, "ring"))
    assert (gain.gain_s, twice.run_s) == pytest.approx((1.0, 20))


def test_what_is_not_transfer_in_the_program_cannot_be_gained(shares):
    # calls take 1 ms in the program and 0.1 ms where ranks begin together: the rest is waiting
    gain = gain_of(shares, measured(1e-4), measured(5e-5, "ring"))
    assert (gain.gain_s, gain.waiting_s) == pytest.approx((0.05, 0.9))
    assert not gain.is_worth_it
    assert "waiting" in {finding.kind for finding in gain.findings}


def test_calls_that_take_no_longer_than_measured_do_not_wait(shares):
    gain = gain_of(shares, measured(2e-3), measured(1e-3, "ring"))
    assert gain.waiting_s == 0
    assert "waiting" not in {finding.kind for finding in gain.findings}


def test_the_default_may_be_the_best(shares):
    gain = gain_of(shares, measured(1e-3), measured(2e-3, "ring"))
    assert (gain.gain_s, gain.at_most) == (0, 0)
    assert gain.findings[0].kind == "leave it"


def test_little_to_gain_by_a_faster_algorithm_is_not_called_nothing(shares):
    faster = gain_of(shares, measured(4e-6), measured(2e-6, "ring"))
    slower = gain_of(shares, measured(1e-3), measured(2e-3, "ring"))
    texts = [gain.findings[0].text for gain in (faster, slower)]
    assert ["no algorithm is faster" in text for text in texts] == [False, True]
    assert ["less than 0.1 %" in text for text in texts] == [True, False]


def test_a_program_is_not_left_as_it_is_by_calls_that_nobody_measured(tmp_path):
    broadcasts = "Bcast\tblocking\t0\tMPI_DOUBLE\tnone\t0\t1000\t8000\t5000000000\t0\t8\t8"
    calls = [*CountedRankExample().calls, broadcasts]
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, calls=calls)))
    gain = gain_of(shares, measured(1e-3), measured(2e-3, "ring"))
    assert gain.unmeasured == pytest.approx(0.5)
    assert [finding.kind for finding in gain.findings] == ["leave it", "not measured"]
    assert "leave it" not in gain.findings[0].text
    assert "calls that were measured" in gain.findings[0].text


def test_a_program_that_ended_at_once_has_a_gain_without_a_fault(tmp_path):
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, ran_s=0)))
    gain = gain_of(shares, measured(1e-3), measured(5e-4, "ring"))
    assert gain.findings[0].kind == "gain"


@pytest.mark.parametrize(
    "changes",
    [
        {"executed": "tree"},
        {"status": "wrong"},
        {"nodes": 1},
        {"ranks": 8},
        {"requested_bytes": 16},
        {"dtype": "float32"},
        {"ci_low_s": None},
    ],
)
def test_rows_of_other_calls_or_of_algorithms_that_did_not_run_do_not_count(shares, changes):
    slower = measured(3e-3, "tree")
    gain = gain_of(shares, measured(2e-3), slower, measured(1e-3, "ring", **changes))
    assert (len(gain.gains), gain.gain_s) == (1, 0)


def test_the_default_alone_says_nothing_and_the_library_of_the_program_is_asked_for(shares):
    gain = gain_of(shares, measured(2e-3))
    assert (gain.gains, [finding.kind for finding in gain.findings]) == ([], ["nothing measured"])


def test_a_library_of_another_version_is_said(shares):
    rows = measured(2e-3), measured(1e-3, "ring")
    kinds = {finding.kind for finding in gain_of(shares, *rows, version="MPICH 4.3").findings}
    assert "other library" in kinds
    assert "other library" not in {finding.kind for finding in gain_of(shares, *rows).findings}


def test_known_waiting_cannot_be_gained(tmp_path):
    calls = ["Allreduce\tblocking\t0\tMPI_INT\tMPI_SUM\t0\t9\t36\t30000000\t2000000000\t4\t4"]
    shares = counted_shares(join_rank_files(write_ranks(tmp_path, barrier=1, calls=calls)))
    bound = gain_without_measuring(shares)
    assert (bound.at_most, bound.is_worth_it) == (pytest.approx(0.003), False)


def test_without_the_default_nothing_is_said_but_the_bound(shares):
    gain = gain_of(shares, measured(1e-3, "ring"))
    assert (gain.gains, gain.at_most) == ([], pytest.approx(0.1))
    assert gain_without_measuring(shares).at_most == pytest.approx(0.1)
