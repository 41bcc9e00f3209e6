"""Commands that extensions bring: of their own, those that measure a job on ranks, and commands of two words."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hpccoll.common.extensions import (
    bundled_contribution,
    bundled_extensions,
    contributed,
    contributed_names,
)

if TYPE_CHECKING:
    from hpccoll.cases.product import CaseRequest
    from hpccoll.cli.command import Command


class WordsCommand(NamedTuple):
    """A command that reads its words itself; extensions name commands of their own under ``commands``."""

    summary: str  # what it does, a sentence
    main: Callable[[Sequence[str]], int]
    """Runs it with the words after its name, and returns the exit code; a BadInputError is printed as one line."""


def extension_command(name: str) -> WordsCommand | None:
    """Return the command of this name that an extension brings; None if none does."""
    command: WordsCommand | None = contributed("commands", name)
    return command


def extension_commands() -> Iterator[tuple[str, WordsCommand]]:
    """Yield the commands that extensions bring, each after its name."""
    for name in contributed_names("commands"):
        yield name, contributed("commands", name)


class JobCommand(Protocol):
    """A command beside ``run`` that measures what its own options describe; its other options are those of ``run``.

    Extensions name them under ``job_commands``.
    """

    summary: str
    """What it does, a sentence."""

    def build_parser(self) -> argparse.ArgumentParser:
        """Return the parser of its options.

        What only ``run`` has keeps its default; ``dry_run`` says whether nothing is to be measured.
        """

    def request(self, arguments: argparse.Namespace) -> "CaseRequest":
        """Return what the options ask for.

        Raises:
            BadInputError: if a value is invalid.
        """

    def print_dry_run(self, arguments: argparse.Namespace) -> None:
        """Print what would be measured."""


def is_job_command(name: str) -> bool:
    """Return whether ``job_command`` finds a command of this name, which is not imported."""
    for extension in bundled_extensions().values():
        if name in extension.job_commands:
            return True
    return False


def job_command(name: str) -> JobCommand | None:
    """Return the command of this name; None if no extension that comes with hpccoll brings it."""
    command: JobCommand | None = bundled_contribution("job_commands", name)
    return command


def subcommands(name: str) -> "dict[str, Command]":
    """Return the commands of two words that begin with this one, by their second words; extensions bring them."""
    commands = {}
    for words in contributed_names("subcommands"):
        first, _, second = words.partition(" ")
        if first == name:
            commands[second] = contributed("subcommands", words)
    return commands
