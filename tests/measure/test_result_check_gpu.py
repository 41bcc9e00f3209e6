"""The check on a GPU, with its kernels run on this host, fills and counts like the check on the host."""

import shutil

import numpy as np
import pytest
from cpu_kernels import HostGpu
from hypothesis import given
from hypothesis import strategies as st
from injected_faults import all_are_seen
from injected_faults import settings as settings_of
from rank_buffers import Bench, benches, payload

from hpccoll.cases.memory_estimate import GENERATIONS, PERIOD, SHORT_BLOCK, table_bytes
from hpccoll.measure.run import result_check_gpu
from hpccoll.measure.run.payload import bits
from hpccoll.measure.run.result_check_gpu import GpuCheck
from hpccoll.schedule import BFLOAT16, DTYPES, dtype_of

EVERY = (*DTYPES, BFLOAT16)
OF_EACH_SIZE = tuple({dtype_of(name).itemsize: name for name in EVERY}.values())
"""One type of each size: which one it is, only filling makes a difference to."""


@pytest.fixture(scope="module")
def gpu(require, tmp_path_factory):
    require(shutil.which("g++"), "there is no g++")
    return HostGpu(tmp_path_factory.mktemp("kernels"))


def beside(bench, gpu):
    """Return a check on the same buffers as that of ``bench``, both about to begin the same turn."""
    dst = bench.dst[bench.filled_units]
    return GpuCheck(
        bench.payload,
        bench.src,
        dst,
        bench.result,
        gpu,
        in_place=bench.in_place,
        generation=bench.check.generation,
        guards=bench.guards,
    )


def alike(bench, gpu, turns, faults):
    other = beside(bench, gpu)
    for _ in range(turns):
        bench.check.reset()
        wanted = bits(bench.src).copy(), bits(bench.dst).copy()
        bits(bench.src)[:], bits(bench.dst)[:] = 0, 0
        for guard in bench.guards:
            bits(guard.memory)[:] = 0
        outside = np.ones(bench.dst.size, bool)
        outside[bench.filled_units] = False
        other.reset()
        own = bits(bench.dst)
        assert (own[~outside] == wanted[1][~outside]).all()
        assert (own[outside] == 0).all()  # workspace is left as it is
        assert bench.in_place or (bits(bench.src) == wanted[0]).all()
        assert bench.wrong(bench.expected()) == other.wrong() == 0
        places = [
            bench.result,
            *(guard.memory for guard in bench.guards),
            *([] if bench.in_place else [bench.src]),
        ]
        for place in places:
            for element in faults(place.size):
                bits(place)[element] ^= 1
        assert bench.check.wrong() == other.wrong()
    return other


LONG = benches(("all_reduce", "all_gather", "all_to_all_v"), dtypes=EVERY, most=2 * SHORT_BLOCK)


@given(st.one_of(benches(dtypes=EVERY), LONG), st.data())
def test_the_gpu_check_fills_and_counts_like_the_host_check(gpu, bench, data):
    def faults(size):
        return data.draw(st.sets(st.integers(0, size - 1), max_size=5)) if size else ()

    alike(bench, gpu, GENERATIONS + 1, faults)


@pytest.mark.parametrize("dtype", OF_EACH_SIZE)
def test_every_fault_of_the_matrix_is_detected_like_on_the_host(gpu, dtype):
    for setting, faults in settings_of(3, dtype):
        all_are_seen(setting, faults, gpu)


@pytest.mark.parametrize(("dtype", "blocks"), [("float16", 1), ("float64", 3), (BFLOAT16, 4096)])
def test_values_repeat_after_their_period_for_any_number_of_threads(
    gpu, monkeypatch, dtype, blocks
):
    monkeypatch.setattr(result_check_gpu, "BLOCKS", blocks)
    # the second block begins on no vector
    one = payload("all_gather", 2, 1, dtype=dtype, count=2 * PERIOD + 5)
    places = 0, PERIOD, 2 * PERIOD + 4, 2 * PERIOD + 5, -1
    ends = alike(
        Bench(one, in_place=False), gpu, 2, lambda size: {place for place in places if place < size}
    )
    assert all(table.nbytes <= 16 * PERIOD for tables in ends._tables for table in tables)


@pytest.mark.parametrize("dtype", OF_EACH_SIZE)
@pytest.mark.parametrize(
    "count", [1, 300, SHORT_BLOCK - GENERATIONS + 1, SHORT_BLOCK - GENERATIONS + 2, 2 * PERIOD]
)
def test_a_table_takes_no_more_memory_than_estimated(gpu, dtype, count):
    made = beside(Bench(payload("all_to_all", 2, 1, dtype=dtype, count=count), in_place=True), gpu)
    of_guards, *of_units = made._tables
    tables = [table.nbytes for tables in of_units for table in tables]
    assert (len(of_guards), len(tables)) == (4, 4)
    assert 0.05 * table_bytes(count) < max(tables) <= table_bytes(count)
