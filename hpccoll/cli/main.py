"""The program of all commands, and its exit codes. Ranks never import this module."""

import sys
from typing import Annotated

import typer

from hpccoll.cli import comparing, info, prediction, results, sweeps, tuning
from hpccoll.common.errors import check_arguments, to_one_line
from hpccoll.common.version import __version__

app = typer.Typer(
    name="hpccoll",
    help="How fast a cluster's collectives are, why, and what to do about it.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for commands in (sweeps, results, comparing, tuning, prediction, info):
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
        return int(app(standalone_mode=False) or 0)
    except typer.TyperException as error:
        context, words = getattr(error, "ctx", None), ["--help"]
        while context and context.parent:
            words.insert(0, context.info_name or "")
            context = context.parent
        where = " ".join(("hpccoll", *words))
        message = to_one_line(error.format_message())
        end = "" if message.endswith((".", "?")) else "."
        typer.echo(f"hpccoll: {message}{end} See '{where}'.", err=True)
        return error.exit_code
    except typer.Abort:
        return 1
