"""A launch as a child process: started, listened to, ended where it takes too long, and how it failed in few words."""

import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import IO

GRACE_S = 10.0
"""How long a launcher has for ending its ranks before it is killed."""

LAST_WORDS_S = 2.0
"""How long what a launch still has to say is listened to when it has ended."""

LOOK_S = 1.0
"""How often a launch that has to begin is looked at."""

KEPT = 200
"""Lines of a launch that are remembered of its beginning, and of its end: thousands of ranks have many."""


def run(
    command: Sequence[str], seconds: float, into: Path | None = None, begun: Callable[[], bool] | None = None
) -> str | None:
    """Run a launch and return how it failed, in the words that tell most; None for a success.

    Args:
        command: of the launcher.
        seconds: that it has until its end, or until it has begun, where that can be seen.
        into: a file for all that it says; None lets it pass to our own output.
        begun: whether it has begun; from then on others watch over it.
    """
    first, last = list[str](), deque[str](maxlen=KEPT)
    with ExitStack() as stack:
        log = stack.enter_context(into.open("w")) if into else None
        # Not a context: that would close the pipe, which waits for whoever reads from it, and he for its last writer.
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        listener = threading.Thread(target=_pass_on, args=(child, log or sys.stderr, first, last), daemon=True)
        listener.start()
        late = not _in_time(child, seconds, begun)
        if late:
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            child.kill()
            child.wait()
        listener.join(LAST_WORDS_S)  # whom a killed launcher leaves behind may hold the pipe for ever
    if child.returncode == 0:
        return None
    how = f"did not {'begin' if begun else 'end'} within {seconds:g} s" if late else _ended(child.returncode)
    told = telling([*first, *last])
    return f"{how}: {told}" if told else how


def _in_time(child: subprocess.Popen[str], seconds: float, begun: Callable[[], bool] | None) -> bool:
    """Wait for the end of a launch; return whether it has ended, or only begun, within ``seconds``."""
    until = time.monotonic() + seconds
    while True:
        left = until - time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, min(left, LOOK_S) if begun else left))
        if child.returncode is not None:
            return True
        if begun and begun():
            child.wait()
            return True
        if left <= 0:  # and it was looked at after that: this process may have stood still meanwhile
            return False


def _pass_on(child: subprocess.Popen[str], out: IO[str], first: list[str], last: deque[str]) -> None:
    """Let what a launch says on its stderr pass to ``out``, and remember the first lines and the last ones."""
    with child.stderr or nullcontext(()) as lines, suppress(ValueError):  # the file has been closed: it is too late
        for words in lines:
            out.write(words)
            out.flush()
            (first if len(first) < KEPT else last).append(words.strip())


def _ended(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


MEMORY = re.compile(r"oom.?kill|out of memory", re.IGNORECASE)
"""What Slurm says of a rank that used more memory than its job was given."""


WAITED = re.compile(r"Timeout \(.*\)!")
"""What a rank says that has waited too long as MPI started, or as rank 0 wrote the results."""

ERROR = re.compile(r"error\b", re.IGNORECASE)
"""What programs call it; who comes first may be the cause of the rest, as Slurm's PMI is of what MPI says after it."""


def telling(said: Sequence[str]) -> str | None:
    """Return what tells most: no memory, our line, a rank's last words, or how MPI failed.

    That is the first error, where ranks wait or the last line but Slurm's, and which task Slurm saw end first.
    """
    memory = (line for line in said if MEMORY.search(line))
    ours = (line.removeprefix("hpccoll: ") for line in said if line.startswith("hpccoll: "))
    ranks = (line for line in said if line.startswith("r") and " | " in line)
    return next(chain(memory, ours, ranks, filter(None, [_of_mpi(said)]), filter(None, reversed(said))), None)


def _of_mpi(said: Sequence[str]) -> str:
    """Return how MPI failed: the first error, and what it came to."""
    waited = next((line for line in said if WAITED.match(line)), None)
    before = said[: said.index(waited)] if waited else said
    error = next((line for line in before if ERROR.search(line) and not line.startswith("srun: ")), None)
    if waited:
        return "; ".join(
            filter(None, (error, f"a rank waited for the others, as MPI started or rank 0 wrote the results: {waited}"))
        )
    others = (line for line in reversed(said) if line and not line.startswith(("srun: ", "slurmstepd")))
    ended = next((line for line in said if line.startswith("srun: error: ")), None)
    return "; ".join(dict.fromkeys(filter(None, (error, next(others, None), ended))))
