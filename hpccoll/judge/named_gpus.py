"""The GPUs that results name, and whether they are those of a described cluster."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpccoll.common.text import join_words
from hpccoll.model.machine_content import cluster_names
from hpccoll.model.machine_file import MachineFile, read_machine
from hpccoll.model.machine_sections import ClassSection
from hpccoll.store.rows import Results, Run

GPU_DEVICES = "cuda", "rocm"
"""The devices whose ranks have a GPU each; only outputs of other programs have the second one."""

_MODEL = re.compile(r"\b[A-Z]*\d")
"""A model in the name of a GPU. Drivers call GPUs that they do not know ``NVIDIA Graphics Device``, without one."""


def gpus_with_model(run: Run) -> list[str]:
    """Return the names of the GPUs of a run that say which model it is, such as ``NVIDIA H100 80GB HBM3``."""
    names = dict.fromkeys(_gpu_names(run))
    return [name for name in names if _MODEL.search(name)]


def other_gpus(run: Run, machine: MachineFile) -> str:
    """Return that a run lists GPUs that a machine does not have; empty if it has them, or their names say no model."""
    like = machine.machine_class
    if like is None or not like.gpus:
        return ""
    foreign = [name for name in gpus_with_model(run) if not _is_one_of(name, like.gpus)]
    if not foreign:
        return ""
    theirs = join_words(like.gpus, "or")
    return (
        f"the results are of {join_words(foreign)}, and figures of {machine.name} are of {theirs}"
    )


def _is_one_of(name: str, gpus: Iterable[str]) -> bool:
    """Return whether a name is that of one of some GPUs: ``NVIDIA H200`` is one of H200, and not of H20."""
    return any(re.search(rf"\b{re.escape(gpu)}(?!\d)", name) for gpu in gpus)


@dataclass(frozen=True, slots=True)
class LikelyClusters:
    """The GPUs that results name, and the described clusters that have them."""

    gpus: Sequence[str]  # their names; empty if the results do not say which ran
    clusters: Sequence[str]  # the likeliest first


def likely_clusters(results: Results) -> LikelyClusters:
    """Return the described clusters with the GPUs of results and as many of them a node.

    Those of no cloud in particular come first; without any of as many GPUs a node, those with more.
    """
    names: dict[str, None] = {}
    for run in results.runs:
        names |= dict.fromkeys(gpus_with_model(run))
    ranks_per_node = gpus_per_node(results)
    fitting: list[tuple[bool, bool, str]] = []
    for cluster in cluster_names():
        machine = read_machine(cluster, "--cluster")
        like, geometry = machine.machine_class, machine.geometry
        if like is None or geometry is None or geometry.ranks_per_node < ranks_per_node:
            continue
        if names and all(_is_one_of(name, _own_gpus(machine, like)) for name in names):
            has_more = geometry.ranks_per_node > ranks_per_node
            is_of_a_cloud = like.operator is not None
            fitting.append((has_more, is_of_a_cloud, cluster))
    fitting.sort()
    as_many = [cluster for has_more, _, cluster in fitting if not has_more]
    return LikelyClusters(list(names), as_many or [cluster for _, _, cluster in fitting])


def _own_gpus(machine: MachineFile, like: ClassSection) -> list[str]:
    """Return the GPUs that a described cluster has; those of its class if its description names none of them.

    A class may count the figures of more than one GPU: H100 and H200 have the same.
    The first clause of a description names the GPUs of the cluster itself.
    """
    first_clause = (machine.source or "").partition(",")[0]
    own = []
    for gpu in like.gpus:
        if re.search(rf"(?:\b|\dx){re.escape(gpu)}(?!\d)", first_clause, re.IGNORECASE):
            own.append(gpu)
    return own or like.gpus


def gpus_per_node(results: Results) -> int:
    """Return the most ranks on a node, which have a GPU each; 0 if results do not say it, or are not of GPUs."""
    on_gpus = [row for row in results.rows if row.device in GPU_DEVICES]
    return max((row.ranks_per_node or 0 for row in on_gpus), default=0)


def clusters_of_size(ranks_per_node: int) -> list[str]:
    """Return the described clusters with a number of GPUs a node; those of no cloud in particular come first."""
    fitting: list[tuple[bool, str]] = []
    for cluster in cluster_names():
        machine = read_machine(cluster, "--cluster")
        like, geometry = machine.machine_class, machine.geometry
        if like and geometry and geometry.ranks_per_node == ranks_per_node:
            fitting.append((like.operator is not None, cluster))
    fitting.sort()
    return [cluster for _, cluster in fitting]


def _gpu_names(run: Run) -> Iterator[str]:
    """Yield the names of the GPUs of a run: those that an output lists, or that our ranks found on their hosts."""
    listed = run.provenance.get("device_names")
    if isinstance(listed, list):
        yield from map(str, listed)
    for group in _mappings(run.provenance.get("gpus")):
        for gpu in _mappings(group.get("gpus")):
            yield str(gpu.get("name") or "")


def _mappings(value: object) -> list[Mapping[str, object]]:
    """Return the mappings of a list; none of another value, as a file of others may have it."""
    if not isinstance(value, list):
        return []
    return [entry for entry in value if isinstance(entry, Mapping)]
