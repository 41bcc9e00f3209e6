"""The sweep file: what to measure, as a person writes it. Where and how is the business of profiles and sites.

``python -m hpccoll.sweep.config`` prints its JSON schema, which workflows/schemas keeps for editors.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from hpccoll.case import Effort, Parameter
from hpccoll.errors import BadInputError
from hpccoll.units import parse_size

Item = TypeVar("Item")


def _list(value: object) -> object:
    """Take one thing for a list of one."""
    return value if isinstance(value, list) else [value]


def _once(values: list[Item]) -> list[Item]:
    """What is named twice is measured once."""
    return list(dict.fromkeys(values))


class _OrOne:
    """Says in the JSON schema that one thing does for a list of one."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        return {"anyOf": [schema["items"], schema]}


def _name(value: object) -> object:
    """YAML reads the bare word null, an algorithm's name, as nothing."""
    return "null" if value is None else value


Size = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]
Name = Annotated[str, BeforeValidator(_name, json_schema_input_type=str | None)]
Count = Annotated[int, Field(ge=1)]
OneOrMore = Annotated[list[Item], BeforeValidator(_list), Field(min_length=1), AfterValidator(_once), _OrOne()]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SizeRange(_Model):
    """Sizes from one to another, each ``factor`` times the last."""

    first: Size = Field(alias="from", gt=0, description="the smallest size, such as 8 or 64K (powers of 1024)")
    last: Size = Field(alias="to", description="the largest size; reached if the factor hits it")
    factor: int = Field(2, ge=2, description="from one size to the next")

    @model_validator(mode="after")
    def _rises(self) -> "SizeRange":
        if self.last < self.first:
            raise ValueError("'to' must be at least 'from'")
        return self

    def sizes(self) -> list[int]:
        sizes = [self.first]
        while sizes[-1] * self.factor <= self.last:
            sizes.append(sizes[-1] * self.factor)
        return sizes


Sizes = Annotated[
    Annotated[OneOrMore[Size], Tag("[list]")] | Annotated[SizeRange, Tag("[range]")],
    Discriminator(lambda value: "[range]" if isinstance(value, dict) else "[list]"),
]


class EffortSection(_Model):
    """How long each case is measured."""

    warmup: int = Field(default=5, ge=0, description="iterations thrown away, for each case")
    min_iterations: int = Field(default=10, ge=1, description="timed at least")
    max_iterations: int = Field(default=1000, ge=1, description="timed at most")
    seconds: float = Field(default=0.5, gt=0, description="wall time for a case, once it has its least iterations")
    precision: float = Field(
        default=0.02, gt=0, lt=1, description="95 % interval of the median, half of it over the median"
    )
    timeout: float = Field(default=120.0, gt=0, description="seconds without progress until a rank is said to be stuck")

    @model_validator(mode="after")
    def _least_is_least(self) -> "EffortSection":
        if self.max_iterations < self.min_iterations:
            raise ValueError("'max_iterations' must be at least 'min_iterations'")
        return self

    def effort(self) -> Effort:
        return Effort(**self.model_dump())


class Sweep(_Model):
    """A sweep: every combination of what the lists name is a case."""

    collectives: OneOrMore[Name] = Field(["all_reduce"], description="see 'hpccoll list'")
    algorithms: OneOrMore[Name] = Field(description="see 'hpccoll list'; native is the library's own")
    transports: OneOrMore[Name] = Field(["mpi"], description="how bytes move")
    dtypes: OneOrMore[Name] = Field(["float32"], description="int32, int64, float16, float32, float64")
    ops: OneOrMore[Name] = Field(["sum"], description="sum, prod, min, max, avg")
    bytes: Sizes = Field(description="sizes: a list, or {from: 8, to: 4M, factor: 2}")
    in_place: OneOrMore[bool] = Field([False, True], description="whether contribution and result share a buffer")
    ranks: OneOrMore[Count] = Field(description="numbers of ranks; each is a job of its own")
    params: dict[str, dict[str, OneOrMore[Parameter]]] = Field(
        {}, description="parameters by algorithm, each with the values to try: {ring: {channels: [1, 4]}}"
    )
    effort: EffortSection = Field(EffortSection(), description="how long each case is measured")
    seed: int = Field(1, description="of the order of the cases, which is random")

    @model_validator(mode="after")
    def _parameters_are_of_what_is_measured(self) -> "Sweep":
        if strange := self.params.keys() - set(self.algorithms):
            raise BadInputError("params", strange.pop(), self.algorithms)
        return self

    def sizes(self) -> list[int]:
        return self.bytes.sizes() if isinstance(self.bytes, SizeRange) else self.bytes


def json_schema() -> str:
    """Return the JSON schema of a sweep file."""
    return json.dumps(Sweep.model_json_schema(), indent=1) + "\n"


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises:
        BadInputError: names the file, the key, the value and what would be valid.
    """
    try:
        content: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise BadInputError("CONFIG", str(path), f"a sweep file that can be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInputError("CONFIG", str(path), f"a YAML file ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise BadInputError("CONFIG", str(path), "a YAML file of keys and values: " + ", ".join(Sweep.model_fields))
    try:
        return Sweep(**content)
    except ValidationError as error:
        raise _complaint(path, error) from None


_SECTIONS: dict[str, type[_Model]] = {"bytes": SizeRange, "effort": EffortSection}
_OF_A_KEY = ("extra_forbidden", "missing")
"""Complaints whose place ends with a key of the section, and not with the section."""


def _complaint(path: Path, error: ValidationError) -> BadInputError:
    """Return the first complaint of pydantic's as one of ours."""
    first = error.errors(include_url=False)[0]
    place = [str(word) for word in first["loc"] if not (isinstance(word, str) and "[" in word)]
    key = f"{path}: {'.'.join(place)}" if place else str(path)
    owner = _SECTIONS.get(place[0], Sweep) if len(place) > (first["type"] in _OF_A_KEY) else Sweep
    names = {field.alias or name: field for name, field in owner.model_fields.items()}
    if first["type"] == "extra_forbidden":
        return BadInputError(key, first["input"], f"no such key, choose from {', '.join(names)}")
    if first["type"] == "missing":
        return BadInputError(key, None, f"it must be there: {names[place[-1]].description}")
    if first["type"] == "model_type":
        return BadInputError(key, first["input"], f"keys and values: {', '.join(names)}")
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, BadInputError):
        return BadInputError(key if place else f"{key}: {inner.key}", inner.value, inner.expected)
    return BadInputError(key, first["input"], first["msg"].removeprefix("Value error, "))


if __name__ == "__main__":
    sys.stdout.write(json_schema())
