"""The command line, as tests call it: inside this process, which takes milliseconds, or as a process of its own."""

import io
import json
import math
import os
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from checked_json import check_json

from hpccoll.__main__ import main
from hpccoll.cases.algorithm_registry import COLLECTIVES, PLAN
from hpccoll.cli import progress_counter

PROGRAMS = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}


@dataclass(frozen=True)
class CommandResult:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    def is_bad_input(self, *words):
        """Check that it is bad input, reported in one line that contains ``words``."""
        lines = self.err.splitlines()
        assert (self.code, len(lines), self.out) == (2, 1, ""), (
            f"{self.code}\n{self.out}\n{self.err}"
        )
        assert lines[0].startswith("hpccoll: ")
        assert not [word for word in words if str(word) not in lines[0]], lines[0]
        return True


def rows(printed):
    """Return the rows of the table that ``hpccoll run`` has printed."""
    return [line for line in printed.splitlines() if not line.startswith("#")]


def invoke(*arguments):
    """Run a command in this process, which is still to be interrupted as it was; stderr is without progress.

    JSON is held against its schema.
    """
    out, err, interrupted = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGINT)
    with (
        patch.object(sys, "argv", ["hpccoll", *map(str, arguments)]),
        patch.object(progress_counter, "FIRST_LINE_S", math.inf),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            check_json(arguments, out.getvalue())
            return CommandResult(int(end.code or 0), out.getvalue(), err.getvalue())
        finally:
            # in the main thread, where alone it is set
            if signal.getsignal(signal.SIGINT) is not interrupted:
                signal.signal(signal.SIGINT, interrupted)
            for family in COLLECTIVES.values():  # plans are algorithms of one process
                for name in [name for name in family.algorithms if name.startswith(PLAN)]:
                    del family.algorithms[name]
    raise AssertionError("a command ends with an exit code")


def spawn(*arguments, cwd=None, launcher=(), timeout=300, **variables):
    """Run a command as a process, or as the processes that ``launcher`` starts."""
    command = [*launcher, sys.executable, "-m", "hpccoll", *map(str, arguments)]
    environment = {**ENVIRONMENT, **variables}
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return CommandResult(ended.returncode, ended.stdout, ended.stderr)


EACH = """
import contextlib, io, json, sys
from hpccoll.cli.job_program import main
answers = {}
for name, arguments in json.load(sys.stdin).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments, sys.argv[1])
    answers[name] = code, out.getvalue(), err.getvalue()
json.dump(answers, sys.stdout)
"""


def answers_of_a_rank(command, requested, cwd):
    """Return the results of ``run`` or ``train`` by the names of their arguments, from one process: MPI starts once."""
    ended = subprocess.run(
        [sys.executable, "-c", EACH, command],
        input=json.dumps(requested),
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return {name: CommandResult(*answer) for name, answer in json.loads(ended.stdout).items()}
