"""The section ``workloads`` of a sweep file: training steps to measure, every combination of its lists."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, create_model

from hpccoll.common.errors import BadInputError
from hpccoll.common.yaml_model import OneOrMore, Text, YamlSection, annotation_of
from hpccoll.training.models import MODELS
from hpccoll.training.step_keys import WORKLOAD

MODEL_FILES = (".yaml", ".yml", ".json")


def _check_model(name: str) -> str:
    if name not in MODELS and Path(name).suffix not in MODEL_FILES:
        raise BadInputError("model", name, sorted(MODELS))
    return name


_TYPES = {name: annotation_of(key.kind) for name, key in WORKLOAD.items()} | {
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
"""A training step; its keys are those of ``training.step_keys.WORKLOAD``."""
