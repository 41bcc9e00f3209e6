"""The sections of a workload in sweep files. The extension that brings the workload names them under ``sections``."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, Protocol

from hpccoll.common.extensions import contributed, contributed_names
from hpccoll.common.yaml_model import YamlSection
from hpccoll.schedule import Parameter


class WorkloadRequests(NamedTuple):
    """What the sections of a sweep file ask for."""

    # lists of values by the keys of the workload
    requests: Sequence[Mapping[str, Sequence[Parameter]]]
    files: Mapping[str, Any]  # the contents of files of the user that they name, by name


class WorkloadSections(Protocol):
    """The sections of a workload."""

    section: type[YamlSection]
    """The model of a section; its keys are those of the workload."""

    def requests(self, sections: Sequence[Any]) -> WorkloadRequests:
        """Return what sections ask for, and read the files that they name.

        Raises:
            BadInputError: if a file cannot be read, or its content is invalid.
        """


def sections_of(name: str) -> WorkloadSections:
    """Return the sections of a workload that an extension brings."""
    sections: WorkloadSections = contributed("sections", name)
    return sections


def section_type() -> Any:
    """Return the type of an entry of ``workloads``: a section of any workload."""
    models = [sections_of(name).section for name in contributed_names("sections")]
    if models:
        return reduce(or_, models)
    return YamlSection


def workloads_of(sections: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the sections of a file by the names of their workloads."""
    by_name = {}
    for name in contributed_names("sections"):
        own_sections = [
            section for section in sections if isinstance(section, sections_of(name).section)
        ]
        if own_sections:
            by_name[name] = own_sections
    return by_name


def requests_by_workload(sections: Sequence[Any]) -> dict[str, WorkloadRequests]:
    """Return what the sections of a file ask for, by the names of their workloads.

    Raises:
        BadInputError: if a file that a section names cannot be read, or its content is invalid.
    """
    return {
        name: sections_of(name).requests(own_sections)
        for name, own_sections in workloads_of(sections).items()
    }
