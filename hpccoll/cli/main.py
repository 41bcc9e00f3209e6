"""The program of all commands, and its exit codes. Ranks never import this module."""

import sys

from hpccoll.cli.commands import find_command, shown_commands
from hpccoll.cli.help_page import help_page
from hpccoll.common.errors import UnusableError, check_arguments
from hpccoll.common.interruption import INTERRUPTED
from hpccoll.common.version import __version__

SUMMARY = "How fast a cluster's collectives are, why, and what to do about it."
EXAMPLE = "Example: hpccoll sweep    # about a minute on two cores; it prints what to use"
OPTIONS = "Options"


def main() -> int:
    """Run the command line and return its exit code.

    Raises:
        BadInputError: if there is no such command, or an option is invalid.
        Exception: what the command raises.
    """
    check_arguments(sys.argv)
    name, *words = sys.argv[1:] or ["--help"]
    match name:
        case "--help" | "-h" | "help":
            print(page())
            return 0
        case "--version":
            print(__version__)
            return 0
    try:
        return find_command(name).main(words)
    except KeyboardInterrupt:  # a traceback of what it interrupted says nothing
        return INTERRUPTED


def page() -> str:
    """Return the help of the program."""
    groups: dict[str, list[tuple[str, str]]] = {}
    end = EXAMPLE
    try:
        for title, name, command in shown_commands():
            groups.setdefault(title, []).append((name, command.summary))
    except UnusableError as error:  # a package that is broken does not take the help away
        end += f"\n\n{error}"
    groups[OPTIONS] = [
        ("--version", "version number"),
        ("--completion SHELL", "completion script for a shell: bash, zsh, tcsh"),
        ("--help", "this page"),
    ]
    return help_page("hpccoll [COMMAND] [OPTIONS]", SUMMARY, groups, end)
