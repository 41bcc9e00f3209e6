"""A diagnosis by ranks over NCCL, for which the test library stands: its pairs, and what becomes of one that fails."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import wait

from hpccoll.common.errors import UnusableError
from hpccoll.diagnosis.recorded import DiagnosisOptions
from hpccoll.measure.diagnose.gpu_pair_transfers import BY_RATE_ON_GPUS, choose_transfers
from hpccoll.measure.diagnose.pair_transfers import (
    LEAST_MESSAGES,
    OVER_MPI,
    UNKNOWN_RATE,
    stream_at,
)

RANKS = Path(__file__).with_name("gpu_diagnosis_ranks.py")
LATE = {"slot_s": 0.05, "pause_ns": 4_000_000, "sender": [2, 0, "pauses"]}


@pytest.fixture
def diagnose(mpiexec, nccl_library, tmp_path):
    """Run a diagnosis by ranks over NCCL; return the process, and what it left."""

    def diagnose(nodes, **options):
        out = tmp_path / "out.json"
        ended = mpiexec(
            nodes, RANKS, out, json.dumps({"slot_s": 0.02, **options}), "host", nccl_library
        )
        assert out.exists(), ended.stdout + ended.stderr
        return ended, json.loads(out.read_text())

    return diagnose


def communicators(ended):
    """Return of each rank: its number, how many communicators it has made, have ended, and were made too early."""
    found = re.findall(
        r"rank (\d+): (\d+) communicators made, (\d+) ended, (\d+) before", ended.stdout
    )
    return [[*map(int, each)] for each in found]


@pytest.mark.mpi
@pytest.mark.long
def test_a_node_whose_gpu_sends_late_is_named_and_no_communicator_is_left(diagnose):
    ended, result = diagnose(6, **LATE)
    assert ended.returncode == 0, ended.stderr
    assert result["load"] == {
        **result["load"],
        "program": "NCCL",
        "memory": "GPU",
        "together": False,
    }
    (fault,) = result["diagnosis"]["faults"]
    assert fault["component"] == {"kind": "send", "where": [2], "rail": None}
    assert fault["low"] > 1.5
    provenance = result["provenance"]
    assert len(provenance["gpu_of_rank"]) == 6
    assert provenance["nccl"][0]["library"]["version"] == "2.30.0"
    counts = communicators(ended)
    assert sorted(rank for rank, *_ in counts) == [*range(6)]
    assert all(made == finished > 0 for _, made, finished, _ in counts)


STOPS = {
    "before its communicator is made": {"fault": [2, 1, "stops"]},
    "in its stream": {"sender": [2, 1, "stops"]},
}
FAILS = {
    "cudaErrorECCUncorrectable": {"sender": [2, 1, "its GPU fails"]},
    "GPU memory: 1 GiB of 4 GiB free": {"sender": [2, 1, "has no memory"]},
}
"""By the error that is shown."""


def named(result):
    """Return the nodes that do not answer."""
    components = [fault["component"] for fault in result["diagnosis"]["faults"]]
    return [each["where"] for each in components if each["kind"] == "hung"]


def wait_for_the_end(result):
    wait(
        lambda: not [pid for pid in result["pids"] if Path(f"/proc/{pid}").exists()],
        "a rank is left",
    )


@pytest.mark.mpi
@pytest.mark.long
@pytest.mark.parametrize("options", STOPS.values(), ids=STOPS)
def test_a_rank_that_stops_is_named_alone_the_others_are_diagnosed_and_nothing_is_left(
    diagnose, options
):
    ended, result = diagnose(4, **options)
    assert ended.returncode == 3  # MPI_Abort ends the rank that has stopped
    assert named(result) == [[2]]
    assert result["provenance"]["unfinished"] == ["n2"]  # its partners wait for nothing
    assert not result["provenance"]["transfer_errors"]
    assert "Traceback" not in ended.stderr
    wait_for_the_end(result)


@pytest.mark.mpi
@pytest.mark.parametrize("error", FAILS)
def test_a_rank_with_an_error_is_named_with_it_the_others_are_diagnosed_and_nothing_is_left(
    diagnose, error
):
    ended, result = diagnose(4, **FAILS[error])
    assert ended.returncode == 0, ended.stderr
    assert named(result) == [[2]]
    assert result["provenance"]["unfinished"] == []
    errors = result["provenance"]["transfer_errors"]
    assert {each["hosts"][0] for each in errors} == {"n2"}
    assert all(error in each["why"] for each in errors)
    assert "Traceback" not in ended.stderr
    assert all(made == finished for _, made, finished, _ in communicators(ended))
    wait_for_the_end(result)


@pytest.mark.mpi
def test_the_next_pair_of_a_rank_waits_until_its_failed_communicator_has_been_aborted(diagnose):
    ended, result = diagnose(4, **FAILS["cudaErrorECCUncorrectable"], aborting_s=0.5)
    assert ended.returncode == 0, ended.stderr
    assert named(result) == [[2]]
    counts = communicators(ended)
    assert len(counts) == 4
    assert all((made == finished, early) == (True, 0) for _, made, finished, early in counts)


@pytest.mark.mpi
def test_an_error_on_all_ranks_ends_the_run_in_one_line_and_accuses_nobody(
    mpiexec, nccl_library, tmp_path
):
    options = json.dumps({"sender": [None, 0, "has no memory"]})
    ended = mpiexec(4, RANKS, tmp_path / "out.json", options, "host", nccl_library)
    # the program's own, which prints errors of the input
    assert ended.returncode == 0, ended.stderr
    lines = [line for line in ended.stdout.splitlines() if "transfers over NCCL" in line]
    assert len(lines) == 1
    assert "no pair has a time; n0 with n1: GPU memory: 1 GiB of 4 GiB free" in lines[0]


@pytest.mark.mpi
def test_no_pair_transfers_before_all_pairs_of_its_slot_have_connected(diagnose):
    ended, _ = diagnose(4, connecting_s=0.3, fault=[1, 3, "is interrupted"])
    assert ended.returncode == 0, ended.stderr
    by_rank = [json.loads(line)[1] for line in ended.stdout.splitlines() if line.startswith("[")]
    assert len(by_rank) == 4
    # of each slot, and rank: when it had connected, and when it went on
    slots = [*zip(*by_rank, strict=True)]
    assert len(slots) >= 3
    for slot in slots:
        connected, went_on = zip(*slot, strict=True)
        assert max(connected) <= min(went_on)


def gpus(*, lacking=None, failures=(), silent=(), visible=8, of_last=None):
    """Return GPUs of ranks that lack something for NCCL, or None; the last of four hosts may see other ones."""
    hosts = dict.fromkeys(("n0", "n1", "n2", "n3"), visible)
    return SimpleNamespace(
        missing_for={"nccl": lacking}.get,
        gpu_of_rank=None,
        failures=dict(failures),
        silent=dict(silent),
        visible_on_hosts=hosts if of_last is None else {**hosts, "n3": of_last},
    )


def options(**changes):
    return DiagnosisOptions(seed=1, **changes)


def test_transfers_are_over_nccl_if_each_rank_has_a_gpu_unless_the_user_asks_for_the_host():
    kind, found = choose_transfers(gpus(lacking=None), options())
    assert (kind.program, found["unused_because"]) == ("NCCL", None)
    assert choose_transfers(gpus(lacking=None), options(device="cpu", together=True)) == (
        OVER_MPI,
        None,
    )
    assert choose_transfers(gpus(lacking="no CUDA device", visible=0), options()) == (
        OVER_MPI,
        None,
    )


def test_why_gpus_are_not_used_is_kept_and_how_many_each_host_finds():
    kind, found = choose_transfers(gpus(lacking="2 ranks share GPU 1"), options())
    assert kind is OVER_MPI
    assert found["unused_because"] == "2 ranks share GPU 1"
    kind, found = choose_transfers(gpus(lacking="no CUDA device", of_last=0), options())
    assert kind is OVER_MPI
    assert found["visible"] == {"n0": 8, "n1": 8, "n2": 8, "n3": 0}


def test_a_gpu_that_fails_at_the_start_is_named_and_the_nodes_are_diagnosed_over_mpi():
    kind, found = choose_transfers(gpus(failures={"n2": "GPU 3 fails: no memory"}), options())
    assert (kind, found["unused_because"]) == (OVER_MPI, "n2: GPU 3 fails: no memory")
    kind, found = choose_transfers(
        gpus(silent={"n2": "no answer"}, lacking="a GPU", visible=0), options()
    )
    assert (kind, found["unused_because"]) == (OVER_MPI, "n2: no answer")


def test_what_nccl_cannot_transfer_is_refused_in_one_line():
    with pytest.raises(UnusableError, match=r"--device cuda: no CUDA device"):
        choose_transfers(gpus(lacking="no CUDA device"), options(device="cuda"))
    with pytest.raises(
        UnusableError, match="take turns; do: --directions in-turn, or --device cpu"
    ):
        choose_transfers(gpus(lacking=None), options(together=True))


def test_over_nccl_the_number_of_messages_follows_from_the_rate_that_is_known():
    for rate in (450e9, 50e9, 12.5e9, 3e9, 125e6):
        stream = stream_at(rate, BY_RATE_ON_GPUS)
        assert stream.messages_at(rate) * stream.bytes / rate == pytest.approx(
            stream.seconds / 2, rel=0.1
        )
    assert (
        UNKNOWN_RATE.messages_at(math.nan)
        == LEAST_MESSAGES
        == stream_at(1.0, BY_RATE_ON_GPUS).messages_at(1.0)
    )
