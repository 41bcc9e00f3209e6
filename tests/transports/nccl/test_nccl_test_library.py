"""The logs of the test library of NCCL, which are read as NCCL's are."""

from pathlib import Path

import pytest

from hpccoll.evidence.log_set import read_log_files
from hpccoll.evidence.probe_result import ProbeResult

RANKS = Path(__file__).with_name("logged_ranks.py")
pytestmark = pytest.mark.mpi


def test_the_test_library_logs_what_it_does_until_it_is_silenced(mpiexec, nccl_library, tmp_path):
    ran = mpiexec(2, RANKS, nccl_library, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    record = ProbeResult.from_logs(tmp_path).record
    found = record.library, record.version, record.ranks, record.nodes, record.network
    assert found == ("nccl", "2.30.0", 2, 1, ("Socket",))
    ring = {(one.collective, one.bytes, one.algorithm, one.protocol, one.dtype) for one in record.collectives}
    assert ring == {
        ("all_reduce", 4096, "ring", "SIMPLE", "float32"), ("all_gather", 2048, "ring", "SIMPLE", "float32"),
    }  # fmt: skip
    logs = [*tmp_path.glob("nccl.*.log")]
    assert all("test library of hpccoll, in host memory" in log.read_text() for log in logs)
    assert sum("-> Algo RING" in log.read_text() for log in logs) == 1  # only rank 0 logs what it chose
    assert all(" Send: opCount " in log.read_text() for log in logs)
    assert len(read_log_files([tmp_path]).launches) == 1
    assert len([*tmp_path.glob("again.*.log")]) == 2
