"""The check, and whole cases, on a real GPU, which ranks share. Nothing here is a measurement."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from injected_faults import EVERY, RANKS, all_are_seen
from injected_faults import settings as settings_of
from rank_buffers import benches

from hpccoll.measure.payload import GENERATIONS, PERIOD, bits
from hpccoll.measure.result_check_gpu import GpuCheck
from hpccoll.schedule import BFLOAT16, DTYPES
from hpccoll.transports.gpu import missing_for_gpu

PROGRAM = Path(__file__).parent / "case_ranks.py"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(missing_for_gpu("nccl") is not None, reason=str(missing_for_gpu("nccl"))),
]


@pytest.fixture(scope="module")
def gpu():
    from hpccoll.transports.gpu import Gpu

    return Gpu(0)


@settings(max_examples=100)
@given(st.one_of(*(benches(dtypes=(*DTYPES, BFLOAT16), most=most) for most in (150, 3 * PERIOD))), st.data())
def test_the_check_on_a_gpu_fills_and_counts_as_the_check_on_the_host_does(gpu, bench, data):
    one = bench.payload
    src, dst = gpu.upload(bits(bench.src)), gpu.upload(bits(bench.dst))
    result = bench.operation.result(dst, one.me)
    check = GpuCheck(
        one, src, dst[bench.filled_units], result, gpu, in_place=bench.in_place, generation=bench.check.generation
    )  # fmt: skip
    for _ in range(GENERATIONS + 1):
        bench.check.reset()
        check.reset()
        assert (gpu.download(dst)[bench.filled_units] == bits(bench.dst)[bench.filled_units]).all()
        assert bench.in_place or (gpu.download(src) == bits(bench.src)).all()
        right = bits(bench.expected())
        faults = [*data.draw(st.sets(st.integers(0, len(right) - 1), max_size=5))] if len(right) else []
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


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_case_on_a_gpu_is_right_and_its_faults_are_seen(mpiexec, ranks):
    ran = mpiexec(ranks, PROGRAM, timeout=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    number, *over = ran.stdout.split()
    assert int(number) > 100
    assert {"staged", "nccl"} <= {*over}
