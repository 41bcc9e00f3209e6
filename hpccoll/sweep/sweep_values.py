"""Values and sections of a sweep file, which are checked while it is read, so that all errors are reported at once."""

import fnmatch
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    model_validator,
)

from hpccoll.cases import catalogue
from hpccoll.cases.algorithm_files import with_files
from hpccoll.cases.algorithm_registry import PLAN
from hpccoll.cases.catalogue import RUN_PARAMETERS, check_algorithm, measurable_names
from hpccoll.cases.communicator_settings import overridden_settings
from hpccoll.cases.keys import ALL, DIAGNOSE, EFFORT
from hpccoll.cases.product import expand_collectives
from hpccoll.cases.transport_table import DEVICES, check_transport
from hpccoll.cases.variants import named_variants, variant_communicator, variant_environment
from hpccoll.common import yaml_model
from hpccoll.common.errors import BadInputError, combine_errors
from hpccoll.common.limits import MAX_LIST_ENTRIES, MAX_NAME_LETTERS, NUMBER, Key, OneOfWords
from hpccoll.common.yaml_model import (
    DIRECTORY,
    Bounded,
    OneOrMore,
    Text,
    VariableValue,
    YamlSection,
    annotation_of,
)
from hpccoll.schedule import COLLECTIVES, DTYPE, REDUCTIONS, unequal_blocks
from hpccoll.store.racks_file import read_racks
from hpccoll.sweep.workload_section import workloads_of


def _null_to_name(value: object) -> object:
    """Return the name of the algorithm null, which YAML reads as None."""
    return "null" if value is None else value


def _check_algorithm(name: str, info: ValidationInfo) -> str:
    if name != ALL:
        check_algorithm(name, _named_collectives(info))
    return name


def _with_digest(name: str, info: ValidationInfo) -> str:
    """Register the file of an algorithm, whose path is relative to the sweep file; return its name with a digest."""
    try:
        (named,) = with_files([name], info.context[DIRECTORY] if info.context else Path())
    except BadInputError as error:  # its key may have a place in the plan
        raise (
            error.with_key(f"{info.field_name}.{error.key}")
            if error.key.startswith(PLAN)
            else error
        ) from None
    return named


def _check_transport(name: str, info: ValidationInfo) -> str:
    check_transport(name, info.data.get("devices", DEVICES))
    return name


def _check_traffic(name: str) -> str:
    unequal_blocks.named(name)
    return name


def _named_collectives(info: ValidationInfo) -> list[str]:
    """Return the collectives of the file; all collectives if the list is invalid."""
    names = expand_collectives(info.data.get("collectives", [ALL]))
    sections = info.data.get("workloads", [])
    return [*names, *workloads_of(sections)]


def _check_params(params: "ParameterLists", info: ValidationInfo) -> "ParameterLists":
    unknown = _unknown_parameters(
        params, _named_collectives(info), info.data.get("algorithms", [ALL])
    )
    if errors := [*unknown, *_invalid_run_parameters(params)]:
        raise combine_errors(*errors)
    return params


def _invalid_run_parameters(params: "ParameterLists") -> Iterator[BadInputError]:
    for algorithm, lists in params.items():
        for name, valid in RUN_PARAMETERS.items():
            for value in lists.get(name, ()):
                try:
                    valid.check(
                        f"params.{algorithm}.{name}",
                        catalogue.exact_parameters({name: value})[name],
                    )
                except BadInputError as error:
                    yield error


def _unknown_parameters(
    params: "ParameterLists", collectives: Sequence[str], measured: Collection[str]
) -> Iterator[BadInputError]:
    for algorithm, names in params.items():
        matching = [name for name in collectives if algorithm in measurable_names(name)]
        if not matching or not {algorithm, ALL} & {*measured}:
            valid = (
                chain.from_iterable(map(measurable_names, collectives))
                if ALL in measured
                else measured
            )
            yield BadInputError("params", algorithm, dict.fromkeys(valid))
            continue
        valid_names = dict.fromkeys(
            chain.from_iterable(catalogue.known_parameters(name, algorithm) for name in matching)
        )
        yield from (
            BadInputError(f"params.{algorithm}", name, valid_names)
            for name in names
            if name not in valid_names
        )


