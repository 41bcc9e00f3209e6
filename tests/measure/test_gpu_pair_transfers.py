"""A diagnosis by ranks over NCCL, for which the test library stands: its pairs, and what becomes of one that fails."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from patience import wait

from hpccoll.analysis.diagnosis.recorded import DiagnosisOptions
from hpccoll.common.errors import UnusableError
from hpccoll.measure.gpu_pair_transfers import BY_RATE_ON_GPUS, choose_transfers
from hpccoll.measure.pair_transfers import LEAST_MESSAGES, OVER_MPI, UNKNOWN_RATE, stream_at

RANKS = Path(__file__).with_name("gpu_diagnosis_ranks.py")
LATE = {"slot_s": 0.05, "pause_ns": 4_000_000, "sender": [2, 0, "pauses"]}


@pytest.fixture
def diagnose(mpiexec, nccl_library, tmp_path):
    """Run a diagnosis by ranks over NCCL; return the process, and what it left."""

    def diagnose(nodes, **options):
        out = tmp_path / "out.json"
        ended = mpiexec(nodes, RANKS, out, json.dumps({"slot_s": 0.02, **options}), "host", nccl_library)
        assert out.exists(), ended.stdout + ended.stderr
        return ended, json.loads(out.read_text())

    return diagnose


@pytest.mark.mpi
@pytest.mark.long
def test_a_node_whose_gpu_sends_late_is_named_and_no_communicator_is_left(diagnose):
    ended, result = diagnose(6, **LATE)
    assert ended.returncode == 0, ended.stderr
    assert result["load"] == {**result["load"], "program": "NCCL", "memory": "GPU", "together": False}
    (fault,) = result["diagnosis"]["faults"]
    assert fault["component"] == {"kind": "send", "where": [2], "rail": None}
    assert fault["low"] > 1.5
    provenance = result["provenance"]
    assert len(provenance["gpu_of_rank"]) == 6
    assert provenance["nccl"][0]["library"]["version"] == "2.30.0"
    counts = [[*map(int, filter(str.isdecimal, line.replace(":", "").split()))] for line in ended.stdout.splitlines()
              if "communicators made" in line]  # fmt: skip
    assert sorted(rank for rank, *_ in counts) == [*range(6)]
    assert all(made == finished > 0 for _, made, finished in counts)


@pytest.mark.mpi
@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"fault": [2, 1, "stops"]}, id="before its communicator is made"),
        pytest.param({"sender": [2, 1, "stops"]}, id="with messages in its stream"),
        pytest.param({"sender": [2, 1, "its GPU fails"]}, id="by an error of CUDA"),
    ],
)
def test_a_rank_that_fails_is_named_the_others_are_diagnosed_and_nothing_is_left(diagnose, options):
    ended, result = diagnose(4, **options)
    assert ended.returncode == (0 if "GPU" in str(options) else 3)  # 3: a transfer has not ended, so MPI_Abort ends it
    components = [fault["component"] for fault in result["diagnosis"]["faults"]]
    assert [each["where"] for each in components if each["kind"] == "hung"] == [[2]]
    rows = np.array([row for *_, seconds in result["measured"] for row in seconds])
    assert np.isinf(rows).any(1).sum() == 2  # it misses twice, and is not asked again
    assert (np.isfinite(rows[:, 2]).sum() < np.isfinite(np.delete(rows, 2, 1)).sum(0)).all()
    assert ("cudaErrorECCUncorrectable" in ended.stderr) == ("GPU" in str(options))
    assert "Traceback" not in ended.stderr
    wait(lambda: not [pid for pid in result["pids"] if Path(f"/proc/{pid}").exists()], "a rank is left")


def gpus(*, lacking, gpu=True):
    """Return GPUs of ranks that lack something for NCCL, or None."""
    missing = {"nccl": lacking, "staged": None if gpu else lacking}
    return SimpleNamespace(
        missing_for=missing.get, gpu_of_rank=None, ranks=SimpleNamespace(comm=SimpleNamespace(rank=0))
    )


def options(**changes):
    return DiagnosisOptions(seed=1, **changes)


def test_transfers_are_over_nccl_if_each_rank_has_a_gpu_unless_the_user_asks_for_the_host(capsys):
    assert choose_transfers(gpus(lacking=None), options()).program == "NCCL"
    assert choose_transfers(gpus(lacking=None), options(device="cpu", together=True)) is OVER_MPI
    assert choose_transfers(gpus(lacking="no CUDA device", gpu=False), options()) is OVER_MPI
    assert capsys.readouterr().err == ""
    assert choose_transfers(gpus(lacking="2 ranks share GPU 1"), options()) is OVER_MPI
    assert capsys.readouterr().err == "r0 | transfers are in host memory over MPI: 2 ranks share GPU 1\n"


def test_what_nccl_cannot_transfer_is_refused_in_one_line():
    with pytest.raises(UnusableError, match=r"--device cuda: no CUDA device"):
        choose_transfers(gpus(lacking="no CUDA device"), options(device="cuda"))
    with pytest.raises(UnusableError, match="take turns; do: --directions in-turn, or --device cpu"):
        choose_transfers(gpus(lacking=None), options(together=True))


def test_over_nccl_the_number_of_messages_follows_from_the_rate_that_is_known():
    for rate in (450e9, 50e9, 12.5e9, 3e9, 125e6):
        stream = stream_at(rate, BY_RATE_ON_GPUS)
        assert stream.messages_at(rate) * stream.bytes / rate == pytest.approx(stream.seconds / 2, rel=0.1)
    assert UNKNOWN_RATE.messages_at(math.nan) == LEAST_MESSAGES == stream_at(1.0, BY_RATE_ON_GPUS).messages_at(1.0)
