"""A run for each known defect that has it, and the same run with the next version, which has not."""

import tomllib
from dataclasses import replace
from pathlib import Path

from hpccoll.evidence.defect_table import known_defects
from hpccoll.evidence.defects import RunFacts, Trouble
from hpccoll.evidence.log_set import read_logs

LINES = tomllib.loads((Path(__file__).parent / "evidence" / "defect_lines.toml").read_text())
"""A line of a log for each row with a pattern."""

SPEAKING = [defect for defect in known_defects() if not defect.silent]

NAMES = {
    "A10": "NVIDIA A10",
    "A10G": "NVIDIA A10G",
    "A100": "NVIDIA A100-SXM4-80GB",
    "A40": "NVIDIA A40",
    "B200": "NVIDIA B200",
    "B300": "NVIDIA B300 SXM6 AC",
    "GB10": "NVIDIA GB10",
    "GB200": "NVIDIA GB200",
    "GB300": "NVIDIA GB300",
    "GH200": "NVIDIA GH200 480GB",
    "H100": "NVIDIA H100 80GB HBM3",
    "H200": "NVIDIA H200",
    "L4": "NVIDIA L4",
    "MI": "AMD Instinct MI250X",
    "MI210": "AMD Instinct MI210",
    "MI250": "AMD Instinct MI250X",
    "MI300": "AMD Instinct MI300X",
    "MI350": "AMD Instinct MI350X",
    "RTX 50": "NVIDIA GeForce RTX 5090",
}
"""The name of a GPU, as its driver says it, by the word of the table."""

CPUS = {"AMD": "AMD EPYC 9654 96-Core Processor", "EPYC": "AMD EPYC 7742 64-Core Processor",
        "Skylake": "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz"}  # fmt: skip
SKYLAKE = "Intel Xeon Processor (Skylake)"

SETTINGS = {
    "NCCL_NET_GDR_LEVEL=(0|LOC)": ("NCCL_NET_GDR_LEVEL", "LOC"),
    "NCCL_(ALGO|PROTO)=.*": ("NCCL_ALGO", "Ring"),
    "NCCL_LSA_TEAM_SIZE=.*": ("NCCL_LSA_TEAM_SIZE", "4"),
    "FI_PROVIDER=.*lnx.*": ("FI_PROVIDER", "lnx:cxi"),
    "OMPI_MCA_coll_han_priority=[1-9].*": ("OMPI_MCA_coll_han_priority", "40"),
}
"""A setting that a pattern of the table matches; other patterns match themselves."""


def text_of(version):
    return ".".join(map(str, version))


def earlier(version):
    """Return a version before another one."""
    *rest, last = version
    if last:
        return (*rest, last - 1, 9)
    return earlier(tuple(rest))


def bad_version(defect):
    """Return a version that has the defect; None if the table names none."""
    versions = defect.versions
    for candidate in (*versions.named, versions.least, versions.below and earlier(versions.below)):
        if candidate and versions.contains(candidate):
            return text_of(candidate)
    return None


def good_version(defect):
    """Return the first good version, or else the last good one before the defect; None if the table names none."""
    versions = defect.versions
    if versions.below and not versions.contains(versions.below):
        return text_of(versions.below)
    for candidate in (versions.after, versions.least and earlier(versions.least)):
        if candidate:
            return text_of(candidate)
    return text_of(earlier(min(versions.named))) if versions.named else None


def affected_run(defect):
    """Return what is known of a run that has a defect, and what went wrong in it."""
    needs = defect.needs
    versions = {component: text_of(least or earlier(below)) for component, (least, below)
                in needs.versions.items()}  # fmt: skip
    versions |= dict.fromkeys(needs.present, "1.0")
    version = bad_version(defect)
    if version:
        versions[defect.versions.component] = version
    variables = dict(SETTINGS.get(pattern.pattern) or pattern.pattern.split("=", 1)
                     for pattern in needs.settings)  # fmt: skip
    cpus = [SKYLAKE if "Skylake" in needs.cpu else CPUS[needs.cpu[0]]] if needs.cpu else []
    facts = RunFacts(
        versions=versions,
        gpus=[NAMES[needs.gpu[0]]] if needs.gpu else [],
        mixed_gpus=needs.mixed_gpus or None,
        cpus=cpus,
        networks=needs.network[:1],
        variables=variables,
        algorithms=[*needs.algorithm[:1], *needs.logged_algorithm],
        protocols=needs.protocol[:1],
        differing=needs.differs,
        lines=lines_of_log(defect),
    )
    return facts, trouble_of(defect)


def lines_of_log(defect):
    """Return what a log with the line of a defect shows of it; nothing for a defect without a line."""
    if defect.id not in LINES:
        return {}
    shown = read_logs({"a.log": f"{LINES[defect.id]}\n"}).defect_lines
    return {defect.id: shown[defect.id]}


def trouble_of(defect):
    collective = defect.collectives[0]
    needs = defect.needs
    return Trouble(
        kind=defect.kind,
        collective="" if collective == "any" else collective,
        nbytes=needs.bytes[-1] if needs.bytes else None,
        share=defect.bandwidth_share,
        nodes=needs.nodes[0] if needs.nodes else None,
        ranks=needs.ranks[0] if needs.ranks else None,
        ranks_per_node=needs.ranks_per_node[0] if needs.ranks_per_node else None,
        device=needs.device[0] if needs.device else "",
    )


def with_version(facts, defect, version):
    return replace(facts, versions={**facts.versions, defect.versions.component: version})


def without_condition(facts, defect):
    """Return facts that contradict the condition of a defect, or lack the line that shows it."""
    if defect.needs.gpu:
        return replace(facts, gpus=["NVIDIA T1000"], lines={})
    if defect.needs.network:
        return replace(facts, networks=["other"], lines={})
    return replace(facts, lines={}, variables={}, versions={})
