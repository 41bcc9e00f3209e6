"""The check, cases, NCCL and training steps on a real GPU, which all ranks share. Nothing here is a measurement."""

import json
from pathlib import Path

import pytest
import raw_examples
from hypothesis import given, settings
from hypothesis import strategies as st
from injected_faults import EVERY, RANKS, all_are_seen
from injected_faults import settings as settings_of
from rank_buffers import benches
from step_times import are_in_order

from hpccoll.cases.case import Effort
from hpccoll.diagnosis.nodes_alone import MEMORY, REDUCTION
from hpccoll.extensions.steps.measure.step_computations import END
from hpccoll.measure.diagnose.own_rates import own_seconds
from hpccoll.measure.run.payload import GENERATIONS, PERIOD, bits
from hpccoll.measure.run.result_check_gpu import GpuCheck
from hpccoll.schedule import BFLOAT16, DTYPES
from hpccoll.store import hdf5
from hpccoll.transports.gpu import Gpu, missing_for_gpu

CASES, NCCL = (Path(__file__).parent / name for name in ("case_ranks.py", "nccl_ranks.py"))
TESTS = Path(__file__).parents[1]
STEPS = TESTS / "extensions" / "steps" / "measure" / "step_ranks.py"
PEER = TESTS / "transports" / "peer" / "peer_ranks.py"
STALLING = TESTS / "measure" / "stalling_ranks.py"
WATCHDOG = 900
"""Seconds: ranks of one GPU that wait for each other's turn can hang (NCCL's NCCL_MULTI_RANK_GPU_ENABLE)."""
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(missing_for_gpu("nccl") is not None, reason=str(missing_for_gpu("nccl"))),
]


@pytest.fixture(scope="module")
def gpu():
    return Gpu(0)


@settings(max_examples=100)
@given(
    st.one_of(*(benches(dtypes=(*DTYPES, BFLOAT16), most=most) for most in (150, 3 * PERIOD))),
    st.data(),
)
def test_the_check_on_a_gpu_fills_and_counts_as_the_check_on_the_host_does(gpu, bench, data):
    one = bench.payload
    src, dst = gpu.upload(bits(bench.src)), gpu.upload(bits(bench.dst))
    result = bench.operation.result(dst, one.me)
    check = GpuCheck(
        one,
        src,
        dst[bench.filled_units],
        result,
        gpu,
        in_place=bench.in_place,
        generation=bench.check.generation,
    )
    for _ in range(GENERATIONS + 1):
        bench.check.reset()
        check.reset()
        assert (gpu.download(dst)[bench.filled_units] == bits(bench.dst)[bench.filled_units]).all()
        assert bench.in_place or (gpu.download(src) == bits(bench.src)).all()
        right = bits(bench.expected())
        faults = (
            [*data.draw(st.sets(st.integers(0, len(right) - 1), max_size=5))] if len(right) else []
        )
        faulty = right.copy()
        faulty[faults] ^= 1
        for values, wrong in ((right, 0), (faulty, len(faults))):
            result[...] = gpu.upload(values)
            assert check.wrong() == bench.wrong(values.view(one.dtype)) == wrong


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("ranks", RANKS)
def test_every_fault_of_the_matrix_is_seen_on_a_gpu(gpu, ranks, dtype):
    for setting, faults in settings_of(ranks, dtype):
        all_are_seen(setting, faults, gpu)


def test_a_gpu_measures_what_it_does_alone(gpu):
    found = own_seconds(1, gpu)
    assert {MEMORY, REDUCTION} <= {*found}
    assert all((each > 0).all() for each in found.values())


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_case_on_a_gpu_is_right_and_its_faults_are_seen(mpiexec, ranks):
    ran = mpiexec(ranks, CASES, timeout=WATCHDOG)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    number, *over = ran.stdout.split()
    assert int(number) > 100
    assert {"staged", "nccl"} <= {*over}


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_schedules_and_calls_over_nccl_keep_their_contract(mpiexec, ranks):
    ran = mpiexec(ranks, NCCL, timeout=WATCHDOG)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_one_kernel_on_the_memory_of_peers_has_the_bits_of_lockstep(mpiexec, ranks):
    ran = mpiexec(ranks, PEER, timeout=WATCHDOG)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def attempts_with_a_stall(mpiexec, place, ranks, pause_s, **about):
    """Return how each attempt of a job of three cases went, of which rank 1 stalls in the second one."""
    cases = [
        raw_examples.case(size, transport="nccl", device="cuda", **about)
        for size in (1024, 1 << 20, 4 << 20)
    ]
    effort = Effort(warmup=2, min_iterations=10, max_iterations=10, timeout=60)
    (place / "job.json").write_text(raw_examples.job(*cases, ranks=ranks, effort=effort).to_json())
    requested = ["--device", "cuda", "--job", place / "job.json", "--out", place / "F.h5"]
    ran = mpiexec(ranks, STALLING, "gpu", 1, "run", 17, pause_s, *requested, timeout=WATCHDOG)
    assert ran.returncode == 3, ran.stdout + ran.stderr
    attempts = hdf5.read_raw_file(place / "F.h5").attempts
    return [
        (attempt.ranks, [outcome.status for outcome in outcomes]) for attempt, outcomes in attempts
    ]


@pytest.mark.mpi
@pytest.mark.parametrize("graph", [0, 1])
@pytest.mark.parametrize("algorithm", ["ring", "native"])
def test_a_job_goes_on_without_a_rank_that_stalls(mpiexec, tmp_path, algorithm, graph):
    attempts = attempts_with_a_stall(
        mpiexec, tmp_path, 3, 50, algorithm=algorithm, params={"graph": graph}
    )
    assert attempts == [(3, ["ok", "failed"]), (2, ["ok"])]


@pytest.mark.mpi
def test_a_job_goes_on_with_a_rank_that_stalls_for_a_while(mpiexec, tmp_path):
    assert attempts_with_a_stall(mpiexec, tmp_path, 2, 20) == [(2, ["ok", "failed", "ok"])]


@pytest.mark.mpi
def test_buckets_over_nccl_are_right_and_overlap_with_computations(mpiexec):
    ran = mpiexec(2, STEPS, "gpu", timeout=WATCHDOG)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    steps = json.loads(ran.stdout.splitlines()[-1])
    assert steps.pop("faults")["left out"] > 0
    assert steps.pop("refusals") == ["refused", "refused"]
    order = steps.pop("order")
    assert order["readings"] == ["clock", "clock", *["event"] * (order["events"] + 1)] * 3
    for name, step in steps.items():
        assert step["wrong"] == 0, name
        assert all(map(are_in_order, step["of_ranks"])), name
    for name in ("ring", "native"):
        events, count = steps[name]["events"], len(steps[name]["streams"])
        assert events[END] < events[-1], name  # the first bucket ends before the last computation
        assert events[3 * (count - 1) + END] > events[-1], name
