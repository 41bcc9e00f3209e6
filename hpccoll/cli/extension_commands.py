"""Commands that extensions bring, by their names; each reads its own words."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from hpccoll.common.errors import UnusableError
from hpccoll.common.extensions import extensions, imported_object


class ExtensionCommand(NamedTuple):
    """A command that an extension brings (``Extension.commands``)."""

    help: str  # what it does, a sentence
    main: Callable[[Sequence[str]], int]
    """Runs it with the words after its name, and returns the exit code; a BadInputError is printed as one line."""


def extension_command(name: str) -> ExtensionCommand | None:
    """Return the command of a name that an extension brings; None if none does."""
    for extension in extensions().values():
        if name in extension.commands:
            return _imported(extension.commands[name])
    return None


def extension_commands() -> Iterator[tuple[str, ExtensionCommand]]:
    """Yield the commands that extensions bring, each after its name."""
    for extension in extensions().values():
        for name, brought in extension.commands.items():
            yield name, _imported(brought)


def _imported(name: str) -> ExtensionCommand:
    command = imported_object(name)
    if not isinstance(command, ExtensionCommand):
        raise UnusableError(f"command {name}", "it is not a hpccoll.cli.extension_commands.ExtensionCommand")
    return command
