"""The pods of a job in Kubernetes: one with the launcher, and one on each node with the ranks.

An operator starts sshd in the pods of workers, and the launcher reaches them by ssh. A session of
ssh does not inherit the environment of its container, so that sshd gets the variables to set: the
name of the node, which only the container knows (``spec.nodeName`` of the downward API), and the
paths of the image. StrictModes is off, because everybody may write to the directory of a volume.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpccoll.cases.case import Job
from hpccoll.common.own_variables import ALLOCATION_VARIABLE, NODE_NAME_VARIABLE
from hpccoll.sweep.kubernetes.section import KubernetesSection
from hpccoll.sweep.site_file import Site

Object = dict[str, Any]
"""An object of Kubernetes, or a part of one, as YAML has it."""

CONTAINER = "node"
"""The name of the container of each pod; Trainer changes only containers of this name."""

RESULTS = "/results"
"""Where pods see the claim."""
INPUTS = "/etc/hpccoll"
"""Where pods see the plan of the job and its job file."""

SHARED_MEMORY = "/dev/shm"  # noqa: S108  a mount of the pod
"""Where MPI and NCCL share memory. A container has 64 MiB there unless the pod mounts more."""

JOB_LABEL = "hpccoll-job"
"""The label of the pods with the ranks of a job."""

GPU = "nvidia.com/gpu"
"""The resource of NVIDIA's device plugin. Other GPUs can be requested by name among ``resources``."""

PREPARE_SSHD = "ssh-keygen -A && mkdir -p /run/sshd"
"""What sshd needs, and the start of a whole machine would make: keys of the host, and a directory."""

SESSION_VARIABLES = (NODE_NAME_VARIABLE, "PATH", "LD_LIBRARY_PATH")
"""What sessions of ssh get from the container (sshd_config: SetEnv, OpenSSH 7.8 or newer)."""


@dataclass(frozen=True, slots=True)
class JobPods:
    """The templates of the pods of a job.

    Args:
        site: a site with the section ``kubernetes``.
        section: this section.
        job: the job.
        name: the name of its objects in Kubernetes.
        key_directory: where the pods find the keys of ssh, if not where ssh looks for them.
    """

    site: Site
    section: KubernetesSection
    job: Job
    name: str
    key_directory: str | None = None

    def launcher(self, command: Sequence[str]) -> Object:
        """Return the template of the pod that starts the ranks by a command."""
        return {"spec": {"containers": [self._launcher_container(command)], **self._volumes()}}

    def worker(self) -> Object:
        """Return the template of the pods with ranks, at most one on each node."""
        metadata: Object = {"labels": {JOB_LABEL: self.name}}
        if self.section.annotations:
            metadata["annotations"] = dict(self.section.annotations)
        spec: Object = {"containers": [self._worker_container()], **self._volumes("shm")}
        spec["affinity"] = {"podAntiAffinity": _one_on_each_node(self.name)}
        if self.section.node_selector:
            spec["nodeSelector"] = dict(self.section.node_selector)
        if self.section.host_network:
            spec["hostNetwork"] = True
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        # what the admission plugin ExtendedResourceToleration adds, where a cluster has it
        devices = [name for name in self._limits() if "/" in name]
        if devices:
            spec["tolerations"] = [{"key": name, "operator": "Exists"} for name in devices]
        return {"metadata": metadata, "spec": spec}

    def command_with_keys(self, words: Sequence[str]) -> list[str]:
        """Return a command that copies the keys to where ssh takes them, if they are elsewhere.

        ssh refuses a private key of its user that others may read, as volumes of secrets have it.
        """
        if self.key_directory is None:
            return list(words)
        copy = (
            f'install -d -m 700 "$HOME/.ssh" && install -m 600 {self.key_directory}/* "$HOME/.ssh"'
        )
        return ["/bin/sh", "-c", f'{copy} && exec "$@"', "sh", *words]

    def _launcher_container(self, command: Sequence[str]) -> Object:
        variables: list[Object] = [_from_pod(ALLOCATION_VARIABLE, "metadata.uid")]
        # those that it passes on to ranks
        variables += [{"name": name, "value": text} for name, text in self.site.environment.items()]
        return {
            "name": CONTAINER,
            "image": self.section.image,
            "command": self.command_with_keys(command),
            "env": variables,
            "volumeMounts": _mounts(),
        }

    def _worker_container(self) -> Object:
        variables = " ".join(f"{name}=${name}" for name in SESSION_VARIABLES)
        options = f'-o StrictModes=no -o "SetEnv={variables}"'
        sshd = f"{PREPARE_SSHD} && exec /usr/sbin/sshd -De {options}"
        container: Object = {
            "name": CONTAINER,
            "image": self.section.image,
            "command": self.command_with_keys(["/bin/sh", "-c", sshd]),
            "env": [_from_pod(NODE_NAME_VARIABLE, "spec.nodeName")],
            "volumeMounts": [*_mounts(), {"name": "shm", "mountPath": SHARED_MEMORY}],
        }
        limits = self._limits()
        if limits:
            container["resources"] = {"limits": limits}
        if self.site.network == "rdma":  # which registers memory that must stay in place
            container["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
        return container

    def _limits(self) -> dict[str, str]:
        gpus = {GPU: str(self.site.gpus)} if self.site.gpus else {}
        return {**gpus, **self.section.resources}

    def _volumes(self, *memory: str) -> Object:
        """Return the volumes of a pod, with those of ``memory``, as a part of its specification."""
        inputs = [
            {"key": "plan.json", "path": "plan.json"},
            {"key": "job.json", "path": f"jobs/{self.job.name}.json"},
        ]
        volumes: list[Object] = [
            {"name": "inputs", "configMap": {"name": self.name, "items": inputs}},
            {"name": "results", "persistentVolumeClaim": {"claimName": self.section.claim}},
        ]
        volumes += [{"name": name, "emptyDir": {"medium": "Memory"}} for name in memory]
        return {"volumes": volumes, "restartPolicy": "Never"}


def _mounts() -> list[Object]:
    return [
        {"name": "inputs", "mountPath": INPUTS},
        {"name": "results", "mountPath": RESULTS},
    ]


def _from_pod(name: str, field: str) -> Object:
    """Return a variable with a field of the pod (downward API)."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _one_on_each_node(name: str) -> Object:
    """Return the rule that no two workers of a job run on one node."""
    workers = {"matchLabels": {JOB_LABEL: name}}
    term = {"labelSelector": workers, "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
