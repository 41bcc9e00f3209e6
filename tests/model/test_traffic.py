"""The traffic of a schedule has its messages, in whichever way they come."""

from contextlib import suppress

import numpy as np
import pytest
from schedule_examples import ALGORITHMS, EXAMPLES, cases, places
from simulated_cases import equal_cut, first_case

from hpccoll.model import traffic
from hpccoll.model.traffic import (
    NotAlignedError,
    TooManyMessagesError,
    Traffic,
    kept_traffic,
    streamed_waves,
)
from hpccoll.schedule import Layout, count
from hpccoll.schedule.layout import TIERS


def contents(wave, cut):
    """Return the messages of a wave, in any order, and the ranks whose steps end with it."""
    columns = wave.source, wave.target, wave.nbytes(cut, 0), wave.reduces
    return sorted(zip(*(column.tolist() for column in columns), strict=True)), wave.ended.tolist()


def all_cases(name, p):
    if name in EXAMPLES:
        return [EXAMPLES[name].case(p)]
    collective, algorithm = ALGORITHMS[name]
    return list(cases(collective, algorithm, places(algorithm, p)))


SUBJECTS = sorted([*ALGORITHMS, *EXAMPLES])


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("p", [2, 5, 8])
def test_waves_of_a_stream_are_those_of_the_traffic(name, p):
    for case in all_cases(name, p):
        for schedule in case.slices:
            cut = equal_cut(case)
            with suppress(NotAlignedError):
                streamed = [contents(wave, cut) for wave in streamed_waves(schedule)]
                assert streamed == [contents(wave, cut) for wave in Traffic.of(schedule).waves()]


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("p", [1, 6, 8])
def test_it_has_the_messages_and_bytes_that_are_counted(name, p):
    for case in all_cases(name, p):
        cut, lanes = equal_cut(case, channels=2), [*map(Traffic.of, case.slices)]
        messages, sent, reduced = (np.zeros(case.layout.ranks, np.int64) for _ in range(3))
        for lane in range(cut.lanes):
            of_lane = lanes[lane % len(lanes)]
            nbytes = of_lane.nbytes(cut, lane)
            assert (of_lane.source != of_lane.target).all()
            np.add.at(messages, of_lane.source, nbytes > 0)
            np.add.at(sent, of_lane.source, nbytes)
            np.add.at(reduced, of_lane.target, nbytes * of_lane.reduces)
        counts, between = count(case.slices, cut), slice(TIERS.index("node"), None)
        assert messages.tolist() == counts.messages[:, between].sum(axis=1).tolist()
        assert sent.tolist() == counts.sent[:, between].sum(axis=1).tolist()
        assert reduced.tolist() == counts.reduced.tolist()


def test_large_schedules_are_not_kept(monkeypatch):
    (ring,) = first_case("all_reduce", "ring", Layout.of(7, 1)).slices
    messages = 2 * 6 * 7
    assert len(Traffic.of(ring, messages).source) == messages
    with pytest.raises(TooManyMessagesError):
        Traffic.of(ring, messages - 1)
    monkeypatch.setattr(traffic, "KEPT_MESSAGES", messages - 1)
    kept_traffic.cache_clear()
    assert kept_traffic(ring) is None
    kept_traffic.cache_clear()
