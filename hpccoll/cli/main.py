"""The program of all commands, and its exit codes. Ranks never import this module."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from hpccoll.cli.extension_commands import WordsCommand, extension_command, extension_commands
from hpccoll.cli.help_page import help_page
from hpccoll.cli.job_program import main as run_job
from hpccoll.common.errors import BadInputError, UnusableError, check_arguments, did_you_mean
from hpccoll.common.extensions import contributed, contributed_names, imported_object
from hpccoll.common.interruption import INTERRUPTED
from hpccoll.common.version import __version__

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Measure": {
        "sweep": "hpccoll.cli.sweeps:SWEEP_COMMAND",
        "plan": "hpccoll.cli.sweeps:PLAN",
        "run": "hpccoll.cli.sweeps:RUN",
        "diagnose": "hpccoll.cli.sweeps:DIAGNOSE",
        "doctor": "hpccoll.cli.info:DOCTOR",
    },
    "Read results": {
        "report": "hpccoll.cli.results:REPORT",
        "status": "hpccoll.cli.results:STATUS",
        "compare": "hpccoll.cli.comparing:COMPARE",
        "accept": "hpccoll.cli.accepting:ACCEPT",
        "export": "hpccoll.cli.results:EXPORT",
        "import": "hpccoll.cli.comparing:IMPORT",
        "evidence": "hpccoll.cli.info:EVIDENCE",
        "trace": "hpccoll.cli.tracing:TRACE",
    },
    "Choose and predict": {
        "tune": "hpccoll.cli.tuning:TUNE",
        "fit": "hpccoll.cli.tuning:FIT",
        "predict": "hpccoll.cli.prediction:PREDICT",
    },
    "Look up": {
        "list": "hpccoll.cli.info:LIST",
        "show": "hpccoll.cli.info:SHOW",
    },
}
"""The commands, each imported when it is needed, by the titles of their groups in the help."""

HIDDEN = {"launch": "hpccoll.cli.sweeps:LAUNCH"}
"""The commands that the workflow calls."""

RENAMED = {
    "model": "it is named 'fit'",
    "validate": "it is part of 'status PATHS...'",
    "export-schedule": "it is 'show ALGORITHM -p P -b BYTES --format goal'",
}
"""The commands of earlier versions, and what replaces them."""

SUMMARY = "How fast a cluster's collectives are, why, and what to do about it."
EXAMPLE = "Example: hpccoll sweep    # about a minute on two cores; it prints what to use"
OF_EXTENSIONS, OPTIONS = "Of extensions", "Options"
SHELLS = "bash", "zsh", "tcsh"


class NamedCommand(Protocol):
    """A command of the program."""

    @property
    def summary(self) -> str:
        """What it does, a sentence."""

    def main(self, words: Sequence[str]) -> int:
        """Run it with the words that follow its name, and return the exit code."""


def main() -> int:
    """Run the command line and return its exit code.

    Raises:
        BadInputError: if there is no such command, or an option is invalid; and whatever the command raises.
    """
    check_arguments(sys.argv)
    name, *words = sys.argv[1:] or ["--help"]
    match name:
        case "--help" | "-h":
            print(page())
            return 0
        case "--version":
            print(__version__)
            return 0
        case "--completion":
            return _print_completion(words)
    try:
        return find_command(name).main(words)
    except KeyboardInterrupt:  # a traceback of what it interrupted says nothing
        return INTERRUPTED


def find_command(name: str) -> NamedCommand:
    """Return the command of a name.

    Raises:
        BadInputError: if there is none.
    """
    own_commands = {**HIDDEN}
    for of_group in COMMANDS.values():
        own_commands |= of_group
    if name in own_commands:
        command: NamedCommand = imported_object(own_commands[name])
        return command
    if name in RENAMED:
        raise UnusableError(f"no command '{name}'", RENAMED[name])
    brought = extension_command(name)
    if brought:
        return brought
    if name.startswith("-"):
        raise UnusableError(f"no option {name}", "see 'hpccoll --help'")
    names = (*own_commands, *contributed_names("job_commands"), *contributed_names("commands"))
    raise UnusableError(f"no command '{name}'", f"{did_you_mean(name, names)}see 'hpccoll --help'")


def shown_commands() -> Iterator[tuple[str, str, NamedCommand]]:
    """Yield the commands of the help: the title of the group, the name, and the command."""
    for title, of_group in COMMANDS.items():
        for name in of_group:
            yield title, name, find_command(name)
            if name == "run":
                yield from _job_commands(title)
    for name, command in extension_commands():
        yield OF_EXTENSIONS, name, command


def _job_commands(title: str) -> Iterator[tuple[str, str, NamedCommand]]:
    """Yield the commands of extensions that measure as ``run`` does; ``hpccoll.__main__`` starts them."""
    for name in contributed_names("job_commands"):
        command = contributed("job_commands", name)
        yield title, name, WordsCommand(command.summary, partial(run_job, command=name))


def page() -> str:
    """Return the help of the program."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for title, name, command in shown_commands():
        groups.setdefault(title, []).append((name, command.summary))
    groups[OPTIONS] = [
        ("--version", "version number"),
        ("--completion SHELL", f"completion script for a shell: {', '.join(SHELLS)}"),
        ("--help", "this page"),
    ]
    return help_page("hpccoll [COMMAND] [OPTIONS]", SUMMARY, groups, EXAMPLE)


def _print_completion(words: Sequence[str]) -> int:
    """Print the script that completes commands and options in a shell."""
    from hpccoll.cli.completion import completion_script  # it imports all commands

    if len(words) != 1 or words[0] not in SHELLS:
        raise BadInputError("--completion", " ".join(words), SHELLS)
    print(completion_script(words[0]))
    return 0
