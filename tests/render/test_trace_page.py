"""The pictures of a recorded job."""

from hpccoll.render.trace_page import BLAMED, WAITING, waiting_chart
from hpccoll.traces.hangs import find_hangs
from hpccoll.traces.read_job import read_job
from tests.traces.recorded_files import Call, Ring, dump, write_dumps

TENSOR, PIPELINE = Ring("0", (0, 1, 2), "tp"), Ring("9", (0, 3), "pp")


def waits(tmp_path, calls):
    groups = {
        rank: [group for group in (TENSOR, PIPELINE) if rank in group.ranks] for rank in calls
    }
    dumps = {
        rank: dump(rank, [*map(Call, of)], (), groups=groups[rank]) for rank, of in calls.items()
    }
    (job,) = read_job([write_dumps(tmp_path, dumps)]).jobs
    return waiting_chart(find_hangs(job))


def test_each_rank_that_waits_has_a_mark_at_the_one_that_it_waits_for(tmp_path):
    """Rank 2 did not join what ranks 0 and 1 wait in, and rank 3 waits for rank 0."""
    chart = waits(tmp_path, {0: [TENSOR], 1: [TENSOR], 2: [], 3: [PIPELINE]})
    marks = {
        (each["rank"], each["awaited"], each["part"])
        for each in next(iter(chart["datasets"].values()))
    }
    assert marks == {(0, 2, BLAMED), (1, 2, BLAMED), (3, 0, WAITING)}


def test_one_or_two_waits_are_no_picture(tmp_path):
    assert waits(tmp_path, {0: [TENSOR], 1: [], 2: [TENSOR], 3: []}) is None
