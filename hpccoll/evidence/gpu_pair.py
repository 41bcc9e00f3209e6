"""Whether MPI moves GPU memory between two nodes: what a launch of two ranks has left in a file.

A library that cannot do so may crash. The launch is therefore one of its own, which writes STARTED
before the first transfer and the outcome after the last: if STARTED is left, the launch died in
between.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from hpccoll.common.errors import BadInputError
from hpccoll.common.files import read_json
from hpccoll.common.limits import JOB_BYTES
from hpccoll.common.records import from_builtins, to_builtins

State: TypeAlias = Literal["started", "correct", "wrong"]

STARTED: State = "started"
CORRECT: State = "correct"
WRONG: State = "wrong"
"""The states of a pair: transfers have begun; the received data are correct, or wrong."""

NOT_TRIED = "whether MPI moves GPU memory between nodes was not tried; 'hpccoll sweep' and slurm/gpu-mpi.sbatch try it"
"""What a launch on several nodes says of itself without the file of a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPair:
    """The outcome of a pair."""

    state: State
    hosts: tuple[str, ...]  # the hosts of both ranks
    failure: str = ""  # how the launch ended, where its launcher knows; empty otherwise

    @property
    def description(self) -> str:
        """The outcome in words."""
        transfer = f"GPU transfer between {' and '.join(self.hosts)}"
        if self.state != STARTED:
            return f"{transfer} {self.state}"
        return f"{transfer} did not end{f': its launch {self.failure}' if self.failure else ''}"

    def failed(self, failure: str | None) -> "GpuPair":
        """Return the outcome with how its launch ended."""
        return replace(self, failure=failure or "")

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(to_builtins(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> "GpuPair":
        """Return the outcome in a file.

        Raises:
            BadInputError: if the file is something else.
        """
        pair = from_builtins(read_json(path, "--gpu-pair", JOB_BYTES), cls, "--gpu-pair")
        if not pair.hosts:
            raise BadInputError("--gpu-pair", str(path), "a file of 'hpccoll run --try-gpu-pair'")
        return pair
