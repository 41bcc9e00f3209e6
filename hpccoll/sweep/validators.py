"""Validators of the names in a sweep file; they run while the file is read, so that all errors are reported at once."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from hpccoll.cases.catalogue import (
    RUN_PARAMETERS,
    check_algorithm,
    exact_parameters,
    known_parameters,
    measurable_names,
)
from hpccoll.cases.keys import ALL
from hpccoll.cases.product import expand_collectives
from hpccoll.cases.transport_table import DEVICES, check_transport
from hpccoll.common.errors import BadInputError, combine_errors
from hpccoll.common.limits import NUMBER
from hpccoll.common.yaml_model import Bounded, OneOrMore, Text
from hpccoll.schedule import BFLOAT16, COLLECTIVES, DTYPES, REDUCTIONS, unequal_blocks
from hpccoll.training.workload import TRAINING_STEP


def _one_of(*choices: str) -> AfterValidator:
    def check(name: str) -> str:
        if name not in choices:
            raise BadInputError("word", name, choices)
        return name

    return AfterValidator(check)


def _null_to_name(value: object) -> object:
    """Return the name of the algorithm null, which YAML reads as None."""
    return "null" if value is None else value


def _check_algorithm(name: str, info: ValidationInfo) -> str:
    if name != ALL:
        check_algorithm(name, _named_collectives(info))
    return name


def _check_transport(name: str, info: ValidationInfo) -> str:
    check_transport(name, info.data.get("devices", DEVICES))
    return name


def _check_traffic(name: str) -> str:
    unequal_blocks.named(name)
    return name


def _named_collectives(info: ValidationInfo) -> list[str]:
    """Return the collectives of the file; all collectives if the list is invalid."""
    names = expand_collectives(info.data.get("collectives", [ALL]))
    return [*names, TRAINING_STEP] if info.data.get("workloads") else names


def _check_params(params: "ParameterLists", info: ValidationInfo) -> "ParameterLists":
    unknown = _unknown_parameters(params, _named_collectives(info), info.data.get("algorithms", [ALL]))
    if errors := [*unknown, *_invalid_run_parameters(params)]:
        raise combine_errors(*errors)
    return params


def _invalid_run_parameters(params: "ParameterLists") -> Iterator[BadInputError]:
    for algorithm, lists in params.items():
        for name, valid in RUN_PARAMETERS.items():
            for value in lists.get(name, ()):
                try:
                    valid.check(f"params.{algorithm}.{name}", exact_parameters({name: value})[name])
                except BadInputError as error:
                    yield error


def _unknown_parameters(
    params: "ParameterLists", collectives: Sequence[str], measured: Collection[str]
) -> Iterator[BadInputError]:
    for algorithm, names in params.items():
        matching = [name for name in collectives if algorithm in measurable_names(name)]
        if not matching or not {algorithm, ALL} & {*measured}:
            valid = chain.from_iterable(map(measurable_names, collectives)) if ALL in measured else measured
            yield BadInputError("params", algorithm, dict.fromkeys(valid))
            continue
        known = dict.fromkeys(chain.from_iterable(known_parameters(name, algorithm) for name in matching))
        yield from (BadInputError(f"params.{algorithm}", name, known) for name in names if name not in known)


CollectiveName = Annotated[str, _one_of(*COLLECTIVES, ALL)]
AlgorithmName = Annotated[
    Text, BeforeValidator(_null_to_name, json_schema_input_type=str | None), AfterValidator(_check_algorithm)
]
TransportName = Annotated[str, AfterValidator(_check_transport)]
DtypeName = Annotated[str, _one_of(*DTYPES, BFLOAT16)]
OpName = Annotated[str, _one_of(*REDUCTIONS)]
TrafficName = Annotated[Text, AfterValidator(_check_traffic)]
ParameterValue = Annotated[int, Bounded(NUMBER)] | Text
ParameterLists = Annotated[
    dict[Annotated[str, BeforeValidator(_null_to_name)], dict[str, OneOrMore[ParameterValue]]],
    AfterValidator(_check_params),
]