CollectiveName: Any = annotation_of(OneOfWords((*COLLECTIVES, ALL)))
AlgorithmName = Annotated[
    Text,
    BeforeValidator(_null_to_name, json_schema_input_type=str | None),
    AfterValidator(_with_digest),
    AfterValidator(_check_algorithm),
]
TransportName = Annotated[str, AfterValidator(_check_transport)]
DtypeName: Any = annotation_of(DTYPE)
OpName: Any = annotation_of(OneOfWords(tuple(REDUCTIONS)))
TrafficName = Annotated[Text, AfterValidator(_check_traffic)]
ParameterValue = Annotated[int, Bounded(NUMBER)] | Text
ParameterLists = Annotated[
    dict[
        Annotated[str, BeforeValidator(_null_to_name), AfterValidator(_with_digest)],
        dict[str, OneOrMore[ParameterValue]],
    ],
    AfterValidator(_check_params),
]


class VariantSection(YamlSection):
    """The variables of a variant, and its settings of NCCL's communicators."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, VariableValue] = Field(init=False)
    communicator: dict[Text, Annotated[int, Bounded(NUMBER)] | Text] = Field(
        {},
        description="settings of NCCL's communicators, by nccl4py: {traffic_class: 106, buffers: symmetric}",
    )

    @model_validator(mode="after")
    def _have_names(self) -> "VariantSection":
        yaml_model.check_variable_names(self.environment)
        return self

    @property
    def environment(self) -> dict[str, str]:
        return self.__pydantic_extra__


def _complete_variants(sections: dict[str, VariantSection | None]) -> dict[str, VariantSection]:
    """Add the settings of known variants, so that none is None; a variant without settings must be a known one.

    A name such as ``openmpi-*`` stands for all known variants that match it.
    """
    completed, errors = {}, []
    for pattern, section in sections.items():
        for name in fnmatch.filter(named_variants(), pattern) or [pattern]:
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
    environment = dict(
        variant_environment(name, section.environment if section else None, settings)
    )
    communicator = variant_communicator(name, settings, f"variants.{name}.communicator")
    for setting, variable in overridden_settings(environment, communicator):
        expected = f"left out: it would override {setting} of communicator"
        raise BadInputError(f"variants.{name}.{variable}", environment[variable], expected)
    return VariantSection.model_validate({**environment, "communicator": communicator})


Variants = Annotated[
    dict[str, VariantSection | None],
    Field(max_length=MAX_LIST_ENTRIES),
    AfterValidator(_complete_variants),
]


def _check_racks(name: str) -> str:
    """Check a file of racks when the sweep is planned; a job may start in another directory."""
    read_racks(Path(name), "racks")
    return str(Path(name).absolute())


class DiagnoseSection(YamlSection):
    """A diagnosis of the nodes of a job."""

    links: bool | None = yaml_model.field(DIAGNOSE["links"])
    racks: Annotated[Text, AfterValidator(_check_racks)] | None = yaml_model.field(
        DIAGNOSE["racks"]
    )

    @property
    def options(self) -> tuple[str, ...]:
        """The options of ``hpccoll diagnose``."""
        flags = {None: (), True: ("--links",), False: ("--no-links",)}[self.links]
        return (*flags, *(("--racks", self.racks) if self.racks else ()))


def _effort_type(key: Key) -> Any:
    """Return the type of a key of ``effort``; what has no default is a whole number that may be left out."""
    assert key.bound  # noqa: S101  the table of keys is wrong otherwise
    if key.default is None:
        return Annotated[int, Bounded(key.bound)] | None
    return Annotated[type(key.default), Bounded(key.bound)]


_EFFORT: dict[str, Any] = {
    name: (_effort_type(key), yaml_model.field(key)) for name, key in EFFORT.items()
}
EffortSection: Any = create_model(
    "EffortSection",
    __base__=YamlSection,
    __doc__="How long each case is measured, over all of its rounds.",
    **_EFFORT,
)
