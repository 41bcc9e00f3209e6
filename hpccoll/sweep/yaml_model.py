"""Files that people write, as YAML: read into a model, or refused in a line that names the key and what would do.

Every mistake in its keys, in the types of values and in the words that are looked up as it is read has its line.
"""

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_args

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails
from pydantic_core.core_schema import no_info_before_validator_function

from hpccoll import limits
from hpccoll.errors import BadInputError, UnusableError, combine_errors, did_you_mean, format_value
from hpccoll.files import read_text
from hpccoll.limits import MAX_LIST_ENTRIES, SWEEP_BYTES, IntegerRange, PositiveNumber
from hpccoll.spec.keys import Key

Item = TypeVar("Item")


def _as_list(value: object) -> object:
    """Take one thing for a list of one; nothing is none."""
    return value if isinstance(value, list | None) else [value]


def _unique(values: list[Item]) -> list[Item]:
    """What is named twice is meant once."""
    return list(dict.fromkeys(values))


class _ItemOrListSchema:
    """Says in the JSON schema that one thing does for a list of one."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        return {"anyOf": [schema["items"], schema]}


def _number_to_text(value: object) -> object:
    """YAML reads 1 as a number; the value of a variable is its text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


MAX_NAME_LENGTH = 255
"""Characters of a variable's name."""
MAX_TEXT_LENGTH = 4096
"""Characters of a text: a launcher, an image, an option."""


def _check_text(text: str) -> str:
    """See that a text can be in the environment of a process, in a command line, and on a terminal.

    Raises:
        BadInputError: if it cannot.
    """
    limits.PrintableText(MAX_TEXT_LENGTH).check("text", text)
    return text


def _check_variable_value(text: str) -> str:
    """See that a text can be the value of a variable.

    Raises:
        BadInputError: if it cannot.
    """
    limits.VARIABLE_VALUE.check("text", text)
    return text


def check_variable_names(values: dict[str, str]) -> dict[str, str]:
    """See that every key can be the name of a variable.

    Raises:
        BadInputError: for one that cannot.
    """
    for name in values:
        if len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            expected = f"a name of at most {MAX_NAME_LENGTH} letters (A to Z), digits and _"
            raise BadInputError("variable", name, expected)
    return values


def _reject_bool(value: object) -> object:
    """YAML reads yes as true, which Python takes for 1."""
    if isinstance(value, bool):
        raise ValueError(f"a number: YAML reads yes, no, on, off, true and false as {value!r}")  # noqa: TRY004  pydantic's way
    return value


@dataclass(frozen=True, slots=True)
class Bounded:
    """Bounds of a number, in its type: ``Annotated[int, Within(RANKS)]``."""

    bounds: IntegerRange | PositiveNumber

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        bounds = self.bounds
        limits = {"ge": bounds.minimum} if isinstance(bounds, IntegerRange) else {"gt": 0, "allow_inf_nan": False}
        bounded = cast("CoreSchema", {**handler(source), **limits, "le": bounds.maximum})
        return no_info_before_validator_function(_reject_bool, bounded)


OneOrMore = Annotated[
    list[Item],
    BeforeValidator(_as_list),
    Field(min_length=1, max_length=MAX_LIST_ENTRIES),
    AfterValidator(_unique),
    _ItemOrListSchema(),
]
Text = Annotated[str, AfterValidator(_check_text)]
VariableValue = Annotated[
    str,
    BeforeValidator(_number_to_text, json_schema_input_type=str | int | float),
    AfterValidator(_check_variable_value),
]
Variables = Annotated[dict[str, VariableValue], AfterValidator(check_variable_names)]


def field(key: Key, alias: str | None = None) -> Any:
    """Return the model field of a key, with its description and its default."""
    default = ... if key.required else list(key.default) if isinstance(key.default, tuple) else key.default
    return Field(default, alias=alias, description=key.help)


class YamlSection(BaseModel):
    """A file, or what stands below one of its keys; no other keys than its fields."""

    model_config = ConfigDict(extra="forbid")


MAX_VALUES = 100_000
"""Values of a document, where each alias counts as what it stands for; a few lines can stand for billions."""


