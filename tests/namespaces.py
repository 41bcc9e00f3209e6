"""Situations of other machines in namespaces of Linux that belong to a test alone: names of hosts, mounts."""

import subprocess
import sys

from cli_runner import ENVIRONMENT, CommandResult

PROGRAM = f"{sys.executable} -m hpccoll"
"""The command line for the shell of a situation."""


def unshared(require, options, script, *, timeout=300, **variables):
    """Run a script of bash in new namespaces; the test is skipped where this user may not have them.

    Args:
        require: the fixture of that name.
        options: the options of unshare, such as -u for a host name or -m for mounts.
        script: the script, which only changes what belongs to the namespaces.
        timeout: the limit of the script in seconds.
        variables: further environment variables.
    """
    allowed = subprocess.run(
        ["unshare", *options, "true"], capture_output=True, text=True, check=False
    )
    require(
        allowed.returncode == 0, f"unshare {' '.join(options)} is refused: {allowed.stderr.strip()}"
    )
    ended = subprocess.run(
        ["unshare", *options, "bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**ENVIRONMENT, **variables},
    )
    return CommandResult(ended.returncode, ended.stdout, ended.stderr)
