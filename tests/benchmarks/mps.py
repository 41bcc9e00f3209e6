"""A server of CUDA's Multi-Process Service of our own, so that ranks that share a GPU run at the same time."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
CLIENT = "import cupy; cupy.zeros(1).sum(); cupy.cuda.runtime.deviceSynchronize()"
"""A program that fails where a server does not take clients, as in a container without its IPC."""

SECONDS = 30
QUIT = "quit -t 10\n"
"""Ends the server after 10 s also if a client has left a kernel that never ends."""


@contextmanager
def mps_server() -> Iterator[tuple[Mapping[str, str], str]]:
    """Start a server with directories of its own, and end it.

    Yields:
        the variables of its clients, and how ranks share the GPU: without a server they take turns.
    """
    if not shutil.which(CONTROL):
        yield {}, f"in turns: there is no {CONTROL}"
        return
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or Path("/tmp/nvidia-mps/control").exists():  # noqa: S108  CUDA's default
        yield {}, "by a server of MPS that was there before"
        return
    # short: it holds sockets
    with tempfile.TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as place:
        pipe, logs = Path(place) / "pipe", Path(place) / "log"
        pipe.mkdir()
        logs.mkdir()
        own = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
        environment = {**os.environ, **own}
        try:
            reason = _start(environment)
            if reason:
                yield {}, f"in turns: {CONTROL} does not serve: {reason}"
            else:
                yield own, f"under MPS, by {CONTROL}"
        finally:
            with suppress(subprocess.SubprocessError):
                subprocess.run(
                    [CONTROL],
                    input=QUIT,
                    text=True,
                    env=environment,
                    timeout=SECONDS,
                    check=False,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )


def _start(environment: Mapping[str, str]) -> str | None:
    """Start the server, and return why it takes no client; None if it takes one."""
    for command in ([CONTROL, "-d"], [sys.executable, "-c", CLIENT]):
        try:
            # The daemon keeps a pipe open: its output goes to a file.
            with tempfile.TemporaryFile("w+") as said:
                ran = subprocess.run(
                    command, env=environment, stdout=said, stderr=said, timeout=SECONDS, check=False
                )
                said.seek(0)
                lines = said.read().split("\n")
        except subprocess.TimeoutExpired:
            return f"{Path(command[0]).name} took more than {SECONDS} s"
        if ran.returncode:
            return next(
                (line for line in reversed(lines) if line.strip()), f"exit code {ran.returncode}"
            )[:200]
    return None
