"""Read YAML files into models. Each error has a line that names the key, the value and the valid choices.

One call reports all errors in keys, types and validated names.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
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

from hpccoll.common import limits
from hpccoll.common.errors import (
    BadInputError,
    UnusableError,
    combine_errors,
    did_you_mean,
    format_value,
)
from hpccoll.common.files import read_text
from hpccoll.common.limits import MAX_LIST_ENTRIES, SWEEP_BYTES, IntegerRange, Key, PositiveNumber

Item = TypeVar("Item")


def as_list(value: object) -> object:
    """Return a single value as a list of one; None stays None."""
    return value if isinstance(value, list | None) else [value]


def _unique(values: list[Item]) -> list[Item]:
    return list(dict.fromkeys(values))


class _ItemOrListSchema:
    """Allows a single value in the place of a list in the JSON schema."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        return {"anyOf": [schema["items"], schema]}


def _check_is_name(text: str) -> str:
    if text.startswith("-"):
        raise ValueError("a name, which does not begin with -")
    return text


def _number_to_text(value: object) -> object:
    """Return the text of a number: variables and names have text values."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


MAX_NAME_LENGTH = 255
"""Maximum number of characters of a variable's name."""


def _checked(kind: limits.Kind[str]) -> AfterValidator:
    """Return the validator of a text, which is safe in an environment, in a command line, and on a terminal."""
    return AfterValidator(lambda text: kind.read("text", text))


def check_variable_names(values: dict[str, str]) -> dict[str, str]:
    """Check that every key is a valid name of a variable.

    Raises:
        BadInputError: if a key is not.
    """
    for name in values:
        if len(name) > MAX_NAME_LENGTH or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            expected = f"a name of at most {MAX_NAME_LENGTH} letters (A to Z), digits and _"
            raise BadInputError("variable", name, expected)
    return values


def reject_bool(value: object) -> object:
    """Reject booleans: YAML reads yes as true, and Python treats true as 1."""
    if isinstance(value, bool):
        raise ValueError(f"a number: YAML reads yes, no, on, off, true and false as {value!r}")  # noqa: TRY004  pydantic's way
    return value


@dataclass(frozen=True, slots=True)
class Bounded:
    """Bounds of a number, in its type: ``Annotated[int, Bounded(RANKS)]``."""

    bounds: IntegerRange | PositiveNumber

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        bounds = self.bounds
        limits = (
            {"ge": bounds.minimum}
            if isinstance(bounds, IntegerRange)
            else {"gt": 0, "allow_inf_nan": False}
        )
        bounded = cast("CoreSchema", {**handler(source), **limits, "le": bounds.maximum})
        return no_info_before_validator_function(reject_bool, bounded)


OneOrMore = Annotated[
    list[Item],
    BeforeValidator(as_list),
    Field(min_length=1, max_length=MAX_LIST_ENTRIES),
    AfterValidator(_unique),
    _ItemOrListSchema(),
]
Text = Annotated[str, _checked(limits.PrintableText())]
Word = Annotated[
    Text,
    BeforeValidator(_number_to_text, json_schema_input_type=str | int | float),
    AfterValidator(_check_is_name),
]
"""A name that may be a number, such as that of an account, but not an option of the command that gets it."""
VariableValue = Annotated[
    str,
    BeforeValidator(_number_to_text, json_schema_input_type=str | int | float),
    _checked(limits.VARIABLE_VALUE),
]
Variables = Annotated[dict[str, VariableValue], AfterValidator(check_variable_names)]


def _flag(value: object) -> object:
    """Return 1 for true and 0 for false."""
    if not isinstance(value, bool | str):
        return value
    numbers: dict[bool | str, int] = {True: 1, False: 0, "true": 1, "false": 0}
    return numbers.get(value, value)


def annotation_of(kind: Any) -> Any:
    """Return the annotation of a value of a kind of ``common.limits``, or of another kind that reads texts."""
    if kind == limits.FLAG:
        return Annotated[
            int, BeforeValidator(_flag, json_schema_input_type=bool | int), Field(ge=0, le=1)
        ]
    if isinstance(kind, IntegerRange):
        return Annotated[int, Bounded(kind)]
    if isinstance(kind, limits.PrintableText):
        return Text
    if isinstance(kind, limits.OneOfWords):
        return Annotated[Text, _checked(kind)]
    read = BeforeValidator(
        lambda value: kind.read("number", str(value)), json_schema_input_type=int | float | str
    )
    return Annotated[int | float, read]


def field(key: Key, alias: str | None = None) -> Any:
    """Return the model field of a key, with its description and its default."""
    default: Any = key.default
    if key.required:
        default = ...
    elif isinstance(default, tuple):
        default = list(default)
    return Field(default, alias=alias, description=key.help)


