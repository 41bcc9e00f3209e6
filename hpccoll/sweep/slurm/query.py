"""Calls of Slurm's commands, and the state of the cluster that they print."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.slurm_topology import SlurmTopology, parse_topology

ANSWER_TIMEOUT_S = 30.0
"""Timeout of a command in seconds; a busy controller needs several seconds."""
NO_ANSWER = "no controller answers"


def run_slurm(*command: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm and return its result, whatever its exit code is.

    Raises:
        UnusableError: if the command is not on PATH, or if it does not end in time, by default
            ANSWER_TIMEOUT_S.
    """
    if shutil.which(command[0]) is None:
        remedy = (
            "load Slurm's module, or use --profile local; a plan without --profile needs neither"
        )
        raise UnusableError("Slurm", f"no {command[0]} on PATH: {remedy}")
    timeout_s = timeout_s or ANSWER_TIMEOUT_S
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UnusableError(
            "Slurm", f"{NO_ANSWER} within {timeout_s:g} s: see 'scontrol ping'"
        ) from None


def slurm_output(*command: str) -> str:
    """Run a command of Slurm and return its stdout.

    Raises:
        UnusableError: if the command is not on PATH, or if the controller does not answer.
        BadInputError: if the command fails for another reason.
    """
    result = run_slurm(*command)
    if result.returncode:
        message = " ".join((result.stderr.strip() or result.stdout.strip()).split())
        _check_reachable(message)
        raise BadInputError("Slurm", " ".join(command), f"a request that Slurm grants: {message}")
    return result.stdout


def _check_reachable(message: str) -> None:
    if UNREACHABLE.search(message):
        raise UnusableError("Slurm", f"{NO_ANSWER}: {message}")


UNREACHABLE = re.compile(
    "contact slurm controller|configuration source|Connection refused|timed out|DNS SRV",
    re.IGNORECASE,
)
"""Messages of the commands if the controller is missing or does not answer."""


def parse_records(text: str) -> Iterator[dict[str, str]]:
    """Yield the records that ``scontrol -o`` prints: one per line, as ``Key=value`` pairs."""
    for line in text.splitlines():
        pairs = re.findall(r"(?:^| )(\w[\w:/]*)=(.*?)(?= \w[\w:/]*=|$)", line)
        if pairs:
            yield dict(pairs)


def has_accounting() -> bool:
    """Return whether the cluster has an accounting database that answers."""
    try:
        slurm_output("sacct", "-X", "-n", "-S", "now")
    except BadInputError:
        return False
    return True


def has_no_topology() -> bool:
    """Return whether Slurm reports no switches and no blocks: nodes then belong to no rack.

    topology/tree and topology/block without entries print an error, and may fail; topology/flat,
    and topology/default before it, print nothing (topology_p_topoinfo_print in
    src/plugins/topology/flat/topology_flat.c).

    Raises:
        UnusableError: if Slurm does not answer.
    """
    result = run_slurm("scontrol", "show", "topology")
    _check_reachable(result.stderr)
    printed = (result.stdout + result.stderr).strip()
    return "No topology information" in printed or (result.returncode == 0 and not printed)


def load_topology(name: str | None = None) -> SlurmTopology:
    """Return a topology of topology.yaml by its name; without one the default, in which Slurm places its ranks.

    Raises:
        UnusableError: if Slurm does not answer.
        ValueError: if Slurm prints something else.
    """
    result = run_slurm("scontrol", "show", "topology", *filter(None, (name,)))
    _check_reachable(result.stderr)
    if "No topology information" in result.stdout + result.stderr:
        return parse_topology(())
    if result.returncode:
        raise ValueError(
            " ".join(result.stderr.split()) or f"scontrol ended with {result.returncode}"
        )
    return parse_topology(result.stdout.splitlines())


def mpi_types() -> list[str]:
    """Return the types that ``srun --mpi`` accepts on this cluster.

    Raises:
        BadInputError: if srun is not on PATH or does not answer.
    """
    listed = run_slurm("srun", "--mpi=list")
    names = [
        line.removeprefix("srun:").strip() for line in (listed.stdout + listed.stderr).splitlines()
    ]
    return [name for name in names if re.fullmatch(r"\w+", name)]


def check_launcher(command: str, *, may_be_elsewhere: bool) -> None:
    """Check that the command that starts ranks exists, and that srun knows the type of ``--mpi``.

    Raises:
        BadInputError: names the key ``launcher`` and the valid types.
    """
    try:
        program, *options = shlex.split(command)
    except ValueError as error:
        raise BadInputError("launcher", command, f"a command of a shell: {error}") from None
    # A shell expands variables, and only compute nodes may have a path.
    if (
        re.fullmatch(r"[\w.+-]+", program)
        and shutil.which(program) is None
        and not may_be_elsewhere
    ):
        raise BadInputError(
            "launcher",
            command,
            f"a command on PATH, such as srun --mpi=pmix: there is no {program}",
        )
    named = [option.removeprefix("--mpi=") for option in options if option.startswith("--mpi=")]
    if Path(program).name != "srun" or not named or shutil.which("srun") is None:
        return
    types = mpi_types()
    # pmix_v4 is pmix, openmpi an alias of none
    if types and named[-1].partition("_v")[0] not in (*types, "openmpi"):
        raise BadInputError(
            "launcher", command, f"a type of srun --mpi that this cluster has: {', '.join(types)}"
        )


def configuration() -> dict[str, str]:
    """Return the controller's settings, by their names in slurm.conf.

    Raises:
        BadInputError: if Slurm does not answer.
    """
    pairs = (
        line.partition("=")
        for line in slurm_output("scontrol", "show", "config").splitlines()
        if "=" in line
    )
    return {name.strip(): value.strip() for name, _, value in pairs}
