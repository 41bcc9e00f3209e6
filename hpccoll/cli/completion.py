"""The script that completes commands and options in a shell, made by shtab from the parsers of all commands."""

import argparse

import shtab

from hpccoll.cli.command import Command
from hpccoll.cli.main import shown_commands


def completion_script(shell: str) -> str:
    """Return the script for a shell: bash, zsh or tcsh."""
    program = argparse.ArgumentParser("hpccoll")
    commands = program.add_subparsers()
    for _, name, command in shown_commands():
        parents = []
        if isinstance(command, Command):
            parents.append(command.parser())
        elif hasattr(command, "build_parser"):
            parents.append(command.build_parser())
        commands.add_parser(name, help=command.summary, parents=parents, add_help=False)
    script: str = shtab.complete(program, shell=shell)
    return script
