"""Mappings of a case, on real ranks that simulate several nodes and racks."""

from pathlib import Path

import pytest
import raw_examples
from catalogue_cases import case

from hpccoll.cases.case import Effort
from hpccoll.cases.catalogue import NATIVE
from hpccoll.schedule import Layout
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


def test_results_are_right_with_every_mapping_and_times_keep_the_rank_order_of_the_launcher(
    measured,
):
    for outcome in measured.values():
        assert (outcome.status, outcome.wrong, outcome.times.start_ns.shape) == ("ok", 0, (2, 9))
        assert (
            outcome.times.max_ns
            == (outcome.times.end_ns - outcome.times.start_ns)[:, :8].max(axis=1)
        ).all()


def test_predicted_bytes_follow_the_mapping(measured):
    def between_racks(algorithm):
        return [
            measured["all_reduce", algorithm, mapping].rack_bytes_predicted for mapping in MAPPINGS
        ]

    launched, block, cyclic = between_racks("ring")
    assert (launched, cyclic) == (block, 4 * block)
    assert len({*between_racks("hierarchical")}) == 1
    assert between_racks(NATIVE) == [None] * 3
    # A ring of 8 ranks sends 2 * 7/8 of the vector on each edge; two edges are between racks if
    # ranks are in blocks.
    assert block == 2 * 2 * 7 * measured["all_reduce", "ring", "block"].bytes // 8
