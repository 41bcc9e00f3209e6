"""One small sweep, which many tests read, and the means to start others."""

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_runner import ENVIRONMENT, CommandResult, spawn

TINY = """
algorithms: [ring, native]
bytes: [8, 1K, 64K]
in_place: false
ranks: [1, 2]
effort: {warmup: 1, min_iterations: 5, max_iterations: 5}
"""


@dataclass(frozen=True)
class Swept:
    """A directory in which ``hpccoll sweep tiny.yaml`` was run, and its result."""

    home: Path
    result: CommandResult

    @property
    def out(self):
        return self.home / "results" / "tiny"


@pytest.fixture(scope="session")
def swept(tmp_path_factory, require):
    """The shared sweep; whoever changes it takes a copy."""
    require(shutil.which("mpiexec", path=ENVIRONMENT["PATH"]), "there is no mpiexec")
    home = tmp_path_factory.mktemp("swept")
    (home / "tiny.yaml").write_text(TINY)
    return Swept(home, spawn("sweep", "tiny.yaml", cwd=home))


@pytest.fixture
def copy(swept, tmp_path):
    """A copy of the shared sweep, in which everything may be broken."""
    shutil.copytree(swept.home, tmp_path / "copy", symlinks=True, copy_function=shutil.copy2)
    return Swept(tmp_path / "copy", swept.result)


def processes(below):
    """Return the command lines of the processes that sweeps into directories ``below`` have marked, by process."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if f"HPCCOLL_SWEEP={below}".encode() in (place / "environ").read_bytes():
                found[int(place.name)] = (
                    (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                )
    return found


@pytest.fixture
def marked(tmp_path_factory):
    """The processes that the tests' sweeps have running when it is called."""

    def marked():
        return processes(tmp_path_factory.getbasetemp())

    return marked


@pytest.fixture(autouse=True)
def nothing_is_left_running(marked):
    yield
    assert marked() == {}
