"""Commands and groups of Typer whose help is ``help_page``; ``typer.Option(rich_help_panel=)`` names a group of it."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import typer.core

from hpccoll.cli.help_page import help_page
from hpccoll.common.errors import UnusableError

ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"

RENAMED = {
    "model": "it is named 'fit'",
    "validate": "it is part of 'status PATHS...'",
    "export-schedule": "it is 'show ALGORITHM -p P -b BYTES --format goal'",
}
"""The commands of earlier versions, and what replaces them."""


def command_path(context: Any) -> str:
    """Return a command as it is typed, however this program was started."""
    names: list[str] = []
    while context.parent:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(("hpccoll", *names))


class PlainCommand(typer.core.TyperCommand):
    """A command with the help of this package."""

    def get_help(self, ctx: Any) -> str:
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        groups = {ARGUMENTS: [(_metavar(each), _text(each)) for each in arguments], **_options(self.get_params(ctx))}
        usage = " ".join([command_path(ctx), *map(_metavar, arguments), "[OPTIONS]"])
        return help_page(usage, self.help or "", groups, self.epilog or "")


class PlainGroup(typer.core.TyperGroup):
    """A group of commands with the help of this package."""

    titles: ClassVar[Mapping[str, str]] = {}
    """The commands of each part of the help, if it has several, as one text."""

    def get_help(self, ctx: Any) -> str:
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        texts = {name: command.get_short_help_str(200) for name, command in shown.items()}
        groups = {}
        for title, names in (self.titles or {COMMANDS: " ".join(shown)}).items():
            groups[title] = [(name, texts[name]) for name in names.split()]
        command_word = "[COMMAND]" if self.invoke_without_command else "COMMAND"
        usage = f"{command_path(ctx)} {command_word} [OPTIONS]"
        return help_page(usage, self.help or "", {**groups, **_options(self.get_params(ctx))}, self.epilog or "")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in RENAMED and not ctx.parent:
            raise UnusableError(f"no command '{args[0]}'", RENAMED[args[0]])
        return super().resolve_command(ctx, args)


def _options(params: Iterable[Any]) -> dict[str, list[tuple[str, str]]]:
    """Return the options of each group of the help."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for each in params:
        if each.param_type_name == "option" and not each.hidden:
            last = next(reversed(groups), OPTIONS) if each.name == "help" else OPTIONS
            title = getattr(each, "rich_help_panel", None) or last
            groups.setdefault(title, []).append((_option(each), _text(each)))
    return groups


def _metavar(argument: Any) -> str:
    name: str = argument.metavar or argument.name.upper()
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _option(option: Any) -> str:
    """Return an option as the help names it: its flags, and the placeholder of its value."""
    if option.secondary_opts:
        return f"--[no-]{option.opts[0].removeprefix('--')}"
    flags = ", ".join(sorted(option.opts, key=len))
    placeholder = "" if option.is_flag else option.metavar or option.name.strip("_").rpartition("_")[2].upper()
    return f"{flags} {placeholder}".rstrip()


def _text(param: Any) -> str:
    """Return the help of a parameter with its default in brackets, unless it has one."""
    text: str = "this page" if param.name == "help" else param.help or ""
    if getattr(param, "is_flag", False) or "[" in text:
        return text
    if param.required and param.param_type_name == "option":
        return f"{text} [required]"
    return text if param.default is None else f"{text} [{param.default}]"
