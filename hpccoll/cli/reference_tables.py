"""The reference tables of ``hpccoll list WORD``, from the code: keys, columns, variables, settings, clusters."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, NamedTuple, NotRequired, TypeAlias, TypedDict

from hpccoll.common.json_schema import OPTIONAL
from hpccoll.common.text import in_brackets

if TYPE_CHECKING:
    from hpccoll.common.yaml_model import YamlSection


_Detail: TypeAlias = Annotated[str, OPTIONAL]


class EntryJson(TypedDict):
    """A line of a reference table, as JSON has it."""

    name: str
    meaning: str
    type: NotRequired[_Detail]
    unit: NotRequired[_Detail]
    absent: NotRequired[_Detail]
    by: NotRequired[_Detail]
    since: NotRequired[_Detail]
    values: NotRequired[_Detail]
    default: NotRequired[_Detail]
    required: NotRequired[Annotated[bool, OPTIONAL]]


class Entry(NamedTuple):
    """A line of a reference table."""

    name: str  # a key, a column, a variable or a setting
    meaning: str  # what it is, as a phrase
    # what else is known of it, such as its default, its type and its unit
    details: Mapping[str, str | bool]


def reference_lines(entries: list[Entry]) -> Iterator[str]:
    """Yield a line for each entry: its name, its meaning, and the details in brackets."""
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        details = (
            name if value is True else f"{name} {value}"
            for name, value in entry.details.items()
            if value
        )
        yield f"{entry.name:<{width}}  {entry.meaning}{in_brackets('; '.join(details))}"


def _columns() -> Iterator[Entry]:
    from hpccoll.store.schema import COLUMNS

    stored = {"bool": "uint8", "maybe": "int8", "str": "string"}
    for column in COLUMNS:
        absent = ""
        if column.absent is not None:
            absent = str(column.absent) or "empty"
        kind = stored.get(column.dtype, column.dtype)
        details = {
            "type": kind,
            "unit": column.unit,
            "absent": absent,
            "by": ", ".join(column.dims),
        }
        yield Entry(column.name, column.meaning, details)


def _variables() -> Iterator[Entry]:
    from hpccoll.cases.variables import VARIABLES

    yield from (Entry(name, effect, {}) for name, effect in VARIABLES.items())


def _settings() -> Iterator[Entry]:
    from hpccoll.cases.communicator_settings import COMMUNICATOR_SETTINGS

    for name, setting in COMMUNICATOR_SETTINGS.items():
        since = f"NCCL {setting.since // 10000}.{setting.since // 100 % 100}"
        yield Entry(name, setting.effect, {"since": since, "values": str(setting.kind)})


def _machine() -> Iterator[Entry]:
    from hpccoll.model.machine_file import MachineFile
    from hpccoll.model.machine_sections import Quantity

    parts = tuple(f".{key}" for key in Quantity.model_fields)  # of every number; listed once
    yield from (
        entry
        for entry in _keys(MachineFile)
        if entry.name.count(".") < 2 or not entry.name.endswith(parts)
    )
    yield from _keys(Quantity, "NUMBER.")


def _clusters() -> Iterator[Entry]:
    from hpccoll.model.machine_content import cluster_names
    from hpccoll.model.machine_file import read_machine

    for name in cluster_names():
        yield Entry(name, read_machine(name, "--cluster").source or "", {})


def _keys(section: type["YamlSection"], prefix: str = "") -> Iterator[Entry]:
    from hpccoll.common.yaml_model import sections_in

    for name, key in section.model_fields.items():
        path = prefix + (key.alias or name)
        meaning = key.description or ""
        required = key.is_required()
        described = required or "[" in meaning
        default = ""
        if not described:
            default = _plain(key.get_default(call_default_factory=True))
        yield Entry(path, meaning, {"required": required, "default": default})
        for inner in sections_in(key.annotation):
            yield from _keys(inner, f"{path}.")


def _plain(default: object) -> str:
    """Return a default that is a word or a number, or several; empty for another one."""
    if isinstance(default, list):
        values = default
    else:
        values = [default]
    if not all(isinstance(value, bool | int | float | str) for value in values):
        return ""
    return ", ".join(
        str(value).lower() if isinstance(value, bool) else str(value) for value in values
    )


def _sections_of(module: str, name: str) -> Callable[[], Iterator[Entry]]:
    return lambda: _keys(getattr(import_module(f"hpccoll.sweep.{module}"), name))


REFERENCES: Mapping[str, Callable[[], Iterator[Entry]]] = {
    "sweep": _sections_of("sweep_file", "Sweep"),
    "site": _sections_of("site_file", "Site"),
    "machine": _machine,
    "clusters": _clusters,
    "columns": _columns,
    "variables": _variables,
    "settings": _settings,
}
"""The tables: keys of sweep files, of site files and of machine files; described clusters; datasets
of raw files; environment variables of named variants; settings of NCCL's communicators."""
