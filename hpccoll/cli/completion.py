"""The script that completes commands and options in a shell, made by shtab from the parsers of all commands."""

import argparse
from collections.abc import Sequence

import shtab

from hpccoll.cli import run_options
from hpccoll.cli.command import Command
from hpccoll.cli.commands import shown_commands
from hpccoll.cli.diagnose import build_diagnose_parser
from hpccoll.cli.extension_commands import WordsCommand, job_command
from hpccoll.cli.order import build_order_parser
from hpccoll.common.errors import BadInputError

SHELLS = "bash", "zsh", "tcsh"


def print_completion(words: Sequence[str]) -> int:
    """Print the script for a shell.

    Raises:
        BadInputError: if it is not one of SHELLS.
    """
    if len(words) != 1 or words[0] not in SHELLS:
        raise BadInputError("--completion", " ".join(words), SHELLS)
    print(completion_script(words[0]))
    return 0


def completion_script(shell: str) -> str:
    """Return the script for a shell, one of SHELLS."""
    program = argparse.ArgumentParser("hpccoll")
    commands = program.add_subparsers()
    for _, name, command in shown_commands():
        parser = command.parser() if isinstance(command, Command) else _parser_of_ranks(name)
        parents = [parser] if parser else []
        commands.add_parser(name, help=command.summary, parents=parents, add_help=False)
    script: str = shtab.complete(program, shell=shell)
    return script


def _parser_of_ranks(name: str) -> argparse.ArgumentParser | None:
    """Return the parser of a command that ranks run; None of a command that reads its words itself."""
    if name == "run":
        return run_options.build_parser()
    if name == "diagnose":
        return build_diagnose_parser()
    if name == "order":
        return build_order_parser()
    command = job_command(name)
    if not command:
        return None
    return command.build_parser()


COMPLETION = WordsCommand(
    "Print the script that completes commands and options in a shell.", print_completion
)
