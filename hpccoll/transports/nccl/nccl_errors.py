"""NCCL's errors: what its calls raise, their texts, and how one of them becomes an error of all ranks."""

import re
from collections.abc import Sequence


class NcclFailedError(RuntimeError):
    """NCCL failed; the message names a rank and has NCCL's error. It is raised on all ranks."""


class NcclRefusedError(NcclFailedError):
    """NCCL rejected a call, and would reject it again."""


NCCL_EXCEPTIONS = RuntimeError, KeyError
"""What a call of NCCL raises: CuPy's NcclError and that of nccl4py's calls here, which are
RuntimeErrors; or KeyError, because NcclError looks up the name of the status, and CuPy 14.2 lacks
some (cupy_backends/cuda/libs/nccl.pyx)."""

NAMELESS_STATUSES = {7: "ncclInProgress", 8: "ncclTimeout"}
"""The statuses that CuPy 14.2 has no name for (nccl.h of 2.30)."""

REFUSAL_PATTERN = re.compile(r"invalid[_ ]?(usage|argument)", re.IGNORECASE)
"""NCCL's error for what it does not support: an algorithm that a call lacks, or two ranks on one GPU."""


def nccl_error_text(error: Exception) -> str:
    """Return the text of one of NCCL_EXCEPTIONS.

    Raises:
        KeyError: the same one, if its key is not a status of NCCL.
    """
    if not isinstance(error, KeyError):
        return str(error)
    status = error.args[0] if error.args else None
    if status not in NAMELESS_STATUSES:
        raise error
    return f"status {status} of NCCL ({NAMELESS_STATUSES[status]})"


def raise_nccl_failure(errors: Sequence[str | None], action: str) -> None:
    """Raise an exception if NCCL failed on any rank, with the failed action as a verb phrase; all ranks call this.

    Raises:
        NcclRefusedError: if NCCL rejected a call on any rank.
        NcclFailedError: if there are only other errors.
    """
    failed = {rank: error for rank, error in enumerate(errors) if error}
    if not failed:
        return
    further = f", and at {len(failed) - 1} more of {len(errors)}" if len(failed) > 1 else ""
    for rank, error in failed.items():
        if REFUSAL_PATTERN.search(error):
            raise NcclRefusedError(f"NCCL {action} at rank {rank}: {error}{further}")
    rank, error = next(iter(failed.items()))
    raise NcclFailedError(f"NCCL {action} at rank {rank}: {error}{further}")
