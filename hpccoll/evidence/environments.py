"""The environment of a variant, as people write it: what is added to the table's, what can be set, what is misspelt."""

from collections.abc import Iterator, Mapping
from typing import Any

from hpccoll.errors import BadInputError, did_you_mean
from hpccoll.evidence.communicator import check_settings
from hpccoll.evidence.nccl_names import CHOICES, LISTS, NAMES, PREFIX
from hpccoll.evidence.requested import FUNCTIONS
from hpccoll.evidence.variants import EXAMPLES, VARIANTS

SLIP = 0.88
"""The likeness of two names that differ in a letter or two that changed places: nccl-default is no nccl-cta-default."""


def environment_of(name: str, variables: Mapping[str, object] | None, settings: object = None) -> Mapping[str, object]:
    """Return the environment of a variant of a sweep: the table's, with ``variables`` added, and its site's put in.

    Args:
        name: of the variant.
        variables: what a sweep file has behind it, numbers as YAML reads them; None for nothing.
        settings: of communicators, that it has beside them.

    Raises:
        BadInputError: for a name that is not in the table and sets nothing, unless it says so (``{}``) and is no slip
            of one that is; for a value that makes of a variant of the table another one, whose rows would carry its
            name; for one that the library does not know.
    """
    if name not in VARIANTS and variables == {} and not settings and (slip := did_you_mean(name, VARIANTS, SLIP)):
        raise BadInputError("variants", name, f"{slip}one that sets nothing has a name less like those that do")
    if name not in VARIANTS and variables is None:
        near = did_you_mean(name, VARIANTS)
        raise BadInputError("variants", name, f"{near}variables behind it, or a known name: {', '.join(VARIANTS)}")
    own = VARIANTS[name].environment if name in VARIANTS else {}
    _check_claim(f"variants.{name}", name, own, variables or {})
    check_values(f"variants.{name}", variables or {})
    return {**own, **(variables or {})}


def communicator_of(name: str | None, settings: Mapping[str, object], key: str) -> Mapping[str, Any]:
    """Return what NCCL's communicators are made with in a variant: the table's, with ``settings`` added.

    Args:
        name: of the variant, None for none.
        settings: as they are written.
        key: below which they are.

    Raises:
        BadInputError: likewise; for a setting that is not known.
    """
    own = VARIANTS[name].communicator if name and name in VARIANTS else {}
    _check_claim(key, str(name), own, settings)
    check_settings(key, settings)
    return {**own, **settings}


def _check_claim(key: str, variant: str, own: Mapping[str, object], asked: Mapping[str, object]) -> None:
    """See that what is asked leaves a variant of the table what it is; ``own`` is what that sets."""
    for name, value in asked.items():
        if name in own and name not in EXAMPLES and str(value) != str(own[name]):
            expected = f"{own[name]}, which is what {variant} sets: for another value take another name"
            raise BadInputError(f"{key}.{name}", value, expected)


def check_values(key: str, variables: Mapping[str, object]) -> None:
    """See that variables whose values are known have one of these.

    Args:
        key: below which they are set.
        variables: with values as YAML reads them.

    Raises:
        BadInputError: names the first other value.
    """
    for name, value in variables.items():
        text = str(value)
        if name in CHOICES and text not in CHOICES[name]:
            raise BadInputError(f"{key}.{name}", value, CHOICES[name])
        if name in LISTS:
            _check_list(f"{key}.{name}", text, LISTS[name])


def _check_list(key: str, text: str, words: tuple[str, ...]) -> None:
    for part in text.split(";"):
        function, colon, names = part.rpartition(":")
        if colon and function.lower() not in FUNCTIONS:
            raise BadInputError(key, text, f"before a colon one of {', '.join(FUNCTIONS)}")
        for name in names.removeprefix("^").split(","):  # no blanks: NCCL compares words as they are
            if name.lower() not in {word.lower() for word in words}:
                near = did_you_mean(name.strip(), words)
                grammar = "in a list, such as {0},{1}, ^{0} or allreduce:{0};allgather:{1}".format(*words)
                raise BadInputError(key, text, f"{near}one of {', '.join(words)}, {grammar}")


def doubts(variables: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence for every variable that is named as NCCL's are and that, as far as is known, nobody reads."""
    for name in variables:
        own = name.upper().removeprefix(PREFIX)
        if name.upper().startswith(PREFIX) and not (name.startswith(PREFIX) and own in NAMES):
            near = did_you_mean(own, sorted(NAMES)).replace("mean ", f"mean {PREFIX}")
            said = f"{name} is no variable of NCCL up to 2.32 or of its plugins, and they say nothing of it"
            yield f"{said}; {near}".strip("; ")
