"""Known defects that fit runs: what files and logs record of them, and which of two compared runs has a defect."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpccoll.evidence.defects import (
    FittingDefect,
    RunFacts,
    Trouble,
    fitting_defects,
    numbers_of_versions,
)
from hpccoll.evidence.log_record import LogRecord
from hpccoll.evidence.logged_defects import facts_of_log
from hpccoll.judge.provenance_changes import Facts
from hpccoll.model.machine_file import MachineFile
from hpccoll.schedule.collective import NATIVE

_VERSION = r"v?(\d+(?:\.\d+)+)"

VERSIONS: Mapping[str, re.Pattern[str]] = {
    "NCCL": re.compile(rf"\bNCCL {_VERSION}"),
    "RCCL": re.compile(rf"\bRCCL {_VERSION}"),
    "Open MPI": re.compile(rf"\bOpen MPI {_VERSION}"),
    "Cray MPICH": re.compile(rf"(?i:cray mpich) (?:version )?{_VERSION}"),
    "MPICH": re.compile(rf"(?<!CRAY )(?<!Cray )\bMPICH {_VERSION}"),
    "Intel MPI": re.compile(rf"\bIntel(?:\(R\))? MPI (?:Library )?{_VERSION}"),
    "HPC-X": re.compile(rf"(?i)\bhpc-?x[-/ ]{_VERSION}"),
    "UCX": re.compile(rf"(?i)\bucx[-/ ]{_VERSION}"),
    "libfabric": re.compile(rf"(?i)\blibfabric[-/ ]{_VERSION}"),
    "aws-ofi-nccl": re.compile(rf"(?i)\baws-ofi-[nr]ccl[-/ ]{_VERSION}"),
    "ROCm": re.compile(rf"(?i)\brocm[-/ ]{_VERSION}"),
}
"""The versions of components in texts of the provenance: names of libraries, and paths that name them."""

TEXTS = "library", "mpi.version", "mpi.path", "variables.LD_LIBRARY_PATH"
"""The facts that name components in words or paths."""


def _values(facts: Facts, name: str) -> list[str]:
    """Return the values of a fact; none where it is absent."""
    return [value for value in facts.get(name, ()) if value not in ("none", "null", "unknown")]


def _versions(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the components whose version is the same in all runs, with it."""
    texts = [value for name in TEXTS for value in _values(facts, name)]
    named = {component: set[str]() for component in VERSIONS}
    for component, pattern in VERSIONS.items():
        for text in texts:
            named[component].update(pattern.findall(text))
    named["NCCL"].update(_quoted(facts, "nccl", "version"))
    named["CUDA driver"] = set(_quoted(facts, "gpus", "driver"))
    named["kernel"] = {value.partition(" ")[2] for value in _values(facts, "kernel")}
    for component, versions in named.items():
        if len(versions) == 1:
            yield component, versions.pop()


def _quoted(facts: Facts, name: str, key: str) -> list[str]:
    """Return the texts of a key in facts that are JSON."""
    values: list[str] = []
    for value in _values(facts, name):
        values += re.findall(rf'"{key}": "([^"]+)"', value)
    return values


def _gpu_names(facts: Facts) -> set[str]:
    names = set(_quoted(facts, "gpus", "name"))
    for value in _values(facts, "device_names"):
        names.update(json.loads(value) if value.startswith("[") else (value,))
    return names


def facts_of_results(
    facts: Facts, log: LogRecord | None = None, machine: MachineFile | None = None
) -> RunFacts:
    """Return what is known of runs for the table of defects.

    Args:
        facts: what their files record, as ``facts_of_runs`` returns it.
        log: the content of their logs.
        machine: the machine that the user names; its GPUs count where the files name none.
    """
    variables = {}
    for name, values in facts.items():
        if name.startswith("variables.") and len(values) == 1:
            variables[name.removeprefix("variables.")] = values[0]
    gpus = _gpu_names(facts)
    mixed_gpus = None
    if gpus:
        mixed_gpus = len(gpus) > 1
    recorded = RunFacts(
        versions=dict(_versions(facts)),
        gpus=gpus,
        mixed_gpus=mixed_gpus,
        cpus=_values(facts, "cpu"),
        networks=set(_networks(variables, machine)),
        variables=variables,
    )
    if log is not None:
        recorded = _joined(recorded, facts_of_log(log))
    if not recorded.gpus:
        return replace(recorded, gpus=_described(machine, "gpus") or ())
    return recorded


