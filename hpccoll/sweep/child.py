"""A launch as a child process: started, listened to, ended where it takes too long, and how it failed in few words."""

import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import IO

GRACE_S = 10.0
"""How long a launcher has for ending its ranks before it is killed."""

LAST_WORDS_S = 2.0
"""How long what a launch still has to say is listened to when it has ended."""


def run(command: Sequence[str], seconds: float | None = None, into: Path | None = None) -> str | None:
    """Run a launch and return how it failed, in the words that tell most; None for a success.

    Args:
        command: of the launcher.
        seconds: that it has, None for as many as it takes.
        into: a file for all that it says; None lets it pass to our own output.
    """
    said: deque[str] = deque(maxlen=200)
    late = False
    with ExitStack() as stack:
        log = stack.enter_context(into.open("w")) if into else None
        child = stack.enter_context(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.PIPE, text=True, errors="replace"
            )
        )
        listener = threading.Thread(target=_pass_on, args=(child, log or sys.stderr, said), daemon=True)
        listener.start()
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
            child.terminate()
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_S)
            child.kill()
            child.wait()
        listener.join(LAST_WORDS_S)  # whom a killed launcher leaves behind may hold the pipe for ever
    if child.returncode == 0:
        return None
    how = f"did not end within {seconds:g} s" if late else _ended(child.returncode)
    told = telling(said)
    return f"{how}: {told}" if told else how


def _pass_on(child: subprocess.Popen[str], out: IO[str], said: deque[str]) -> None:
    """Let what a launch says on its stderr pass to ``out``, and remember it."""
    with suppress(ValueError):  # the file has been closed: what is said so late is lost
        for words in child.stderr or ():
            out.write(words)
            out.flush()
            said.append(words.strip())


def _ended(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


MEMORY = re.compile(r"oom.?kill|out of memory", re.IGNORECASE)
"""What Slurm says of a rank that used more memory than its job was given."""


def telling(said: Sequence[str]) -> str | None:
    """Return what tells most: that memory ran out, our line, a rank's last words, or the last line that is not Slurm's.

    To that last one belongs which task Slurm saw end first.
    """
    memory = (line for line in said if MEMORY.search(line))
    ours = (line.removeprefix("hpccoll: ") for line in said if line.startswith("hpccoll: "))
    ranks = (line for line in said if line.startswith("r") and " | " in line)
    first = next((line for line in said if line.startswith("srun: error: ")), None)
    others = (line for line in reversed(said) if line and not line.startswith(("srun: ", "slurmstepd")))
    last = "; ".join(filter(None, (next(others, None), first)))
    return next(chain(memory, ours, ranks, [last] if last else [], filter(None, reversed(said))), None)
