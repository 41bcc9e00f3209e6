"""Commands and groups of Typer whose help is ``help_page``; ``typer.Option(rich_help_panel=)`` names a group of it."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar

import typer.core
import typer.main

from hpccoll.cases.keys import Option
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
        params = self.get_params(ctx)
        arguments = [param for param in params if param.param_type_name == "argument"]
        groups = {ARGUMENTS: [(_metavar(argument), _text(argument)) for argument in arguments], **_options(params)}
        for entries in groups.values():
            entries[:] = [(name, self.complete(text)) for name, text in entries]
        usage = " ".join([command_path(ctx), *map(_metavar, arguments), "[OPTIONS]"])
        summary = self.complete(self.help or "")
        end = self.complete(self.epilog or "")
        return help_page(usage, summary, groups, end)

    def get_short_help_str(self, limit: int = 45) -> str:
        return self.complete(super().get_short_help_str(limit))

    def complete(self, text: str) -> str:
        """Return a text of the help as it is printed."""
        return text


class CommandOfExtensions(PlainCommand):
    """A command to which extensions add options and words: ``{name}`` in its help stands for words of theirs.

    Extensions are asked only if the command runs, or its help is printed.
    """

    options_before: ClassVar[str] = ""
    """The option before which those of extensions stand in the help, in the group of the option before it."""

    def options_of_extensions(self) -> Sequence[Option]:
        """Return the options that extensions add; the command finds their values, by long names, in ``context.obj``."""
        return ()

    def words_of_extensions(self) -> Mapping[str, str]:
        """Return what stands for each name in the help."""
        return {}

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        place = [param.opts[-1] for param in params].index(self.options_before) if self.options_before else len(params)
        group = getattr(params[place - 1], "rich_help_panel", None)
        added = [_typer_option(option, group) for option in self._options]
        return [*params[:place], *added, *params[place:]]

    def invoke(self, ctx: Any) -> Any:
        ctx.obj = {option.flags[-1]: ctx.params.pop(_parameter(option)) for option in self._options}
        return super().invoke(ctx)

    @cached_property
    def _options(self) -> Sequence[Option]:
        return self.options_of_extensions()

    def complete(self, text: str) -> str:
        return text.format(**self._words)

    @cached_property
    def _words(self) -> Mapping[str, str]:
        return self.words_of_extensions()


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
        groups |= self.more_groups()
        command_word = "[COMMAND]" if self.invoke_without_command else "COMMAND"
        usage = f"{command_path(ctx)} {command_word} [OPTIONS]"
        return help_page(usage, self.help or "", {**groups, **_options(self.get_params(ctx))}, self.epilog or "")

    def more_groups(self) -> Mapping[str, list[tuple[str, str]]]:
        """Return further parts of the help, each with its commands and what they do."""
        return {}

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


def _parameter(option: Option) -> str:
    """Return the name under which Typer keeps the value of an option of an extension."""
    return option.flags[-1].removeprefix("--").replace("-", "_")


def _typer_option(option: Option, group: str | None) -> Any:
    """Return an option of an extension as one of Typer, which makes options of functions only."""
    about: Any = typer.Option(*option.flags, help=option.help, metavar=option.metavar, rich_help_panel=group)

    def command(value: Annotated[str | None, about] = option.default) -> None:
        pass

    made_for_it = typer.Typer(add_completion=False)
    made_for_it.command()(command)
    (typer_option, *_) = typer.main.get_command(made_for_it).params
    typer_option.name = _parameter(option)
    return typer_option


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
