"""What the installed versions are known for: defects that give wrong results, hang or crash."""

from hpccoll.common.text import Finding, info, join_words
from hpccoll.common.units import format_count
from hpccoll.evidence.defects import MOST, RunFacts, defects_of_machine
from hpccoll.host import gpu_stack
from hpccoll.host.cpu_and_memory import cpu_model
from hpccoll.sweep.doctor.machine import MachineFacts


def known_defects(machine: MachineFacts) -> Finding | None:
    """Report the defects that the installed versions are known for on this hardware; they need not occur."""
    if not machine.gpus:
        return None
    versions = _versions(machine)
    networks = set[str]()
    for port in machine.rdma_ports:
        if port.active and port.driver == "efa":
            networks.add("efa")
    facts = RunFacts(
        versions=versions,
        gpus=gpu_stack.gpu_models(machine.root),
        cpus=[cpu_model()],
        networks=networks,
    )
    defects = defects_of_machine(facts)
    if not defects:
        return None
    parts: list[str] = []
    for defect in defects[:MOST]:
        parts.append(f"{defect.kind} ({defect.condition}) [{defect.id}]")
    unnamed = len(defects) - MOST
    if unnamed > 0:
        parts.append(format_count(unnamed, "more defect"))
    component = defects[0].versions.component
    remedy = f"see hpccoll list defects {component} {versions[component]}"
    names = [defect.id for defect in defects]
    installed = join_words(map(" ".join, versions.items()))
    verb = "is" if len(versions) == 1 else "are"
    text = f"{installed} {verb} known for {'; '.join(parts)}"
    return info("known_defects", text, remedy=remedy, names=names)


def _versions(machine: MachineFacts) -> dict[str, str]:
    versions = {}
    libraries = gpu_stack.nccl_libraries(machine.root)
    for library in libraries[:1]:  # the one that CuPy loads
        version = gpu_stack.nccl_version(library)
        if version:
            versions["NCCL"] = ".".join(map(str, version))
    driver = gpu_stack.gpu_driver(machine.root)
    if driver is not None:
        versions["CUDA driver"] = driver.version
    return versions
