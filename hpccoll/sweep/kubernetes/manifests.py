"""Manifests that run the jobs of a plan in Kubernetes, by the MPI Operator or by Kubeflow Trainer.

A job is run as in Slurm: ``hpccoll launch`` measures it, one launch of ranks after the other, into
the same raw file. It runs in the launcher's pod.

Source: types.go of v2beta1 of github.com/kubeflow/mpi-operator; trainjob_types.go and
trainingruntime_types.go of v1alpha1 of github.com/kubeflow/trainer; jobset_types.go of v1alpha2 of
github.com/kubernetes-sigs/jobset.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import yaml

from hpccoll.cases.case import Job
from hpccoll.cases.plan import PLAN_FILE, Plan
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.text import join_words
from hpccoll.common.units import format_count
from hpccoll.sweep.kubernetes.pods import INPUTS, RESULTS, JobPods, Object
from hpccoll.sweep.site_file import Site

MAX_NAME = 40
"""Maximum number of characters of the names of our jobs.

The names of pods are labels of 63 characters at most (RFC 1035). Those of JobSet add the most:
-launcher-0-0-abcde to that of the job, or -node-0-9999-abcde.
"""
DIGEST = 6
"""Characters that tell apart names which are equal, or too long, in the letters that Kubernetes allows."""

CONFIG_MAP_BYTES = 1 << 20
"""The most that Kubernetes accepts in a ConfigMap (1 MiB)."""

SWEEP_LABEL = "hpccoll-sweep"
"""The label of all objects of a sweep."""

TRAINER_API = "trainer.kubeflow.org/v1alpha1"
TRAINER_KEYS = "/etc/hpccoll-ssh"
"""Where pods of Trainer see the keys of ssh: with the modes that it gives them, ssh refuses them in /root/.ssh."""


def manifest_text(plan: Plan, site: Site, kind: str) -> str:
    """Return the manifests of the jobs of a plan as YAML.

    Only the first job starts at once: jobs that share switches would disturb each other.

    Args:
        plan: an offline plan for the site.
        site: the site, with the section ``kubernetes``.
        kind: ``mpijob`` or ``trainjob``.

    Raises:
        BadInputError: if the site has no such section, a job is too large for a ConfigMap or needs
            files, or Trainer does not know the MPI library.
    """
    documents = list(manifests(plan, site, kind))
    return yaml.safe_dump_all(documents, sort_keys=False, width=1 << 20)


def manifests(plan: Plan, site: Site, kind: str) -> Iterator[Object]:
    """Yield the objects of all jobs; arguments and errors are those of ``manifest_text``."""
    section = site.kubernetes
    if section is None:
        raise UnusableError("--site", "a file with the key kubernetes; see hpccoll list site")
    if kind == "trainjob" and section.mpi != "OpenMPI":
        raise BadInputError("kubernetes.mpi", section.mpi, "OpenMPI: Trainer knows no other")
    names = object_names(plan)
    sweep = object_name(plan.name)
    for number, job in enumerate(plan.jobs):
        keys = TRAINER_KEYS if kind == "trainjob" else None
        pods = JobPods(site, section, job, names[job.name], keys)
        objects = [_config_map(plan, pods), *OBJECTS[kind](plan, pods, number > 0)]
        for manifest in objects:
            metadata = manifest["metadata"]
            metadata["labels"] = {SWEEP_LABEL: sweep}
            if section.namespace:
                metadata["namespace"] = section.namespace
            yield manifest


def object_names(plan: Plan) -> dict[str, str]:
    """Return a different name for the objects of each job, by the name of the job."""
    names: dict[str, str] = {}
    for job in plan.jobs:
        name = object_name(f"{plan.name}-{job.name}")
        if name in names.values():
            name = _with_digest(name, job.name)
        names[job.name] = name
    return names


def object_name(text: str) -> str:
    """Return a name for Kubernetes that is made of a text (a label of RFC 1035)."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not re.match("[a-z]", name):
        name = f"sweep-{name}".strip("-")
    if len(name) > MAX_NAME:
        return _with_digest(name, text)
    return name


