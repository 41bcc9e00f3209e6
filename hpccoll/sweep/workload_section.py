"""The section ``workloads`` of a sweep file: training steps to measure, every combination of its lists."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from hpccoll.common.errors import BadInputError
from hpccoll.common.limits import IntegerRange, OneOfWords
from hpccoll.common.units import parse_size
from hpccoll.common.yaml_model import Bounded, OneOrMore, Text, YamlSection
from hpccoll.training.models import MODELS
from hpccoll.training.workload import FLAG, SIZE, WORKLOAD, WorkloadKey

MODEL_FILES = (".yaml", ".yml", ".json")


def _flag(value: object) -> object:
    """Return 1 for true and 0 for false."""
    return {True: 1, False: 0, "true": 1, "false": 0}.get(value, value) if isinstance(value, bool | str) else value


def _size(value: int | str) -> int:
    size = parse_size(value)
    SIZE.check("bytes", size)
    return size


def _type_of(key: WorkloadKey) -> Any:
    """Return the annotation of a value of a key."""
    if key.size:
        return Annotated[int, BeforeValidator(_size, json_schema_input_type=int | str)]
    if key.kind is FLAG:
        return Annotated[int, BeforeValidator(_flag, json_schema_input_type=bool | int), Field(ge=0, le=1)]
    if isinstance(key.kind, IntegerRange):
        return Annotated[int, Bounded(key.kind)]
    return Annotated[Text, AfterValidator(_checked(key.kind))] if isinstance(key.kind, OneOfWords) else Text


def _checked(words: OneOfWords) -> Any:
    def check(value: str) -> str:
        words.check("word", value)
        return value

    return check


def _check_model(name: str) -> str:
    if name not in MODELS and Path(name).suffix not in MODEL_FILES:
        raise BadInputError("model", name, sorted(MODELS))
    return name


_TYPES = {name: _type_of(key) for name, key in WORKLOAD.items()} | {
    "model": Annotated[Text, AfterValidator(_check_model)]
}

_LIST: Any = OneOrMore  # subscripted at run time
_FIELDS: dict[str, Any] = {
    name: (_LIST[_TYPES[name]], Field([key.default], description=key.help)) for name, key in WORKLOAD.items()
}
WorkloadSection: Any = create_model(
    "WorkloadSection",
    __base__=YamlSection,
    __doc__="A training step to measure; every combination of the entries of its lists is a case.",
    **_FIELDS,
)
"""A training step; its keys are those of ``training.workload.WORKLOAD``."""
