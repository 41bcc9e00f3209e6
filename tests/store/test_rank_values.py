"""Values of ranks in arrays behave as the tuples that other code gives."""

import numpy as np
import raw_examples

from hpccoll.store import hdf5
from hpccoll.store.rank_values import RankValues


def test_values_equal_a_sequence_with_none_where_they_are_unknown():
    values = RankValues(np.array([3, -1, 5]), np.array([True, False, True]))
    assert values == (3, None, 5)
    listed = (3, None, 5)
    assert listed == values
    assert values != (3, 4, 5)
    assert (values[0], values[1], values[1:]) == (3, None, (None, 5))
    assert type(values[0]) is int
    assert values


def test_as_numbers_unknown_values_are_nan():
    values = RankValues(np.array([2.0, 1.0]), np.array([False, True]))
    np.testing.assert_equal(np.array(values, np.float64), [np.nan, 1.0])


def test_values_of_gpus_are_read_from_a_file_as_they_were_written(tmp_path):
    known = raw_examples.outcome(gpu_power=(300.0, None), gpu_clock_events=(None, 8))
    hdf5.write_raw_file(raw_examples.raw(known), tmp_path / "F.h5")
    ((_, (outcome,)),) = hdf5.read_raw_file(tmp_path / "F.h5").attempts
    assert outcome.gpu_power == known.gpu_power
    assert outcome.gpu_clock_events == known.gpu_clock_events
    assert not outcome.gpu_temperature
    assert outcome.merge(known).gpu_power == (300.0, None)
