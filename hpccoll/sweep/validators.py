"""Validators of the names in a sweep file; they run while the file is read, so that all errors are reported at once."""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from hpccoll.errors import BadInputError, combine_errors
from hpccoll.limits import NUMBER
from hpccoll.schedule import BFLOAT16, COLLECTIVES, DTYPES, REDUCTIONS, unequal_blocks
from hpccoll.spec.catalogue import check_algorithm, known_parameters, measurable_names
from hpccoll.spec.transport_table import DEVICES, check_transport
from hpccoll.sweep.yaml_model import Bounded, OneOrMore, Text

ALL = "all"
"""Selects all collectives, or all algorithms of a collective."""


def expand_collectives(words: Sequence[str]) -> list[str]:
    """Return the collectives that entries of a sweep file select, each once."""
    return list(dict.fromkeys(chain.from_iterable(COLLECTIVES if word == ALL else [word] for word in words)))


def _one_of(*words: str) -> AfterValidator:
    def look_up(word: str) -> str:
        if word not in words:
            raise BadInputError("word", word, words)
        return word

    return AfterValidator(look_up)


def _null_to_name(value: object) -> object:
    """Return the name of the algorithm null, which YAML reads as None."""
    return "null" if value is None else value


def _check_algorithm(word: str, read: ValidationInfo) -> str:
    if word != ALL:
        check_algorithm(word, _named_collectives(read))
    return word


def _check_transport(word: str, read: ValidationInfo) -> str:
    check_transport(word, read.data.get("devices", DEVICES))
    return word


def _check_traffic(word: str) -> str:
    unequal_blocks.named(word)
    return word


def _named_collectives(read: ValidationInfo) -> list[str]:
    """Return the collectives of the file; all collectives if the list is invalid."""
    return expand_collectives(read.data.get("collectives", [ALL]))


def _check_params(params: "ParameterLists", read: ValidationInfo) -> "ParameterLists":
    if strange := [*_unknown_parameters(params, _named_collectives(read), read.data.get("algorithms", [ALL]))]:
        raise combine_errors(*strange)
    return params


def _unknown_parameters(
    params: "ParameterLists", collectives: Sequence[str], measured: Collection[str]
) -> Iterator[BadInputError]:
    """Yield an error for each unknown algorithm or parameter."""
    for algorithm, names in params.items():
        having = [name for name in collectives if algorithm in measurable_names(name)]
        if not having or not {algorithm, ALL} & {*measured}:
            every = chain.from_iterable(map(measurable_names, collectives)) if ALL in measured else measured
            yield BadInputError("params", algorithm, dict.fromkeys(every))
            continue
        known = dict.fromkeys(chain.from_iterable(known_parameters(name, algorithm) for name in having))
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
