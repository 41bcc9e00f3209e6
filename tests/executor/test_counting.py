"""Programs behave as without the counting library, and it counts what they count themselves, on every MPI library."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpccoll.executor.counting_library import read_rank_file

PROGRAM = Path(__file__).with_name("counted_program.c")
FORTRAN_PROGRAM = Path(__file__).with_name("counted_program.f90")
HERE = Path(sys.executable).parent
RANKS = 3

ENVIRONMENT = {
    **os.environ,
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_prte_silence_shared_fs": "1",
}


@dataclass(frozen=True)
class Toolchain:
    """A compiler and a launcher of one MPI library."""

    name: str
    compiler: str
    launcher: str
    flags: list[str] = field(default_factory=list)


OTHER = os.environ.get("HPCCOLL_OPENMPI", "")  # the directory of an Open MPI's programs
TOOLCHAINS = (
    Toolchain("MPICH", f"{HERE}/mpicc", f"{HERE}/mpiexec"),
    Toolchain("MPI-5 ABI", f"{HERE}/mpicc_abi", f"{HERE}/mpiexec"),
    Toolchain("Open MPI", f"{OTHER}/mpicc", f"{OTHER}/mpiexec"),
    Toolchain("Debian's MPICH", "mpicc.mpich", "mpiexec.mpich", flags=["-DFORTRAN", "-lmpichfort"]),
    Toolchain(
        "Debian's Open MPI", "mpicc.openmpi", "mpiexec.openmpi", flags=["-DFORTRAN", "-lmpi_mpifh"]
    ),
)


@pytest.fixture(scope="session", params=TOOLCHAINS, ids=lambda toolchain: toolchain.name)
def launch(request, counting_library, tmp_path_factory):
    """Run the program of a file on ranks, with or without counting."""
    toolchain = request.param
    # Debian's libraries and a second Open MPI are for trying by hand.
    missing = not (shutil.which(toolchain.compiler) and shutil.which(toolchain.launcher))
    if missing:
        pytest.skip(f"{toolchain.name} is not installed")
    directory = tmp_path_factory.mktemp("counted")
    program = directory / "program"
    subprocess.run(
        [toolchain.compiler, "-O1", "-pthread", PROGRAM, "-o", program, *toolchain.flags],
        check=True,
        capture_output=True,
    )

    def launch(lines, counts=None, **variables):
        (directory / "calls").write_text("\n".join(lines) + "\n")
        environment = ENVIRONMENT | variables
        if counts:
            environment |= {"LD_PRELOAD": str(counting_library), "HPCCOLL_COUNT": str(counts)}
        return subprocess.run(
            [toolchain.launcher, "-n", str(RANKS), program, directory / "calls"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    launch.has_fortran = "-DFORTRAN" in toolchain.flags
    return launch


UNIFORM = [
    *("allreduce", "reduce", "bcast", "scan", "barrier", "reduce_scatter_block"),
    *("allgather", "alltoall", "gather", "scatter"),
]
VECTORS = ["allgatherv", "alltoallv", "reduce_scatter", "gatherv", "scatterv"]
WAYS = ["derived", "persistent", "nonblocking", "threads", "error", "inter"]
CREATING = ["dup", "split"]
FORTRAN = ["f_allreduce", "f_bcast", "f_allgather", "f_barrier"]
CANNOT_BE_IN_PLACE = "bcast", "barrier", "alltoallv", "reduce_scatter", "reduce_scatter_block"


def call_line(name, comm, count, kind, op, root, in_place):
    return f"{name} {comm} {count} {kind} {op} {root} {int(in_place)}"


def calls(names):
    """Calls on communicators that may have been created: element types, operations, roots, zero counts, in place."""
    small = st.integers(0, 3)
    return st.builds(
        call_line,
        st.sampled_from(names),
        st.integers(0, 15),
        st.integers(0, 300),
        small,
        small,
        st.integers(0, 14),
        st.booleans(),
    )


def counted(directory):
    """The calls and bytes of each rank, as the library counted them."""
    totals = Counter()
    for path in directory.glob("*.count"):
        file = read_rank_file(path)
        assert file.facts["end"] == "finalized"
        for line in file.calls:
            key = int(file.facts["rank"]), line.collective, line.variant
            totals[(*key, "calls")] += line.calls
            totals[(*key, "bytes")] += line.bytes
    return +totals


def counted_by_itself(output):
    """The same, as the program counted them."""
    totals = Counter()
    for line in output.splitlines():
        if line.startswith("calls"):
            _, rank, collective, variant, number, size = line.split()
            totals[int(rank), collective, variant, "calls"] = int(number)
            totals[int(rank), collective, variant, "bytes"] = int(size)
    return +totals


def without_chance(stderr):
    """Leave out what differs from run to run: a launcher's process, the rank that ended first, warnings of libevent."""
    lines = [line for line in stderr.splitlines() if not line.startswith("[warn] ")]
    return [re.sub(r"\d+", "N", line) for line in lines]


def check_alike(launch, lines, directory):
    """Run a program without the library and with it, and compare results, output, exit code and counts."""
    alone = launch(lines)
    shutil.rmtree(directory, ignore_errors=True)
    with_library = launch(lines, directory)
    assert sorted(with_library.stdout.splitlines()) == sorted(alone.stdout.splitlines())
    assert with_library.returncode == alone.returncode
    assert without_chance(with_library.stderr) == without_chance(alone.stderr)
    assert len(list(directory.glob("*.count"))) == RANKS
    assert counted(directory) == counted_by_itself(alone.stdout)


EXAMPLE = [
    *(call_line(name, 0, 100, 1, 0, 1, False) for name in (*UNIFORM, *VECTORS)),
    *(
        call_line(name, 0, 12, 0, 1, 2, True)
        for name in (*UNIFORM, *VECTORS)
        if name not in CANNOT_BE_IN_PLACE
    ),
    "split 0 1 0 1 3 0",  # into communicator 4
    "allreduce 4 7 1 0 0 0",
    "dup 4 1 0 0 4 0",  # into 5
    "bcast 5 9 2 0 1 0",
    "split 0 2 0 0 3 0",  # frees the first one
    "allreduce 4 11 1 0 0 0",
    *(call_line(name, 5, 20, 1, 0, 2, False) for name in WAYS),
    call_line("inter", 0, 20, 1, 0, 2, False),
    "exit 7",
]


@pytest.mark.mpi
def test_a_program_runs_as_without_the_library_which_counts_what_the_program_counts(
    launch, tmp_path
):
    lines = list(EXAMPLE)
    if launch.has_fortran:
        lines[:0] = [call_line(name, 0, 30, 1, 0, 1, False) for name in FORTRAN]
    check_alike(launch, lines, tmp_path / "counts")


@pytest.mark.long
@pytest.mark.mpi
def test_500_random_programs_run_as_without_the_library(launch, tmp_path):
    names = [*UNIFORM, *VECTORS, *WAYS, *CREATING, *(FORTRAN if launch.has_fortran else ())]
    programs = st.lists(st.lists(calls(names), min_size=1, max_size=30), min_size=25, max_size=25)

    # A launch runs 25 programs one after the other: launching takes longer than they do.
    @settings(max_examples=20, derandomize=False)
    @given(programs, st.integers(0, 3))
    def run(programs, code):
        lines = [line for program in programs for line in program]
        allowed = []
        for line in lines:
            name, *numbers, in_place = line.split()
            if name in CANNOT_BE_IN_PLACE:
                in_place = "0"
            allowed.append(" ".join([name, *numbers, in_place]))
        check_alike(launch, [*allowed, f"exit {code}"], tmp_path / "counts")

    run()
