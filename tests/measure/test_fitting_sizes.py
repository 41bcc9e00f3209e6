"""The largest size of a run over NCCL that names none."""

from dataclasses import replace
from pathlib import Path

import pytest

from hpccoll.cases.memory_estimate import GPU_SPARE_FRACTION, memory_needed
from hpccoll.store import hdf5

RANKS = Path(__file__).with_name("nccl_on_host_ranks.py")
FREE = 6 << 20
"""The free bytes of each GPU."""
RUN = (
    "--device",
    "cuda",
    "-t",
    "nccl",
    "-a",
    "native",
    "-f",
    "4",
    "-n",
    "1",
    "--rounds",
    "1",
    "--in-place",
)


def measured(mpiexec, library, out, *options):
    """Return what a run on two GPUs with FREE bytes each prints, and its outcomes by size."""
    ended = mpiexec(2, RANKS, library, f"FREE={FREE}", *RUN, *options, "--out", out)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ((_, outcomes),) = hdf5.read_raw_file(out).attempts
    return ended.stdout, {outcome.case.bytes: outcome for outcome in outcomes}


@pytest.mark.mpi
def test_it_is_the_largest_that_fits_every_gpu_and_is_said(mpiexec, nccl_library, tmp_path):
    said, outcomes = measured(mpiexec, nccl_library, tmp_path / "F.h5", "-b", "4K")
    assert {(outcome.status, outcome.case.timing) for outcome in outcomes.values()} == {
        ("ok", "aggregated")
    }
    largest = outcomes[max(outcomes)].case
    usable = FREE * (1 - GPU_SPARE_FRACTION)
    larger = replace(largest, bytes=4 * largest.bytes)
    assert memory_needed(largest, 2, 1, "cuda") <= usable < memory_needed(larger, 2, 1, "cuda")
    assert (
        f"sizes up to {largest.bytes >> 10} KiB" in said
        or f"sizes up to {largest.bytes >> 20} MiB" in said
    )


@pytest.mark.mpi
def test_a_size_that_is_given_is_kept_and_skipped_if_it_does_not_fit(
    mpiexec, nccl_library, tmp_path
):
    said, outcomes = measured(
        mpiexec, nccl_library, tmp_path / "F.h5", "-b", "4K", "-e", "16M", "-f", "4096"
    )
    assert "sizes up to" not in said
    assert {size: outcome.status for size, outcome in outcomes.items()} == {
        4096: "ok",
        16 << 20: "skipped",
    }
