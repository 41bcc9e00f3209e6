"""Slurm's commands: asked, and what they say of the cluster itself."""

import re
import shutil
import subprocess
from collections.abc import Iterator

from hpccoll.errors import BadInputError, UnusableError

ANSWER_TIMEOUT_S = 30.0
"""How long a controller has for an answer; a busy one takes seconds."""
NO_ANSWER = "no controller answers"


def run_slurm(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm's to its end, whatever that is.

    Raises:
        UnusableError: where it is not on PATH, or the controller keeps it waiting.
    """
    if shutil.which(command[0]) is None:
        remedy = "load Slurm's module, or use --profile local; a plan without --profile needs neither"
        raise UnusableError("Slurm", f"no {command[0]} on PATH: {remedy}")
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=ANSWER_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise UnusableError("Slurm", f"{NO_ANSWER} within {ANSWER_TIMEOUT_S:g} s: see 'scontrol ping'") from None


def slurm_output(*command: str) -> str:
    """Run a command of Slurm's and return what it prints.

    Raises:
        UnusableError: where it is not on PATH, or the controller does not answer.
        BadInputError: where it refuses.
    """
    ended = run_slurm(*command)
    if ended.returncode:
        message = " ".join((ended.stderr.strip() or ended.stdout.strip()).split())
        _check_reachable(message)
        raise BadInputError("Slurm", " ".join(command), f"a request that Slurm grants: {message}")
    return ended.stdout


def _check_reachable(message: str) -> None:
    if UNREACHABLE.search(message):
        raise UnusableError("Slurm", f"{NO_ANSWER}: {message}")


UNREACHABLE = re.compile(
    "contact slurm controller|configuration source|Connection refused|timed out|DNS SRV", re.IGNORECASE
)
"""What the commands say where there is no controller, or none that answers."""


def parse_records(text: str) -> Iterator[dict[str, str]]:
    """Yield the records that ``scontrol -o`` prints, a line each, of words ``Key=value``."""
    for line in text.splitlines():
        pairs = re.findall(r"(?:^| )(\w[\w:/]*)=(.*?)(?= \w[\w:/]*=|$)", line)
        if pairs:
            yield dict(pairs)


def has_accounting() -> bool:
    """Return whether the cluster keeps accounts and finished jobs in a database that answers."""
    try:
        slurm_output("sacct", "-X", "-n", "-S", "now")
    except BadInputError:
        return False
    return True


def has_no_topology() -> bool:
    """Return whether Slurm says that it knows of no switches: nodes are then in no racks.

    Raises:
        UnusableError: where it does not answer.
    """
    ended = run_slurm("scontrol", "show", "topology")  # which says so as an error, and may end as with one
    _check_reachable(ended.stderr)
    return "No topology information" in ended.stdout + ended.stderr


def mpi_types() -> list[str]:
    """Return what ``srun --mpi`` can be here.

    Raises:
        BadInputError: where srun is not there or does not answer.
    """
    listed = run_slurm("srun", "--mpi=list")
    words = [line.removeprefix("srun:").strip() for line in (listed.stdout + listed.stderr).splitlines()]
    return [word for word in words if re.fullmatch(r"\w+", word)]


def configuration() -> dict[str, str]:
    """Return the controller's settings, by their names in slurm.conf.

    Raises:
        BadInputError: where Slurm does not answer.
    """
    pairs = (line.partition("=") for line in slurm_output("scontrol", "show", "config").splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}