def _described(machine: MachineFile | None, name: str) -> Any:
    """Return what the class of a machine says; None without one."""
    if machine is None or machine.machine_class is None:
        return None
    return getattr(machine.machine_class, name)


def _joined(recorded: RunFacts, logged: RunFacts) -> RunFacts:
    """Return what files and logs say together; logs name more of the software."""
    return replace(
        logged,
        versions={**recorded.versions, **logged.versions},
        gpus=recorded.gpus or logged.gpus,
        mixed_gpus=recorded.mixed_gpus,
        cpus=recorded.cpus,
        networks=logged.networks or recorded.networks,
        variables={**recorded.variables, **logged.variables},
    )


def _networks(variables: Mapping[str, str], machine: MachineFile | None) -> Iterator[str]:
    """Yield the networks that a variable or the class of the machine names."""
    provider = variables.get("FI_PROVIDER", "")
    if provider == "cxi":
        yield "slingshot"
    elif provider in ("efa", "opx"):
        yield provider
    network = _described(machine, "network") or ""
    kind = network.partition("-")[2]
    if kind == "efa":
        yield "efa"
    elif kind.startswith("tcp"):
        yield "tcp"


HANGS = re.compile(r"(?i)\bhang|\bhung|stall|no progress|timed? ?out|left behind")
"""What the reason of a failed case says if its ranks waited in vain."""


def kind_of_failure(status: str, reason: str | None) -> str:
    """Return the kind of trouble of a case without a right result."""
    if status == "wrong":
        return "wrong"
    if HANGS.search(reason or ""):
        return "hang"
    return "fails"


def called_collective(collective: str, algorithm: str) -> str:
    """Return what of a library a call uses: messages, unless the collective is the library's own."""
    if algorithm == NATIVE:
        return collective
    return "send_recv"


@dataclass(frozen=True, slots=True)
class CrossedDefects:
    """Known defects of one of two runs that fit the cases that changed between them, the surest first."""

    # of the new run: they fit cases that became slower or wrong
    begun: Sequence[FittingDefect] = ()
    # of the old run: they fit cases that became faster
    ended: Sequence[FittingDefect] = ()


NO_DEFECTS = CrossedDefects()
"""What follows where no case changed."""


def crossed_defects(
    old: RunFacts, new: RunFacts, worse: Sequence[Trouble], better: Sequence[Trouble]
) -> CrossedDefects:
    """Return the defects that a change between two runs began or ended.

    Args:
        old: what is known of the old run.
        new: what is known of the new run.
        worse: what went wrong in the new run, held against the old one.
        better: what went wrong in the old run, held against the new one.
    """
    return CrossedDefects(_only_of(new, old, worse), _only_of(old, new, better))


def _only_of(
    affected: RunFacts, unaffected: RunFacts, troubles: Sequence[Trouble]
) -> list[FittingDefect]:
    """Return the defects that fit one run and not the other one, whose version is known where a range has ends.

    What is wrong, or ends a run, may have been so in both.
    """
    in_both = {fit.defect.id for fit in fitting_defects(unaffected, troubles)}
    numbers = numbers_of_versions(unaffected)
    crossed = []
    for fit in fitting_defects(affected, troubles):
        versions = fit.defect.versions
        number = numbers.get(versions.component)
        is_known = bool(number) or not versions.has_bound
        if fit.defect.kind == "slow" and (not is_known or fit.defect.id in in_both):
            continue
        good_version = ""
        if number and not versions.contains(number):
            good_version = unaffected.versions[versions.component]
        crossed.append(replace(fit, good_version=good_version))
    return crossed
