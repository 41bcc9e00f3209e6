"""The sections of training steps in sweep files, as ``sweep.workload_section.WorkloadSections`` reads them."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, create_model

from hpccoll.common.yaml_model import OneOrMore, Text, YamlSection, annotation_of, load_plain_yaml
from hpccoll.extensions.steps.training.model_file import load_models, model_file
from hpccoll.extensions.steps.training.models import check_model
from hpccoll.extensions.steps.training.step_keys import WORKLOAD
from hpccoll.sweep.workload_section import WorkloadRequests


def _check_model(name: str) -> str:
    if model_file(name) is None:
        check_model(name)
    return name


_TYPES = {name: annotation_of(key.kind) for name, key in WORKLOAD.items()} | {
    "model": Annotated[Text, AfterValidator(_check_model)]
}
_LIST: Any = OneOrMore  # subscripted at run time
_FIELDS: dict[str, Any] = {
    name: (_LIST[_TYPES[name]], Field([key.default], description=key.help))
    for name, key in WORKLOAD.items()
}
WorkloadSection: Any = create_model(
    "WorkloadSection",
    __base__=YamlSection,
    __doc__="A training step to measure; every combination of the entries of its lists is a case.",
    **_FIELDS,
)
"""A training step; its keys are those of ``training.step_keys.WORKLOAD``."""


class StepSections:
    """Reads the sections; each method does what that of ``WorkloadSections`` says. Their files are models."""

    section: type[YamlSection] = WorkloadSection

    def requests(self, sections: Sequence[Any]) -> WorkloadRequests:
        names = [name for section in sections for name in section.model]
        models = load_models(names, "model", load_plain_yaml)
        requests = []
        for section in sections:
            lists = {name: getattr(section, name) for name in WORKLOAD}
            lists["model"] = [models.name_of(name) for name in section.model]
            requests.append(lists)
        return WorkloadRequests(requests, models.contents)


STEP_SECTIONS = StepSections()
