"""The allow-list of environment variables that files record. It keeps secrets out of files and command lines."""

import os
import re
from collections.abc import Sequence

from hpccoll.common.own_variables import NODE_NAME_VARIABLE

VARIABLES = (
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "HPCCOLL_CUDA_AWARE",
    NODE_NAME_VARIABLE,
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_STEP_NODELIST",
    "SLURM_JOB_PARTITION",
    "SLURM_CLUSTER_NAME",
    "SLURM_NTASKS",
    "SLURM_NNODES",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_RESTART_COUNT",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_TOPOLOGY_ADDR_PATTERN",
    "SLURM_MPI_TYPE",
)
"""Variables recorded by name. Slurm's are listed one by one, because SLURM_JWT is a secret."""

PREFIXES = (
    "MPI4PY_",
    "MPICH_",
    "MPIR_CVAR_",
    "OMPI_MCA_",
    "I_MPI_",
    "MV2_",
    "MVP_",
    "UCX_",
    "FI_",
    "NCCL_",
    "UCC_",
    "HCOLL_",
    "SHARP_",
)
"""Variables recorded by prefix: the settings of communication libraries."""

SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CRED|COOKIE|AUTH|JWT", re.IGNORECASE)


def is_allowed(name: str) -> bool:
    if SECRET.search(name):
        return False
    return name in VARIABLES or name.startswith(PREFIXES)


def allowed_variables() -> dict[str, str]:
    """Return the allow-listed variables that are set, with their values."""
    return {name: value for name, value in sorted(os.environ.items()) if is_allowed(name)}


def redacted_command_line(arguments: Sequence[str]) -> str:
    """Return a command line in which *** replaces the values of variables that are not on the allow-list.

    Launchers accept variables as ``-genv NAME VALUE``, ``-x NAME=VALUE`` and
    ``--export=ALL,NAME=VALUE``.
    """

    def redacted_assignment(match: re.Match[str]) -> str:
        return match[0] if is_allowed(match[1]) else f"{match[1]}=***"

    shown = []
    option, name = "", ""  # the two arguments before this one
    for argument in arguments:
        if option.lstrip("-") in ("env", "genv") and not is_allowed(name):
            shown.append("***")
        else:
            shown.append(re.sub(r"\b([A-Z_][A-Z0-9_]*)=[^,]*", redacted_assignment, argument))
        option, name = name, argument
    return " ".join(shown)
