"""Mappings of a case, on real ranks that simulate several nodes and racks."""

from pathlib import Path

import pytest
import raw_examples
from catalogue_cases import case

from hpccoll.cases.case import Effort
from hpccoll.cases.catalogue import NATIVE
from hpccoll.schedule import Cut, Layout, all_reduce, count, numbering
from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results

RACKED = Path(__file__).with_name("racked_ranks.py")
PLACES = Layout((0, 0, 1, 1, 2, 2, 3, 3, 4), (0, 0, 0, 0, 1, 1, 1, 1, 2), aggregators=1)
MAPPINGS = (None, "block", "cyclic")
pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def measured(mpiexec, tmp_path_factory):
    """Results by collective, algorithm and mapping, on eight ranks in two racks and an aggregator in another."""
    asked = [
        case(name, algorithm, mapping=mapping, root=3 if name == "gather" else None)
        for name, algorithm in (
            ("all_reduce", "ring"), ("all_reduce", "hierarchical"), ("all_reduce", "sharp_emulated"),
            ("all_reduce", NATIVE), ("gather", "binomial"),
        )
        for mapping in MAPPINGS
    ]  # fmt: skip
    here = tmp_path_factory.mktemp("racked")
    effort = Effort(warmup=0, min_iterations=2, max_iterations=2)
    job = raw_examples.job(*asked, ranks=8, nodes=4, aggregators=1, effort=effort)
    (here / "job.json").write_text(job.to_json())
    ended = mpiexec(9, RACKED, "--job", here / "job.json", "--out", here / "F.h5")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ((attempt, outcomes),) = hdf5.read_raw_file(here / "F.h5").attempts
    assert attempt.layout == PLACES
    assert not read_results([here]).missing
    return {(o.case.collective, o.case.algorithm, o.case.mapping): o for o in outcomes}


def test_results_are_right_with_every_mapping_and_times_keep_the_rank_order_of_the_launcher(measured):
    for outcome in measured.values():
        assert (outcome.status, outcome.wrong, outcome.times.start_ns.shape) == ("ok", 0, (2, 9))
        assert (outcome.times.max_ns == (outcome.times.end_ns - outcome.times.start_ns)[:, :8].max(axis=1)).all()


def test_predicted_bytes_follow_the_mapping(measured):
    for mapping in ("block", "cyclic"):
        layout = PLACES.subset(numbering(PLACES, mapping))
        outcome = measured["all_reduce", "ring", mapping]
        slices = all_reduce.algorithm("ring").slices(layout)
        cut = Cut(all_reduce.call(8), 1024, slices[0].units, outcome.params["channels"], 4)
        counted = count(slices, cut)
        assert outcome.wire_bytes_predicted == counted.wire_bytes
        assert outcome.rack_bytes_predicted == counted.sent[:, 3].sum()
    launched, block, cyclic = (measured["all_reduce", "ring", mapping].rack_bytes_predicted for mapping in MAPPINGS)
    assert (launched, cyclic) == (block, 4 * block)
    assert len({measured["all_reduce", "hierarchical", mapping].rack_bytes_predicted for mapping in MAPPINGS}) == 1
    assert measured["all_reduce", NATIVE, "cyclic"].rack_bytes_predicted is None