class YamlSection(BaseModel):
    """A YAML file or a section of one; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


MAX_VALUES = 100_000
"""Maximum number of values of a document with aliases expanded: a few lines can expand to billions."""


class _PlainLoader(yaml.SafeLoader):
    """Reads decimal integers as numbers, and keeps all other scalars as text.

    YAML 1.1 reads 1:30 as 90, 010 as 8 and 1.10 as 1.1, which would change the values of variables.
    A duplicate key is an error: YAML would silently use the last one.
    """

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None and self._values(node, {}) > MAX_VALUES:
            raise yaml.composer.ComposerError(
                None, None, f"more than {MAX_VALUES} values", node.start_mark
            )
        return node

    def _values(self, node: yaml.Node, counts: dict[int, int]) -> int:
        """Return the number of values of a node with aliases expanded.

        The ``counts`` numbers are by the id of the node, and 0 while a node is counted: it must not
        contain itself.
        """
        if id(node) not in counts:
            counts[id(node)] = 0
            if isinstance(node, yaml.MappingNode):
                self._check_unique_keys(node)
            count = 1
            items = node.value if isinstance(node, yaml.CollectionNode) else ()
            for item in items:
                children = item if isinstance(item, tuple) else (item,)
                for child in children:
                    count += self._values(child, counts)
            counts[id(node)] = count
        if not counts[id(node)]:
            raise yaml.composer.ComposerError(
                None, None, "a value that contains itself", node.start_mark
            )
        return counts[id(node)]

    def _check_unique_keys(self, node: yaml.MappingNode) -> None:
        lines_by_key: dict[Hashable, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                name = self.construct_object(key) if key.tag != "tag:yaml.org,2002:merge" else "<<"
                line = key.start_mark.line + 1
                if name in lines_by_key:
                    problem = (
                        f"the key {format_value(name)} appears twice, on line "
                        f"{lines_by_key[name]} and on line {line}"
                    )
                    raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
                lines_by_key[name] = line


_PlainLoader.yaml_implicit_resolvers = {
    first: [
        (tag, form) for tag, form in resolvers if not tag.endswith((":int", ":float", ":timestamp"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]{0,18})$"), [*"-+0123456789"]
)

Model = TypeVar("Model", bound=YamlSection)
DIRECTORY = "directory"
"""The key of the directory of a file in the context of its validators."""


def load_yaml(path: Path, model: type[Model], key: str) -> Model:
    """Read a file into ``model``; ``key`` is the command-line argument with its path, such as ``CONFIG``.

    Raises:
        BadInputError: names the file, the key, the value and the valid choices.
    """
    return to_model(load_plain_yaml(path, key), path, model)


def to_model(content: Any, path: Path, model: type[Model]) -> Model:
    """Return the content of a file as ``model``, with its DIRECTORY as context; BadInputError as of ``load_yaml``."""
    if content is None:
        raise UnusableError(
            str(path),
            f"it is empty, or has nothing but comments; keys: {', '.join(_descriptions(model))}",
        )
    if not isinstance(content, dict):
        raise UnusableError(
            str(path), f"it is not YAML of keys and values: {', '.join(_descriptions(model))}"
        )
    try:
        return model.model_validate(content, context={DIRECTORY: path.parent})
    except ValidationError as error:
        raise _to_bad_input(path, model, error.errors(include_url=False)) from None


def check_keys(content: dict[str, Any], path: Path, model: type[YamlSection]) -> None:
    """Check that a model has the keys of the content of a file, and nothing else of it.

    Raises:
        BadInputError: for keys that it does not have.
    """
    try:
        model.model_validate(content, context={DIRECTORY: path.parent})
    except ValidationError as error:
        unknown = [
            detail
            for detail in error.errors(include_url=False)
            if detail["type"] == "extra_forbidden"
        ]
        if unknown:
            raise _to_bad_input(path, model, unknown) from None


def load_plain_yaml(path: Path, key: str) -> Any:
    """Return the content of a file: mappings and lists of whole numbers and texts.

    Raises:
        BadInputError: if the file cannot be read or is not YAML.
    """
    text = read_text(path, key, SWEEP_BYTES)
    if path.suffix == ".json":
        text = text.replace("\t", " ")  # JSON has them between values only, where YAML refuses them
    try:
        return yaml.load(text, _PlainLoader)  # noqa: S506  _PlainLoader is a SafeLoader
    except RecursionError:
        raise UnusableError(
            str(path), "it is not YAML that can be read: it is nested too deeply"
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # an integer with a tag, of thousands of digits
        raise UnusableError(str(path), f"it is not YAML: {_syntax_error(error)}") from None


def _syntax_error(error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return str(error)
    mark = error.problem_mark
    description = ", ".join(filter(None, (error.context, error.problem)))
    return f"line {mark.line + 1}, column {mark.column + 1}: {description}"


MAX_ERRORS = 20
"""Maximum number of errors to report for one file."""

_KEY_ERRORS = ("extra_forbidden", "missing")
"""Pydantic errors whose location ends with a key of the section."""

_UNION_TAGS = ("int", "str")
"""Last elements of pydantic locations for a value that matches no type of a union."""

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
"""The valid values by pydantic's error types, with the numbers of the error's context."""


def _to_bad_input(
    path: Path, model: type[YamlSection], details: Iterable[ErrorDetails]
) -> BadInputError:
    """Return pydantic's errors as one error with the others attached, one for each value.

    Unknown keys come first. A missing key is not reported if its section has an unknown key, which
    may be the misspelt one.
    """
    details = sorted(details, key=_error_order)[:MAX_ERRORS]
    misspelt = {detail["loc"][:-1] for detail in details if detail["type"] == "extra_forbidden"}
    reported = [
        detail
        for detail in details
        if detail["type"] != "missing" or detail["loc"][:-1] not in misspelt
    ]
    errors = [bad_input for detail in reported for bad_input in _convert_error(path, model, detail)]
    unique = {(bad_input.key, repr(bad_input.value)): bad_input for bad_input in reversed(errors)}
    return combine_errors(*reversed(unique.values()))


def _error_order(detail: ErrorDetails) -> int:
    order = {"extra_forbidden": 0, "missing": 2}
    return order.get(detail["type"], 1)


def _convert_error(
    path: Path, model: type[YamlSection], detail: ErrorDetails
) -> Iterator[BadInputError]:
    location = [str(part) for part in detail["loc"] if not (isinstance(part, str) and "[" in part)]
    if location and location[-1] in _UNION_TAGS:
        location.pop()
    key = str(path)
    if location:
        key = f"{path}: {'.'.join(location)}"
    place_of_section = location
    if detail["type"] in _KEY_ERRORS:
        place_of_section = location[:-1]
    section = _section_at(model, place_of_section)
    names = _descriptions(section)
    inner = detail.get("ctx", {}).get("error")
    if isinstance(inner, BadInputError):
        for bad_input in (inner, *inner.others):
            # A key with a longer path, or an error of the whole file, is kept; otherwise the key is
            # this location.
            is_nested = location and bad_input.key.startswith(f"{location[0]}.")
            if is_nested or not location:
                yield bad_input.with_key(f"{path}: {bad_input.key}")
            else:
                yield bad_input.with_key(key)
    elif detail["type"] == "missing":
        yield BadInputError(key, None, names[location[-1]])
    else:
        value = detail["input"]
        if value is None and detail["type"] == "extra_forbidden":
            value = "null"  # a key that does not exist cannot be missing
        yield BadInputError(key, value, _valid_choices(detail, location, model, names))


def _valid_choices(
    detail: ErrorDetails, location: list[str], model: type[YamlSection], names: Mapping[str, str]
) -> str | list[str]:
    """Return what is valid at a location, as text or as a list of choices."""
    kind, context = detail["type"], detail.get("ctx", {})
    context = {
        name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()
    }
    if kind == "extra_forbidden":
        return f"no such key, {did_you_mean(location[-1], names)}choose from {', '.join(names)}"
    if kind == "model_type":
        return f"keys and values: {', '.join(names)}"
    if kind == "literal_error":
        return re.findall(r"'([^']*)'", context["expected"])
    if kind not in _EXPECTED:
        return detail["msg"].removeprefix("Value error, ")
    return f"{_EXPECTED[kind].format(**context)}: {_description(model, location)}"


def _description(model: type[YamlSection], location: list[str]) -> str:
    """Return the description of the key at ``location``, or of the last key above it with one."""
    description = ""
    for depth, key in enumerate(location):
        description = _descriptions(_section_at(model, location[:depth])).get(key, description)
    return description


def _descriptions(model: type[YamlSection]) -> dict[str, str]:
    return {
        field.alias or name: field.description or "" for name, field in model.model_fields.items()
    }


def _section_at(model: type[YamlSection], location: list[str]) -> type[YamlSection]:
    """Return the section at ``location``, or the last one above it."""
    for key in location:
        types = (
            field.annotation
            for name, field in model.model_fields.items()
            if key == (field.alias or name)
        )
        model = next(
            (section for annotation in types for section in sections_in(annotation)), model
        )
    return model


def sections_in(annotation: Any) -> Iterator[type[YamlSection]]:
    """Yield the sections that a type annotation contains."""
    if isinstance(annotation, type) and issubclass(annotation, YamlSection):
        yield annotation
    for part in get_args(annotation):
        yield from sections_in(part)
