"""The table of all commands. Ranks never import this module."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from hpccoll.cli.extension_commands import WordsCommand, extension_command, extension_commands
from hpccoll.cli.job_program import main as run_job
from hpccoll.common.errors import UnusableError, did_you_mean
from hpccoll.common.extensions import (
    bundled_contribution,
    bundled_names,
    contributed_names,
    imported_object,
)

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "Measure": {
        "sweep": "hpccoll.cli.sweep:SWEEP",
        "plan": "hpccoll.cli.sweep:PLAN",
        "run": "hpccoll.cli.sweep:RUN",
        "diagnose": "hpccoll.cli.sweep:DIAGNOSE",
        "count": "hpccoll.cli.count:COUNT",
        "order": "hpccoll.cli.sweep:ORDER",
        "doctor": "hpccoll.cli.info:DOCTOR",
    },
    "Read results": {
        "report": "hpccoll.cli.report:REPORT",
        "status": "hpccoll.cli.report:STATUS",
        "compare": "hpccoll.cli.compare:COMPARE",
        "accept": "hpccoll.cli.accept:ACCEPT",
        "export": "hpccoll.cli.report:EXPORT",
        "import": "hpccoll.cli.compare:IMPORT",
        "evidence": "hpccoll.cli.info:EVIDENCE",
        "trace": "hpccoll.cli.trace:TRACE",
    },
    "Choose and predict": {
        "tune": "hpccoll.cli.tune:TUNE",
        "fit": "hpccoll.cli.tune:FIT",
        "predict": "hpccoll.cli.predict:PREDICT",
    },
    "Look up": {
        "list": "hpccoll.cli.info:LIST",
        "show": "hpccoll.cli.info:SHOW",
    },
}
"""The commands, each imported when it is needed, by the titles of their groups in the help."""

HIDDEN = {"launch": "hpccoll.cli.sweep:LAUNCH", "--completion": "hpccoll.cli.completion:COMPLETION"}
"""What the workflow calls, and what an option of the program does."""

RENAMED = {
    "model": "it is named 'fit'",
    "validate": "it is part of 'status PATHS...'",
    "export-schedule": "it is 'show ALGORITHM -p P -b BYTES --format goal'",
}
"""The commands of earlier versions, and what replaces them."""

OF_EXTENSIONS = "Of extensions"
"""The title of the group of commands that extensions bring."""


class NamedCommand(Protocol):
    """A command of the program."""

    @property
    def summary(self) -> str:
        """What it does, a sentence."""

    def main(self, words: Sequence[str]) -> int:
        """Run it with the words that follow its name, and return the exit code."""


def own_commands() -> dict[str, str]:
    """Return where each command of hpccoll itself is, by name."""
    commands = dict(HIDDEN)
    for commands_of_group in COMMANDS.values():
        commands |= commands_of_group
    return commands


def find_command(name: str) -> NamedCommand:
    """Return the command of a name.

    Raises:
        BadInputError: if there is none.
    """
    if name in own_commands():
        command: NamedCommand = imported_object(own_commands()[name])
        return command
    if name in RENAMED:
        raise UnusableError(f"no command '{name}'", RENAMED[name])
    brought = extension_command(name)
    if brought:
        return brought
    if name.startswith("-"):
        raise UnusableError(f"no option {name}", "see 'hpccoll --help'")
    names = (*own_commands(), *bundled_names("job_commands"), *contributed_names("commands"))
    raise UnusableError(f"no command '{name}'", f"{did_you_mean(name, names)}see 'hpccoll --help'")


def shown_commands() -> Iterator[tuple[str, str, NamedCommand]]:
    """Yield the commands of the help: the title of the group, the name, and the command.

    Those of other packages come last.

    Raises:
        UnusableError: if such a package cannot be imported, or has a command with the name of one
            of hpccoll.
    """
    for title, commands_of_group in COMMANDS.items():
        for name in commands_of_group:
            yield title, name, find_command(name)
            if name == "run":
                yield from _job_commands(title)
    for name, command in extension_commands():
        if name in own_commands():
            raise UnusableError(
                f"command {name} of an extension", "hpccoll has a command of this name"
            )
        yield OF_EXTENSIONS, name, command


def _job_commands(title: str) -> Iterator[tuple[str, str, NamedCommand]]:
    """Yield the commands of extensions that measure as ``run`` does; ``hpccoll.__main__`` starts them."""
    for name in bundled_names("job_commands"):
        command = bundled_contribution("job_commands", name)
        yield title, name, WordsCommand(command.summary, partial(run_job, command=name))
