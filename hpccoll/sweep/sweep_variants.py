"""The variants of a sweep file, completed with the settings of the known variants of the same names."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from hpccoll.cases.communicator_settings import overridden_settings
from hpccoll.cases.variants import variant_communicator, variant_environment
from hpccoll.common.errors import BadInputError, combine_errors
from hpccoll.common.limits import MAX_LIST_ENTRIES, MAX_NAME_LETTERS, NUMBER
from hpccoll.common.yaml_model import Bounded, Text, VariableValue, YamlSection, check_variable_names

COMMUNICATOR = "communicator"
"""The only key of a variant that is not a variable."""


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


def _complete_variants(value: object) -> object:
    """Add the settings of known variants; a variant without settings of its own must be a known one."""
    if not isinstance(value, dict):
        return value
    if len(value) > MAX_LIST_ENTRIES:
        raise BadInputError("variants", len(value), f"at most {MAX_LIST_ENTRIES} of them")
    completed, errors = dict(value), []
    for name, settings in value.items():
        if isinstance(settings, dict | None) and isinstance(name, str):
            try:
                completed[name] = _complete(name, settings)
            except BadInputError as error:
                errors.append(error)
    if errors:
        raise combine_errors(*errors)
    return completed


def _complete(name: str, section: dict[str, Any] | None) -> dict[str, Any]:
    """Return the settings of a variant with those of the known variant of that name.

    Raises:
        BadInputError: if a setting is invalid, or a variable would override a setting of the communicators.
    """
    variables, settings = section, (section or {}).get(COMMUNICATOR, {})
    if section is not None:
        variables = {key: value for key, value in section.items() if key != COMMUNICATOR}
    completed = dict(variant_environment(name, variables, settings))
    if not isinstance(settings, dict):
        return {**completed, COMMUNICATOR: settings}  # VariantSection reports it with the other type errors
    communicator = variant_communicator(name, settings, f"variants.{name}.{COMMUNICATOR}")
    for setting, variable in overridden_settings(completed, communicator):
        expected = f"left out: it would override {setting} of {COMMUNICATOR}"
        raise BadInputError(f"variants.{name}.{variable}", completed[variable], expected)
    return {**completed, COMMUNICATOR: communicator}


def _check_names(variants: dict[str, VariantSection]) -> dict[str, VariantSection]:
    for name in variants:
        if len(name) > MAX_NAME_LETTERS or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            expected = f"at most {MAX_NAME_LETTERS} letters (A to Z), digits, - and _: it becomes part of file names"
            raise BadInputError("variants", name, expected)
    return variants


Variants = Annotated[
    dict[str, VariantSection],
    BeforeValidator(_complete_variants, json_schema_input_type=dict[str, VariantSection | None]),
    AfterValidator(_check_names),
]
