"""The command that starts the ranks of a job, as the workflow calls it for each: without the other commands."""

from collections.abc import Sequence
from pathlib import Path

from hpccoll.common.errors import check_arguments

INCOMPLETE = 3
"""The exit code if measurements are missing."""


def is_of_workflow(words: Sequence[str]) -> bool:
    """Return whether a command line is ``launch --out=F -- PLAN JOB``, as workflows/rules/measure.smk has it."""
    return (
        len(words) == 5
        and words[0] == "launch"
        and words[1].startswith("--out=")
        and words[2] == "--"
    )


def start_job(words: Sequence[str]) -> int:
    """Measure the missing cases of the job that such a command line names, and return the exit code."""
    from hpccoll.sweep.launch import launch

    check_arguments(words)
    _, out, _, plan_file, job = words
    if launch(Path(plan_file), job, Path(out.removeprefix("--out="))):
        return 0
    return INCOMPLETE
