"""Sections of a sweep file: variants, completed with the known ones of the same names, effort and training steps."""

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, create_model, model_validator

from hpccoll.cases.communicator_settings import overridden_settings
from hpccoll.cases.keys import EFFORT
from hpccoll.cases.variants import variant_communicator, variant_environment
from hpccoll.common.errors import BadInputError, combine_errors
from hpccoll.common.limits import MAX_LIST_ENTRIES, MAX_NAME_LETTERS, NUMBER
from hpccoll.common.yaml_model import (
    Bounded,
    OneOrMore,
    Text,
    VariableValue,
    YamlSection,
    annotation_of,
    check_variable_names,
    field,
)
from hpccoll.training.models import MODELS
from hpccoll.training.step_keys import WORKLOAD


class VariantSection(YamlSection):
    """The variables of a variant, and its settings of NCCL's communicators."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, VariableValue] = Field(init=False)
    communicator: dict[Text, Annotated[int, Bounded(NUMBER)] | Text] = Field(
        {}, description="settings of NCCL's communicators, by nccl4py: {traffic_class: 106, buffers: symmetric}"
    )

    @model_validator(mode="after")
    def _have_names(self) -> "VariantSection":
        check_variable_names(self.environment)
        return self

    @property
    def environment(self) -> dict[str, str]:
        return self.__pydantic_extra__


def _complete_variants(sections: dict[str, VariantSection | None]) -> dict[str, VariantSection]:
    """Add the settings of known variants, so that none is None; a variant without settings must be a known one."""
    completed, errors = {}, []
    for name, section in sections.items():
        try:
            completed[name] = _complete(name, section)
        except BadInputError as error:
            errors.append(error)
    if errors:
        raise combine_errors(*errors)
    return completed


def _complete(name: str, section: VariantSection | None) -> VariantSection:
    if len(name) > MAX_NAME_LETTERS or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        expected = f"at most {MAX_NAME_LETTERS} letters (A to Z), digits, - and _: it becomes part of file names"
        raise BadInputError("variants", name, expected)
    settings = section.communicator if section else {}
    environment = dict(variant_environment(name, section.environment if section else None, settings))
    communicator = variant_communicator(name, settings, f"variants.{name}.communicator")
    for setting, variable in overridden_settings(environment, communicator):
        expected = f"left out: it would override {setting} of communicator"
        raise BadInputError(f"variants.{name}.{variable}", environment[variable], expected)
    return VariantSection.model_validate({**environment, "communicator": communicator})


Variants = Annotated[
    dict[str, VariantSection | None], Field(max_length=MAX_LIST_ENTRIES), AfterValidator(_complete_variants)
]


MODEL_FILES = (".yaml", ".yml", ".json")


def _check_model(name: str) -> str:
    if name not in MODELS and Path(name).suffix not in MODEL_FILES:
        raise BadInputError("model", name, sorted(MODELS))
    return name


_TYPES = {name: annotation_of(key.kind) for name, key in WORKLOAD.items()} | {
    "model": Annotated[Text, AfterValidator(_check_model)]
}

_EFFORT: dict[str, Any] = {
    name: (Annotated[type(key.default), Bounded(key.bound)], field(key)) for name, key in EFFORT.items() if key.bound
}
EffortSection: Any = create_model(
    "EffortSection", __base__=YamlSection, __doc__="How long each case is measured, over all of its rounds.", **_EFFORT
)

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
"""A training step; its keys are those of ``training.step_keys.WORKLOAD``."""
