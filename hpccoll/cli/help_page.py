"""The help of a command, in one form for ``run`` and ``train``, which argparse reads, and for the commands of Typer."""

import shutil
from collections.abc import Iterable, Mapping
from textwrap import fill, wrap
from typing import TypeAlias

MAX_COLUMNS = 100
"""A page is as wide as the terminal, and no wider than this."""
MAX_NAME_COLUMNS = 26
"""A longer name of an option stands in a line of its own."""

Entries: TypeAlias = Iterable[tuple[str, str]]
"""The lines of a group: an option, an argument or a command, and what it is."""


def help_page(usage: str, summary: str, groups: Mapping[str, Entries], end: str) -> str:
    """Return the help of a command, without a line break at its end.

    Args:
        usage: the command line, without the word Usage.
        summary: paragraphs, which are wrapped.
        groups: the options by the titles of their groups; empty groups are left out.
        end: lines that are printed as they are, such as examples.
    """
    columns = min(shutil.get_terminal_size().columns, MAX_COLUMNS)
    first, *further = (
        fill(" ".join(paragraph.split()), columns, break_on_hyphens=False)
        for paragraph in summary.split("\n\n")
    )
    parts = [f"Usage: {usage}\n{first}", *further]
    tables = {title: [*entries] for title, entries in groups.items()}
    names = [name for entries in tables.values() for name, _ in entries]
    width = max((len(name) for name in names if len(name) <= MAX_NAME_COLUMNS), default=0)
    for title, entries in tables.items():
        if entries:
            parts.append(
                "\n".join(
                    [f"{title}:", *(_entry(name, text, width, columns) for name, text in entries)]
                )
            )
    return "\n\n".join([*parts, end.rstrip()])


def _entry(name: str, text: str, width: int, columns: int) -> str:
    first, *rest = wrap(text, columns - width - 4, break_on_hyphens=False) or [""]
    indent = " " * (width + 4)
    if len(name) <= width:
        head = f"  {name:<{width}}  {first}"
    else:
        head = f"  {name}\n{indent}{first}"
    return "\n".join([head.rstrip(), *(indent + line for line in rest)])
