"""Where a part of ``gpu.py`` runs: its GPU, its time, and the commands with which it starts ranks."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bare import ROOT
from verdicts import Verdict

if TYPE_CHECKING:
    from hpccoll.transports.gpu import Gpu

TESTS = ROOT / "tests"
MARGIN_S = 5
"""Seconds before the end of a part in which it says how far it came."""
EXCEPTION = re.compile(r"[\w.]+(Warning|Exception)\b")
"""The begin of the last line of a traceback, beside names in Error."""


class Here:
    """What a part is given.

    Args:
        out: the directory of what is left.
        seconds: the time for this part, after which it begins nothing more.
        limit: the time after which it is ended.
        keyword: of the tests those whose names have this, None for all.
        shard: which part of the tests, of how many.
        on_host: the directory of the NCCL test library, which stands for GPUs and NCCL; None on
            real GPUs.
        tell: writes a verdict that the function of the part does not yield.
    """

    def __init__(
        self,
        out: Path,
        seconds: float,
        limit: float | None = None,
        keyword: str | None = None,
        shard: Sequence[int] = (1, 1),
        on_host: str | Path | None = None,
        tell: Callable[[Verdict], object] = print,
    ) -> None:
        self.out, self.keyword, self.shard, self.tell = Path(out), keyword, shard, tell
        self.on_host = Path(on_host) if on_host else None
        now = time.monotonic()
        self._end, self._limit = now + seconds, now + (seconds if limit is None else limit)

    @property
    def seconds_left(self) -> float:
        """The seconds in which the part may begin something more."""
        return self._end - time.monotonic()

    @property
    def limit_left(self) -> float:
        """The seconds that something may take before the part is ended."""
        return max(1.0, self._limit - time.monotonic() - MARGIN_S)

    @cached_property
    def gpu(self) -> "Gpu":
        """The first GPU; parts without ranks use no other."""
        if self.on_host:
            from nccl_on_host import HostGpu

            return HostGpu(self.on_host)
        from hpccoll.transports.gpu import Gpu

        return Gpu(0)

    @cached_property
    def gpus(self) -> int:
        """The number of GPUs of this machine; the NCCL test library stands for one."""
        from hpccoll.transports.gpu import device_count

        return 1 if self.on_host else device_count()

    def rank_program(self, ranks: int, program: str, *arguments: str) -> list[str]:
        """Return the command that starts a program of tests/, which finds its GPU with tests/gpu/rank_gpu.py."""
        from launch import mpiexec

        host = ["host", str(self.on_host)] if self.on_host else []
        return [*mpiexec(ranks), sys.executable, str(TESTS / program), *arguments, *host]

    def rank_command(self, ranks: int, program: str, *arguments: str) -> list[str]:
        """Return the command that starts a program of this directory, whose first argument says where its GPU is."""
        from launch import mpiexec

        place = str(self.on_host or "gpu")
        return [
            *mpiexec(ranks),
            sys.executable,
            str(Path(__file__).with_name(program)),
            place,
            *arguments,
        ]

    def hpccoll_run(self, ranks: int, *arguments: str) -> list[str]:
        """Return the command of ``hpccoll run``, or of ``train`` if that is the first argument, on so many ranks.

        They share GPUs if there are too few.
        """
        from launch import mpiexec

        host = [str(TESTS / "measure" / "nccl_on_host_ranks.py"), str(self.on_host)]
        program = (
            host
            if self.on_host
            else [str(Path(__file__).with_name("run_ranks.py")), str(self.gpus)]
        )
        return [*mpiexec(ranks), sys.executable, *program, *arguments]


def rank_environment() -> dict[str, str]:
    """Return the environment of programs of tests/, whose ranks may be more than there are cores."""
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    more = {
        "PYTHONPATH": paths,
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MPI4PY_RC_THREAD_LEVEL": "multiple",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    return {**os.environ, **more}


def launched(
    command: Sequence[str], seconds: float, more: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """Return the exit code and the output of a launch; no code if it takes longer than ``seconds``.

    Args:
        command: the launch.
        seconds: its limit.
        more: variables besides those of ``rank_environment``.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**rank_environment(), **(more or {})},
    ) as started:
        code: int | None = None
        try:
            output, _ = started.communicate(timeout=seconds)
            code = started.returncode
        except subprocess.TimeoutExpired:
            started.terminate()  # the launcher ends its ranks
            try:
                output, _ = started.communicate(timeout=MARGIN_S)
            except subprocess.TimeoutExpired:
                started.kill()
                output = ""
    sys.stdout.write(f"$ {' '.join(command)}\n{output}\n")  # in the log of the part
    return code, output


def errors_of(output: str) -> list[str]:
    """Return the lines of an output that name an error of Python; a warning can be one, too (``python -W error``)."""
    lines = (line for line in output.splitlines() if not line.startswith(" "))
    return [line for line in lines if "Error" in line or EXCEPTION.match(line)]


def last_words(output: str) -> str:
    """Return the line of an output that says what failed: the last error of Python, or the last line."""
    lines = [line for line in output.splitlines() if line.strip()]
    return [*lines[-1:], *errors_of(output)[-1:]][-1][:300] if lines else "it printed nothing"