class _PlainLoader(yaml.SafeLoader):
    """Reads no number but a plain whole one, and leaves all else its text.

    To YAML 1.1 a time of 1:30 is 90, 010 is 8, and a version of 1.10 is 1.1; variables would get that. A key is there
    once: of two the last one would win without a word.
    """

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and self._values(node, {}) > MAX_VALUES:
            raise yaml.composer.ComposerError(None, None, f"more than {MAX_VALUES} values", node.start_mark)
        return node

    def _values(self, node: yaml.Node, known: dict[int, int]) -> int:
        """Return how many values a node stands for; ``known`` are those of nodes by their ids, 0 while not yet known.

        Raises:
            ComposerError: for a node that is inside itself, or a mapping that has a key twice.
        """
        if id(node) not in known:
            known[id(node)] = 0
            if isinstance(node, yaml.MappingNode):
                self._see_keys_once(node)
            below = node.value if isinstance(node, yaml.CollectionNode) else ()
            inside = (each for one in below for each in (one if isinstance(one, tuple) else (one,)))
            known[id(node)] = 1 + sum(self._values(each, known) for each in inside)
        if not known[id(node)]:
            raise yaml.composer.ComposerError(None, None, "a value that contains itself", node.start_mark)
        return known[id(node)]

    def _see_keys_once(self, node: yaml.MappingNode) -> None:
        seen: dict[Hashable, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                word = self.construct_object(key) if key.tag != "tag:yaml.org,2002:merge" else "<<"
                line = key.start_mark.line + 1
                if word in seen:
                    problem = f"the key {format_value(word)} is there twice, on line {seen[word]} and on line {line}"
                    raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
                seen[word] = line


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if not tag.endswith((":int", ":float", ":timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]{0,18})$"), [*"-+0123456789"]
)

Model = TypeVar("Model", bound=YamlSection)


def load_yaml(path: Path, model: type[Model], key: str) -> Model:
    """Read a file into ``model``.

    Args:
        path: of the file.
        model: what it is to be.
        key: what the file is given by on the command line, such as ``CONFIG``.

    Raises:
        BadInputError: names the file, the key, the value and what would be valid.
    """
    text = read_text(path, key, SWEEP_BYTES)
    try:
        content: Any = yaml.load(text, _PlainLoader)  # noqa: S506  it is a safe one
    except RecursionError:
        raise UnusableError(str(path), "it is no YAML that can be read: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # an integer with a tag, of thousands of digits
        raise UnusableError(str(path), f"it is no YAML: {_syntax_error(error)}") from None
    if not isinstance(content, dict):
        raise UnusableError(str(path), f"it is no YAML of keys and values: {', '.join(_descriptions(model))}")
    try:
        return model(**content)
    except ValidationError as error:
        raise _to_bad_input(path, model, error) from None


def _syntax_error(error: Exception) -> str:
    """Return where a text is no YAML, and why."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    mark = error.problem_mark
    said = ", ".join(filter(None, (error.context, error.problem)))
    return f"line {mark.line + 1}, column {mark.column + 1}: {said}"


MAX_ERRORS = 20
"""Lines on one file; who has read so many starts anew."""

_KEY_ERRORS = ("extra_forbidden", "missing")
"""Complaints whose place ends with a key of the section, and not with the section."""

_UNION_TAGS = ("int", "str")
"""What pydantic puts at the end of a place where a value may be of either type, and is of none."""

_EXPECTED: Mapping[str, str] = {
    "dict_type": "keys and values",
    "list_type": "one or several",
    "string_type": "one text or number; in quotes where YAML reads something else",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "at least {min_length}",
    "too_long": "at most {max_length}",
    **dict.fromkeys(("finite_number", "int_parsing_size"), "a number that is not too large"),
    "string_pattern_mismatch": "something of this kind",
}
"""What would be valid, by pydantic's kinds of complaints and with the numbers that belong to them."""


def _to_bad_input(path: Path, model: type[YamlSection], error: ValidationError) -> BadInputError:
    """Return the complaints of pydantic's as ours, one for each value; what may be missing as it is misspelt is not.

    The first one has the others with it.
    """
    said = sorted(error.errors(include_url=False)[:MAX_ERRORS], key=lambda one: one["type"] == "missing")
    misspelt = {one["loc"][:-1] for one in said if one["type"] == "extra_forbidden"}
    told = [one for one in said if one["type"] != "missing" or one["loc"][:-1] not in misspelt]
    ours = [made for one in told for made in _convert_error(path, model, one)]
    once = {(made.key, repr(made.value)): made for made in reversed(ours)}
    return combine_errors(*reversed(once.values()))


def _convert_error(path: Path, model: type[YamlSection], first: ErrorDetails) -> Iterator[BadInputError]:
    """Yield a complaint of pydantic's as ours."""
    place = [str(word) for word in first["loc"] if not (isinstance(word, str) and "[" in word)]
    place = place[:-1] if place and place[-1] in _UNION_TAGS else place
    key = f"{path}: {'.'.join(place)}" if place else str(path)
    names = _descriptions(_section_at(model, place[: -1 if first["type"] in _KEY_ERRORS else None]))
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, BadInputError):
        for one in (inner, *inner.others):
            # One that says itself where below the key it is, one of the whole file, or one of the value at this place.
            below = place and one.key.startswith(f"{place[0]}.")
            yield one.with_key(f"{path}: {one.key}" if below or not place else key)
    elif first["type"] == "missing":
        yield BadInputError(key, None, names[place[-1]])
    else:
        yield BadInputError(key, first["input"], _valid_choices(first, place, model, names))


def _valid_choices(
    said: ErrorDetails, place: list[str], model: type[YamlSection], names: Mapping[str, str]
) -> str | list[str]:
    """Return what would be valid at a place, in words or as the choices."""
    kind, about = said["type"], said.get("ctx", {})
    about = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in about.items()}
    if kind == "extra_forbidden":
        return f"no such key, {did_you_mean(place[-1], names)}choose from {', '.join(names)}"
    if kind == "model_type":
        return f"keys and values: {', '.join(names)}"
    if kind == "literal_error":
        return re.findall(r"'([^']*)'", about["expected"])
    if kind not in _EXPECTED:
        return said["msg"].removeprefix("Value error, ")
    return f"{_EXPECTED[kind].format(**about)}: {_description(model, place)}"


def _description(model: type[YamlSection], place: list[str]) -> str:
    """Return the description of what is found at ``place``, or of the last on the way that has one."""
    meaning = ""
    for depth, word in enumerate(place):
        meaning = _descriptions(_section_at(model, place[:depth])).get(word, meaning)
    return meaning


def _descriptions(model: type[YamlSection]) -> dict[str, str]:
    """Return the keys of a section, each with its description."""
    return {field.alias or name: field.description or "" for name, field in model.model_fields.items()}


def _section_at(model: type[YamlSection], place: list[str]) -> type[YamlSection]:
    """Return the section that is found at ``place``, or the last one on the way."""
    for word in place:
        below = (field.annotation for name, field in model.model_fields.items() if word == (field.alias or name))
        model = next((section for annotation in below for section in _sections_in(annotation)), model)
    return model


def _sections_in(annotation: Any) -> Iterator[type[YamlSection]]:
    """Yield the sections that a type names, anywhere in it."""
    if isinstance(annotation, type) and issubclass(annotation, YamlSection):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)
