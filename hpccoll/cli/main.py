"""The program of all commands, and its exit codes. Ranks never import this module."""

import sys
from collections.abc import Mapping
from typing import Annotated, ClassVar, cast

import typer
from typer.main import get_command

from hpccoll.cli import accepting, comparing, info, prediction, results, sweeps, tracing, tuning
from hpccoll.cli.command_help import RENAMED, PlainCommand, PlainGroup, command_path
from hpccoll.cli.extension_commands import extension_command, extension_commands
from hpccoll.common.errors import check_arguments, to_one_line
from hpccoll.common.extensions import contributed_names
from hpccoll.common.version import __version__


class Program(PlainGroup):
    """All commands, by what they are for."""

    titles: ClassVar[Mapping[str, str]] = {
        "Measure": f"sweep plan run {' '.join(contributed_names('job_commands'))} diagnose doctor",
        "Read results": "report status compare accept export import evidence trace",
        "Choose and predict": "tune fit predict",
        "Look up": "list show",
    }

    def more_groups(self) -> Mapping[str, list[tuple[str, str]]]:
        return {"Of extensions": [(name, brought.help) for name, brought in extension_commands()]}


app = typer.Typer(
    name="hpccoll",
    cls=Program,
    help="How fast a cluster's collectives are, why, and what to do about it.",
    epilog="Example: hpccoll sweep    # about a minute on two cores; it prints what to use",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for commands in (sweeps, results, comparing, accepting, tuning, prediction, tracing, info):
    for command in commands.family.registered_commands:
        if not issubclass(command.cls or object, PlainCommand):
            command.cls = PlainCommand
    app.add_typer(commands.family)


@app.callback(invoke_without_command=True)
def hpccoll(
    context: typer.Context, *, version: Annotated[bool, typer.Option("--version", help="version number")] = False
) -> None:
    if version:
        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> int:
    """Run the command line and return its exit code; a mistake in it is printed as one line."""
    try:
        check_arguments(sys.argv)
        program = cast("Program", get_command(app))
        name, *words = sys.argv[1:] or ["--help"]
        is_own = name.startswith("-") or name in program.commands or name in RENAMED
        command = None if is_own else extension_command(name)
        if command:
            return command.main(words)
        return int(program(standalone_mode=False) or 0)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        where = f"{command_path(context) if context else 'hpccoll'} --help"
        message = to_one_line(error.format_message())
        end = "" if message.endswith((".", "?")) else "."
        typer.echo(f"hpccoll: {message}{end} See '{where}'.", err=True)
        return error.exit_code
    except typer.Abort:
        return 1
