"""What every test may ask for."""

import gc
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from hypothesis import HealthCheck, settings

# Before NumPy is imported, here and by every process of a test: its BLAS starts a thread for each
# core, which spins.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# Ranks share cores with other tests: MPICH's wait yields with this level only. Guides run with the
# default.
os.environ["MPI4PY_RC_THREAD_LEVEL"] = "multiple"
# schedule_examples.py and others that several rooms of tests share
sys.path.append(str(Path(__file__).parent))
# their failures show what differs
pytest.register_assert_rewrite("golden_page", "page_elements", "imported_outputs")

settings.register_profile(
    "hpccoll",
    deadline=None,
    max_examples=25,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # on a busy machine no limit of seconds decides
)
settings.load_profile("hpccoll")

WAITING = "slurm", "sweep", "mpi"
"""Marks of tests that wait and start processes, in the order in which their files begin; the others compute."""


EVERYDAY_LAUNCHES = 1
"""How many tests of a file that launch ranks run every day; the others are slow."""


SLOW_FILES = frozenset(
    (
        "test_fuzz.py",
        "test_gpu_benchmark.py",
        "test_kernels.py",
        "test_situations.py",
        "analysis/test_notebook.py",
        "analysis/test_time_dataset.py",
        "cli/test_predict_command.py",
        "executor/test_build.py",
        "extensions/steps/measure/test_compressed_steps.py",
        "extensions/steps/measure/test_order_of_launches.py",
        "extensions/test_site_extension.py",
        "interop/test_import_results.py",
        "measure/test_connecting.py",
        "measure/test_fitting_sizes.py",
        "measure/test_gpu_pair_transfers.py",
        "measure/test_job_results.py",
        "measure/test_late_ranks.py",
        "measure/test_log_probe.py",
        "measure/test_mapped_ranks.py",
        "measure/test_order_runner.py",
        "measure/test_osu_timing.py",
        "measure/test_own_rates.py",
        "measure/test_stall.py",
        "model/test_stand_ins.py",
        "schedule/test_mutants.py",
        "sweep/test_evidence_probe.py",
        "sweep/test_pair_launches.py",
        "transports/nccl/test_nccl_on_host.py",
        "transports/peer/test_ll_protocol.py",
        "transports/peer/test_peer_counts.py",
        "transports/peer/test_peer_kernel.py",
        "transports/peer/test_peer_mutants.py",
        "transports/peer/test_peer_rows.py",
        "transports/peer/test_peer_transport.py",
        "transports/peer/test_plans_of_mscclpp.py",
    )
)
"""The files below tests/ that take longest, of those that an everyday change seldom concerns."""


@pytest.hookimpl(wrapper=True)  # before others leave out what is not selected, and after that
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark slow tests, and begin with the files that take longest, so that no worker is left with one in the end."""
    _mark_slow(items)
    yield
    _sort(items)


def _mark_slow(items: list[pytest.Item]) -> None:
    """Mark tests of Slurm, of sweeps and of SLOW_FILES, and all but a few launches, as slow unless they are long."""
    launches: Counter[Path] = Counter()
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        is_slow = bool(marks & {"slurm", "sweep"}) or _path_below_tests(item.path) in SLOW_FILES
        if "mpi" in marks and "long" not in marks and not is_slow:
            launches[item.path] += 1
            is_slow = launches[item.path] > EVERYDAY_LAUNCHES
        if is_slow and not marks & {"slow", "long"}:
            item.add_marker("slow")


def _path_below_tests(path: Path) -> str:
    """Return the path of a file below tests/, with slashes."""
    tests = Path(__file__).parent
    return path.relative_to(tests).as_posix() if path.is_relative_to(tests) else ""


def _sort(items: list[pytest.Item]) -> None:
    turns = dict.fromkeys((item.path for item in items), len(WAITING))
    for item in items:
        marks = (mark.name for mark in item.iter_markers())
        turns[item.path] = min(
            [turns[item.path], *(WAITING.index(name) for name in marks if name in WAITING)]
        )
    items.sort(key=lambda item: turns[item.path])


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of tests, which stay to the end: it took a tenth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores, because the one with the tests of Slurm waits half of its time."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give workers whole files in this order, and those of Slurm to one worker.

    They wait half of their time, in which the other workers compute. Two of them at once would
    start two clusters, and ranks that share the cores with those of other tests spin for several
    times as long.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            directory, slurm, _ = nodeid.partition("tests/slurm/")
            return directory + slurm if slurm else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return Scheduler(config, log)


@pytest.fixture(scope="session")
def require() -> Callable[[object, str], None]:
    """Skip a test that lacks something, with the reason; where HPCCOLL_REQUIRE_ALL is set, what lacks is a failure."""

    def require(condition: object, reason: str) -> None:
        if not condition and os.environ.get("HPCCOLL_REQUIRE_ALL"):
            pytest.fail(f"HPCCOLL_REQUIRE_ALL is set, and {reason}")
        if not condition:
            pytest.skip(reason)

    return require


@pytest.fixture(scope="session")
def mpiexec(require) -> Callable[..., CompletedProcess[str]]:
    """Run a Python program on so many ranks, more than there are cores where it must be."""
    from launched_programs import launched

    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    launcher = shutil.which("mpiexec", path=path)
    require(launcher, "there is no mpiexec")
    library = subprocess.run(
        [sys.executable, "-c", "import mpi4py.MPI"], capture_output=True, text=True, check=False
    )
    require(
        library.returncode == 0, f"mpi4py finds no MPI library: {library.stderr.strip()[-200:]}"
    )
    places = str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        # Rank programs of tests do not start at hpccoll's entry point, which writes whole lines
        # also if this is set.
        "PYTHONUNBUFFERED": "",
        # Ranks share cores with one another and with other tests: while MPICH waits, they sleep.
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }

    def mpiexec(
        ranks: int, *arguments: str | Path, timeout: float = 240, **variables: str
    ) -> CompletedProcess[str]:
        command = [launcher, "-n", str(ranks), sys.executable, "-W", "error", *map(str, arguments)]
        with launched(command, env=environment | variables) as process:
            output = process.communicate(timeout=timeout)
        return CompletedProcess(command, process.returncode, *output)

    return mpiexec


@pytest.fixture(scope="session")
def nccl_library(require, tmp_path_factory) -> Path:
    """Return the directory of the test library of NCCL, with the kernels of the host that go with it."""
    import nccl_test_library

    reason = nccl_test_library.missing()
    require(reason is None, str(reason))
    directory = tmp_path_factory.mktemp("libnccl")
    nccl_test_library.compile_all(directory)
    return directory


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A sysfs to fill with network ports, on a host whose drivers have no statistics of their own."""
    from fake_network_ports import FakeHost, network_ports

    monkeypatch.setattr(network_ports, "driver_statistics", lambda _device: {})
    return FakeHost(tmp_path)


@pytest.fixture(scope="session")
def counting_library(require, tmp_path_factory) -> Path:
    """Build the library that counts the collectives of a program, from the sources of this checkout."""
    from hpccoll.executor.build import COUNTING_LIBRARY, BuildError, build

    library = tmp_path_factory.mktemp("counting") / COUNTING_LIBRARY.name
    try:
        build(library)
    except BuildError as error:
        require(False, str(error))
    return library