def _with_digest(name: str, text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()[:DIGEST]
    beginning = name[: MAX_NAME - DIGEST - 1].rstrip("-")
    return f"{beginning}-{digest}"


def _config_map(plan: Plan, pods: JobPods) -> Object:
    """Return the object with the plan of one job and its job file.

    Raises:
        UnusableError: if they are larger than Kubernetes accepts, or name files of this machine.
    """
    job = pods.job
    if job.plans:
        raise UnusableError(
            f"job {job.name}", f"pods have no file of its algorithms {join_words(job.plans)}"
        )
    launcher = pods.site.rank_launcher(job.environment)
    own_plan = replace(
        plan, jobs=(job,), skips=(), launcher=launcher, resources={}, notes=(), offline=False
    )
    data = {PLAN_FILE: _compact(own_plan.to_json()), "job.json": _compact(job.to_json())}
    size = sum(len(text.encode()) for text in data.values())
    if size > CONFIG_MAP_BYTES:
        cases = format_count(len(job.cases), "case")
        raise UnusableError(
            f"job {job.name}",
            f"its {cases} take {size} bytes, and a ConfigMap holds {CONFIG_MAP_BYTES}; "
            "do: split the sweep file",
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": pods.name},
        "data": data,
    }


def _compact(text: str) -> str:
    """Return JSON without the spaces that make it readable: a ConfigMap is small."""
    return json.dumps(json.loads(text), separators=(",", ":"))


def launch_words(plan: Plan, job: Job) -> list[str]:
    """Return the command that measures a job in the launcher's pod."""
    raw_file = f"{RESULTS}/{plan.name}/raw/{job.name}.h5"
    return ["hpccoll", "launch", f"{INPUTS}/{PLAN_FILE}", job.name, "--out", raw_file]


def _mpi_job(plan: Plan, pods: JobPods, suspended: bool) -> Iterator[Object]:
    """Yield the MPIJob of a job."""
    policy: Object = {"cleanPodPolicy": "Running", "backoffLimit": 0, "suspend": suspended}
    if pods.site.minutes:
        policy["activeDeadlineSeconds"] = 60 * pods.site.minutes
    launcher = pods.launcher(launch_words(plan, pods.job))
    worker = pods.worker()
    for template in (launcher, worker):  # the operator takes it from the replica
        del template["spec"]["restartPolicy"]
    spec: Object = {
        "slotsPerWorker": pods.job.largest.ranks_per_node,
        "runPolicy": policy,
        "mpiImplementation": pods.section.mpi,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
            "Worker": {
                "replicas": pods.job.nodes,
                "restartPolicy": "Never",
                "template": worker,
            },
        },
    }
    yield {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": pods.name},
        "spec": spec,
    }


def _train_job(plan: Plan, pods: JobPods, suspended: bool) -> Iterator[Object]:
    """Yield the TrainingRuntime of a job and its TrainJob.

    Trainer gives the image, the resources and the variables of a TrainJob to the launcher, and not
    to the workers, whose template is therefore a runtime of our own.
    """
    words = launch_words(plan, pods.job)
    launcher_job: Object = {"backoffLimit": 0, "template": pods.launcher(words)}
    if pods.site.minutes:
        launcher_job["activeDeadlineSeconds"] = 60 * pods.site.minutes
    launcher = {
        "name": "launcher",
        "dependsOn": [{"name": "node", "status": "Ready"}],
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": launcher_job,
        },
    }
    node = {"name": "node", "template": {"spec": {"backoffLimit": 0, "template": pods.worker()}}}
    mpi = {"mpiImplementation": pods.section.mpi, "sshAuthMountPath": TRAINER_KEYS}
    job_set = {
        "network": {"publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
        "replicatedJobs": [node, launcher],
    }
    yield {
        "apiVersion": TRAINER_API,
        "kind": "TrainingRuntime",
        "metadata": {"name": pods.name},
        "spec": {"mlPolicy": {"numNodes": 1, "mpi": mpi}, "template": {"spec": job_set}},
    }
    trainer = {
        "image": pods.section.image,
        "command": pods.command_with_keys(words),
        "numNodes": pods.job.nodes,
        "numProcPerNode": pods.job.largest.ranks_per_node,
    }
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": pods.name}
    yield {
        "apiVersion": TRAINER_API,
        "kind": "TrainJob",
        "metadata": {"name": pods.name},
        "spec": {"runtimeRef": runtime, "suspend": suspended, "trainer": trainer},
    }


OBJECTS: Mapping[str, Callable[[Plan, JobPods, bool], Iterator[Object]]] = {
    "mpijob": _mpi_job,
    "trainjob": _train_job,
}
"""What makes the objects of a job besides its ConfigMap, by ``hpccoll plan --format``; the last one is its job."""
