"""The sweep file: what to measure, as a person writes it. Where and how is the business of profiles and sites."""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hpccoll.case import Effort
from hpccoll.errors import BadInputError
from hpccoll.units import parse_size


def _list(value: object) -> object:
    """Take one thing for a list of one."""
    return value if isinstance(value, list) else [value]


def _name(value: object) -> object:
    """YAML reads the bare word null, an algorithm's name, as nothing."""
    return "null" if value is None else value


Size = Annotated[int, BeforeValidator(parse_size)]
Name = Annotated[str, BeforeValidator(_name)]
Names = Annotated[list[Name], BeforeValidator(_list), Field(min_length=1)]
Value = int | str


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


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


class EffortSection(_Model):
    """How long each case is measured."""

    warmup: int = Field(5, ge=0, description="iterations thrown away, for each case")
    min_iterations: int = Field(10, ge=1, description="timed at least")
    max_iterations: int = Field(1000, ge=1, description="timed at most")
    seconds: float = Field(0.5, gt=0, description="wall time for a case, once it has its least iterations")
    precision: float = Field(0.02, gt=0, lt=1, description="95 % interval of the median, half of it over the median")
    timeout: float = Field(120.0, gt=0, description="seconds without progress until a rank is said to be stuck")

    def effort(self) -> Effort:
        return Effort(**self.model_dump())


class Sweep(_Model):
    """A sweep: every combination of what the lists name is a case."""

    collectives: Names = Field(["all_reduce"], description="see 'hpccoll list'")
    algorithms: Names = Field(description="see 'hpccoll list'; native is the library's own")
    transports: Names = Field(["mpi"], description="how bytes move")
    dtypes: Names = Field(["float32"], description="int32, int64, float16, float32, float64")
    ops: Names = Field(["sum"], description="sum, prod, min, max, avg")
    bytes: Annotated[list[Size] | SizeRange, BeforeValidator(lambda v: v if isinstance(v, (dict, list)) else [v])] = (
        Field(description="sizes: a list, or {from: 8, to: 4M, factor: 2}")
    )
    in_place: Annotated[list[bool], BeforeValidator(_list), Field(min_length=1)] = Field(
        [False, True], description="whether contribution and result share a buffer"
    )
    ranks: Annotated[list[Annotated[int, Field(ge=1)]], BeforeValidator(_list), Field(min_length=1)] = Field(
        description="numbers of ranks; each is a job of its own"
    )
    params: dict[str, dict[str, Annotated[list[Value], BeforeValidator(_list)]]] = Field(
        {}, description="parameters by algorithm, each with the values to try: {ring: {channels: [1, 4]}}"
    )
    effort: EffortSection = Field(default_factory=EffortSection, description="how long each case is measured")
    seed: int = Field(1, description="of the order of the cases, which is random")

    def sizes(self) -> list[int]:
        return self.bytes.sizes() if isinstance(self.bytes, SizeRange) else self.bytes


def load_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises:
        BadInputError: names the file, the key, the value and what would be valid.
    """
    try:
        content: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise BadInputError("CONFIG", str(path), f"a sweep file that can be read ({error.strerror})") from None
    except yaml.YAMLError as error:
        raise BadInputError("CONFIG", str(path), f"a YAML file ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise BadInputError("CONFIG", str(path), "a YAML file of keys and values: " + ", ".join(Sweep.model_fields))
    try:
        return Sweep(**content)
    except ValidationError as error:
        raise _complaint(path, error) from None


def _complaint(path: Path, error: ValidationError) -> BadInputError:
    """Return the first complaint of pydantic's as one of ours."""
    first = error.errors(include_url=False)[0]
    place = [str(word) for word in first["loc"] if not (isinstance(word, str) and "[" in word)]
    key = f"{path}: {'.'.join(place)}" if place else str(path)
    if first["type"] == "extra_forbidden":
        owner = {"bytes": SizeRange, "effort": EffortSection}.get(place[0], Sweep) if len(place) > 1 else Sweep
        names = (field.alias or name for name, field in owner.model_fields.items())
        return BadInputError(key, first["input"], f"no such key, choose from {', '.join(names)}")
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, BadInputError):
        return BadInputError(key, inner.value, inner.expected)
    return BadInputError(key, first["input"], first["msg"])
