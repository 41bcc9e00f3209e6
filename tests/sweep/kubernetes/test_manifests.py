"""Manifests for Kubernetes: their fields, their names, and that what they run measures the job on nodes by name."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from cli_runner import ENVIRONMENT, invoke, spawn

from hpccoll.diagnosis.diagnosis_file import read_diagnosis
from hpccoll.diagnosis.verdict import verdict_of
from hpccoll.store.result_files import read_raw
from hpccoll.sweep.kubernetes import manifests as manifests_module
from hpccoll.sweep.kubernetes.manifests import MAX_NAME, TRAINER_KEYS, object_name, object_names
from hpccoll.sweep.kubernetes.pods import RESULTS, SHARED_MEMORY
from hpccoll.sweep.kubernetes.section import HOST_FILE
from hpccoll.sweep.planner import make_plan

SWEEP = """\
algorithms: [ring, native]
bytes: [8]
in_place: false
nodes: [2]
ranks_per_node: [1, 2]
effort: {warmup: 1, min_iterations: 6, max_iterations: 6, seconds: 0.1}
rounds: 1
"""
SITE = """\
gpus_per_node: h100:8
network: rdma
minutes: 30
environment: {UCX_TLS: "rc,cuda"}
kubernetes:
  image: registry.example.com/hpccoll:1
  claim: results
  namespace: bench
  resources: {rdma/hca: 1, memory: 1Ti}
  annotations: {k8s.v1.cni.cncf.io/networks: fabric}
  node_selector: {gpu: h100}
  host_network: true
"""
LOCAL_SITE = "kubernetes: {image: a, claim: results, mpi: MPICH}\n"


@pytest.fixture
def made(tmp_path):
    """Print the manifests of a sweep file for a site file, and return their documents."""

    def make(kind, sweep=SWEEP, site=SITE):
        (tmp_path / "my.sweep.yaml").write_text(sweep)
        (tmp_path / "site.yaml").write_text(site)
        options = ["--site", tmp_path / "site.yaml", "--format", kind]
        printed = invoke("plan", tmp_path / "my.sweep.yaml", *options)
        assert (printed.code, printed.err) == (0, ""), printed
        return list(yaml.safe_load_all(printed.out))

    return make


# The field names of the objects, of those that we use: a mapping has the fields of an object, a
# list the object of its elements, ANY is a value or a mapping of the user's.
ANY = None
METADATA = {"name": ANY, "namespace": ANY, "labels": {"*": ANY}, "annotations": {"*": ANY}}
# core/v1 of Kubernetes: kubernetes.io/docs/reference/kubernetes-api, Pod, ConfigMap, Job
ENVIRONMENT_VARIABLE = {"name": ANY, "value": ANY, "valueFrom": {"fieldRef": {"fieldPath": ANY}}}
CONTAINER = {
    "name": ANY,
    "image": ANY,
    "command": [ANY],
    "env": [ENVIRONMENT_VARIABLE],
    "volumeMounts": [{"name": ANY, "mountPath": ANY}],
    "resources": {"limits": {"*": ANY}},
    "securityContext": {"capabilities": {"add": [ANY]}},
}
VOLUME = {
    "name": ANY,
    "configMap": {"name": ANY, "items": [{"key": ANY, "path": ANY}]},
    "persistentVolumeClaim": {"claimName": ANY},
    "emptyDir": {"medium": ANY},
}
AFFINITY_TERM = {"labelSelector": {"matchLabels": {"*": ANY}}, "topologyKey": ANY}
POD_TEMPLATE = {
    "metadata": METADATA,
    "spec": {
        "containers": [CONTAINER],
        "volumes": [VOLUME],
        "restartPolicy": ANY,
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [AFFINITY_TERM]}
        },
        "nodeSelector": {"*": ANY},
        "hostNetwork": ANY,
        "dnsPolicy": ANY,
        "tolerations": [{"key": ANY, "operator": ANY}],
    },
}
HEADER = {"apiVersion": ANY, "kind": ANY, "metadata": METADATA}
CONFIG_MAP = {**HEADER, "data": {"*": ANY}}
# kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1/types.go, v0.8
REPLICA = {"replicas": ANY, "restartPolicy": ANY, "template": POD_TEMPLATE}
MPI_JOB = {
    **HEADER,
    "spec": {
        "slotsPerWorker": ANY,
        "runPolicy": {
            "cleanPodPolicy": ANY,
            "backoffLimit": ANY,
            "suspend": ANY,
            "activeDeadlineSeconds": ANY,
        },
        "mpiImplementation": ANY,
        "launcherCreationPolicy": ANY,
        "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA},
    },
}
# kubeflow/trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go, v2.0 to v2.3
TRAIN_JOB = {
    **HEADER,
    "spec": {
        "runtimeRef": {"apiGroup": ANY, "kind": ANY, "name": ANY},
        "suspend": ANY,
        "trainer": {"image": ANY, "command": [ANY], "numNodes": ANY, "numProcPerNode": ANY},
    },
}
# trainingruntime_types.go there; kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go
REPLICATED_JOB = {
    "name": ANY,
    "dependsOn": [{"name": ANY, "status": ANY}],
    "template": {
        "metadata": METADATA,
        "spec": {"backoffLimit": ANY, "activeDeadlineSeconds": ANY, "template": POD_TEMPLATE},
    },
}
JOB_SET = {
    "network": {"publishNotReadyAddresses": ANY},
    "successPolicy": {"operator": ANY, "targetReplicatedJobs": [ANY]},
    "replicatedJobs": [REPLICATED_JOB],
}
MPI_POLICY = {"mpiImplementation": ANY, "sshAuthMountPath": ANY}
TRAINING_RUNTIME = {
    **HEADER,
    "spec": {
        "mlPolicy": {"numNodes": ANY, "mpi": MPI_POLICY},
        "template": {"spec": JOB_SET},
    },
}
FIELDS = {
    ("v1", "ConfigMap"): CONFIG_MAP,
    ("kubeflow.org/v2beta1", "MPIJob"): MPI_JOB,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): TRAIN_JOB,
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): TRAINING_RUNTIME,
}


def unknown_fields(value, fields, path=""):
    """Yield the paths in an object that the table of fields does not have."""
    if isinstance(value, list) and isinstance(fields, list):
        for element in value:
            yield from unknown_fields(element, fields[0], f"{path}[]")
    elif isinstance(value, dict) and isinstance(fields, dict):
        for name, part in value.items():
            if "*" not in fields and name not in fields:
                yield f"{path}.{name}"
            else:
                yield from unknown_fields(part, fields.get("*", fields.get(name)), f"{path}.{name}")
    elif isinstance(value, list | dict) or fields is not ANY:
        yield f"{path}: {type(value).__name__}"


def used_fields(value, path=""):
    """Yield the paths of all fields of an object."""
    for name, part in value.items() if isinstance(value, dict) else ():
        yield f"{path}.{name}"
        yield from used_fields(part, f"{path}.{name}")
    for element in value if isinstance(value, list) else ():
        yield from used_fields(element, f"{path}[]")


@pytest.mark.parametrize(
    ("kind", "objects"),
    [
        ("mpijob", ["ConfigMap", "MPIJob"]),
        ("trainjob", ["ConfigMap", "TrainingRuntime", "TrainJob"]),
    ],
)
def test_every_field_is_one_of_the_operators(made, kind, objects):
    documents = made(kind)
    assert [document["kind"] for document in documents] == objects * 2
    for document in documents:
        fields = FIELDS[document["apiVersion"], document["kind"]]
        assert list(unknown_fields(document, fields)) == []


def test_a_minimal_site_asks_for_nothing_that_it_does_not_name(made):
    used = {path for document in made("mpijob", site=LOCAL_SITE) for path in used_fields(document)}
    names = {path.rpartition(".")[2] for path in used}
    unasked = {"resources", "securityContext", "tolerations", "nodeSelector", "hostNetwork"}
    assert not names & {*unasked, "namespace", "annotations", "activeDeadlineSeconds"}


def pods_of(document):
    """Return the templates of the launcher and of the workers of an MPIJob or a TrainingRuntime."""
    spec = document["spec"]
    if document["kind"] == "MPIJob":
        replicas = spec["mpiReplicaSpecs"]
        return replicas["Launcher"]["template"], replicas["Worker"]["template"]
    jobs = {job["name"]: job["template"] for job in spec["template"]["spec"]["replicatedJobs"]}
    return jobs["launcher"]["spec"]["template"], jobs["node"]["spec"]["template"]


@pytest.mark.parametrize("kind", ["mpijob", "trainjob"])
def test_workers_get_what_the_site_names_and_the_launcher_no_gpus(made, kind):
    launcher, worker = pods_of(made(kind)[1])
    (container,) = worker["spec"]["containers"]
    limits = {"nvidia.com/gpu": "8", "rdma/hca": "1", "memory": "1Ti"}
    assert container["resources"]["limits"] == limits
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert worker["spec"]["hostNetwork"] is True
    assert worker["spec"]["nodeSelector"] == {"gpu": "h100"}
    tolerated = {toleration["key"] for toleration in worker["spec"]["tolerations"]}
    assert tolerated == {"nvidia.com/gpu", "rdma/hca"}
    memory = [volume for volume in worker["spec"]["volumes"] if "emptyDir" in volume]
    assert [volume["emptyDir"]["medium"] for volume in memory] == ["Memory"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {SHARED_MEMORY, RESULTS}
    (launching,) = launcher["spec"]["containers"]
    assert "resources" not in launching
    assert {"name": "UCX_TLS", "value": "rc,cuda"} in launching["env"]


@pytest.mark.parametrize("kind", ["mpijob", "trainjob"])
def test_jobs_after_the_first_one_are_suspended(made, kind):
    jobs = [document for document in made(kind) if document["kind"] in ("MPIJob", "TrainJob")]
    suspended = []
    for job in jobs:
        spec = job["spec"]
        suspended.append(spec.get("runPolicy", spec)["suspend"])
    assert suspended == [False, True]


def test_pods_of_trainer_copy_the_keys_with_modes_that_ssh_accepts(made, tmp_path):
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "id_rsa").write_text("secret")
    (keys / "id_rsa").chmod(0o644)
    _, runtime, job = made("trainjob")[:3]
    templates = pods_of(runtime)
    commands = [template["spec"]["containers"][0]["command"] for template in templates]
    assert commands[0] == job["spec"]["trainer"]["command"]
    for command in commands:
        position = command.index("sh") + 1  # of the command that follows the copy
        words = [word.replace(TRAINER_KEYS, str(keys)) for word in command[:position]]
        home = tmp_path / f"home-{position}-{len(command)}"
        home.mkdir()
        modes = ["stat", "-c", "%a", home / ".ssh", home / ".ssh" / "id_rsa"]
        environment = {**ENVIRONMENT, "HOME": str(home)}
        ran = subprocess.run(
            [*words, *modes], env=environment, capture_output=True, text=True, check=True
        )
        assert ran.stdout.split() == ["700", "600"]


def test_the_worker_tells_sessions_of_ssh_the_name_of_its_node(made):
    launcher, worker = pods_of(made("mpijob")[1])
    (container,) = worker["spec"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == "HPCCOLL_NODE_NAME"
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert "SetEnv=HPCCOLL_NODE_NAME=$HPCCOLL_NODE_NAME " in container["command"][-1]
    # Hydra passes the environment of the launcher on to all ranks
    names = {entry["name"] for entry in launcher["spec"]["containers"][0]["env"]}
    assert "HPCCOLL_NODE_NAME" not in names


OPEN_MPI = (
    "mpirun --allow-run-as-root --hostfile {0} -n {{ranks}} --map-by ppr:{{ranks_per_node}}:node "
    "--bind-to none -x HPCCOLL_START_S -x A -x UCX_RNDV_THRESH"
)


@pytest.mark.parametrize(
    ("mpi", "expected"),
    [
        (
            "OpenMPI",
            OPEN_MPI,
        ),
        ("Intel", "mpirun -f {0} -n {{ranks}} -ppn {{ranks_per_node}}"),
        ("MPICH", "mpiexec -f {0} -n {{ranks}} -ppn {{ranks_per_node}}"),
    ],
)
def test_variables_of_the_site_and_of_the_variant_reach_ranks(made, mpi, expected):
    sweep = SWEEP + "variants: {x: {UCX_RNDV_THRESH: 1}}\n"
    site = f"environment: {{A: 1}}\nkubernetes: {{image: a, claim: b, mpi: {mpi}}}"
    config_map = made("mpijob", sweep, site)[0]
    launcher = json.loads(config_map["data"]["plan.json"])["launcher"]
    assert launcher["command"] == expected.format(HOST_FILE)


@pytest.mark.parametrize("text", ["my.sweep", "UPPER_case", "2026-11", "-", "é", "a" * 300])
def test_names_are_labels_of_kubernetes_that_leave_room_for_those_of_pods(text):
    name = object_name(text)
    assert len(name) <= MAX_NAME
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)


def test_jobs_with_names_that_differ_in_punctuation_only_have_different_objects(tmp_path):
    (tmp_path / "s.yaml").write_text(SWEEP)
    plan = make_plan(tmp_path / "s.yaml", None)
    job = plan.jobs[0]
    jobs = (replace(job, name="mpi.n2x1.a_b"), replace(job, name="mpi.n2x1.a-b"))
    assert len(set(object_names(replace(plan, jobs=jobs)).values())) == 2


def written_inputs(document, template, place, changes):
    """Write the files that a pod sees of a ConfigMap, with ``changes`` of words in them."""
    volumes = [volume for volume in template["spec"]["volumes"] if "configMap" in volume]
    (items,) = (volume["configMap"]["items"] for volume in volumes)
    for item in items:
        text = document["data"][item["key"]]
        for before, after in changes.items():
            text = text.replace(before, after)
        path = place / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


SSH = """\
#!/bin/sh
# a session of ssh on another host: an environment of its own, with what sshd sets
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec env -i HOME="$HOME" PATH="$PATH" HPCCOLL_NODE_NAME="node-of-$host" sh -c "$*"
"""


@pytest.mark.mpi
@pytest.mark.parametrize("sweep", [SWEEP, f"diagnose: {{}}\n{SWEEP}"], ids=["sweep", "diagnose"])
def test_the_launcher_of_a_manifest_measures_its_job_on_nodes_by_name(
    made, tmp_path, require, sweep
):
    mpiexec = shutil.which("mpiexec.hydra", path=ENVIRONMENT["PATH"])
    require(mpiexec, "there is no mpiexec of MPICH")
    documents = made("mpijob", sweep, LOCAL_SITE)
    config_map, job = documents[2:]  # with two ranks on each node
    launcher, worker = pods_of(job)
    replicas = job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]
    slots = job["spec"]["slotsPerWorker"]
    hosts = "".join(f"pod-{number}:{slots}\n" for number in range(replicas))
    (tmp_path / "hostfile").write_text(hosts)
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    inputs = tmp_path / "inputs"
    written_inputs(config_map, worker, inputs, {HOST_FILE: str(tmp_path / "hostfile")})
    command = [
        word.replace("/etc/hpccoll", str(inputs)).replace("/results", str(tmp_path / "results"))
        for word in launcher["spec"]["containers"][0]["command"]
    ]
    variables = {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(tmp_path / "ssh")}
    ran = spawn(
        *command[1:], **variables, HPCCOLL_ALLOCATION="pod-7", MPIR_CVAR_ENABLE_HEAVY_YIELD="1"
    )
    assert ran.code == 0, f"{ran.out}\n{ran.err}"
    raw_file = Path(command[-1])
    raw = read_raw(raw_file)
    assert raw.complete
    attempt, _ = raw.attempts[0]
    places = attempt.places
    assert [place.host for place in places] == ["node-of-pod-0"] * 2 + ["node-of-pod-1"] * 2
    diagnoses = list(raw_file.parent.glob("*.diagnosis-pod-7.h5"))
    assert len(diagnoses) == ("diagnose" in sweep)
    for diagnosis in diagnoses:
        verdict = verdict_of(read_diagnosis(diagnosis))
        assert verdict.kubernetes
        assert verdict.nodes == replicas


BAD_OPTIONS = {
    ("--format", "pod"): "--format|'pod'|mpijob|trainjob",
    ("--format", "mpijob", "--profile", "slurm"): "--profile|slurm|left out",
    ("--format", "mpijob", "--json"): "--json|left out",
    ("--profile", "slurm"): "--site|kubernetes|--format mpijob",
}


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=" ".join)
def test_options_that_do_not_go_together_take_one_line(tmp_path, options):
    (tmp_path / "s.yaml").write_text(SWEEP)
    (tmp_path / "site.yaml").write_text(SITE)
    ended = invoke("plan", tmp_path / "s.yaml", "--site", tmp_path / "site.yaml", *options)
    assert ended.is_bad_input(*BAD_OPTIONS[options].split("|"))


def test_manifests_need_a_site_with_the_key(tmp_path):
    (tmp_path / "s.yaml").write_text(SWEEP)
    assert invoke("plan", tmp_path / "s.yaml", "--format", "mpijob").is_bad_input("--site")
    (tmp_path / "site.yaml").write_text("network: tcp")
    options = "--site", tmp_path / "site.yaml", "--format", "mpijob"
    assert invoke("plan", tmp_path / "s.yaml", *options).is_bad_input("kubernetes", "hpccoll list")


def test_trainer_starts_open_mpi_only(tmp_path):
    (tmp_path / "s.yaml").write_text(SWEEP)
    (tmp_path / "site.yaml").write_text(LOCAL_SITE)
    options = "--site", tmp_path / "site.yaml", "--format", "trainjob"
    assert invoke("plan", tmp_path / "s.yaml", *options).is_bad_input("kubernetes.mpi", "OpenMPI")


def test_a_job_that_no_config_map_holds_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(manifests_module, "CONFIG_MAP_BYTES", 1000)
    (tmp_path / "s.yaml").write_text(SWEEP)
    (tmp_path / "site.yaml").write_text(SITE)
    options = "--site", tmp_path / "site.yaml", "--format", "mpijob"
    assert invoke("plan", tmp_path / "s.yaml", *options).is_bad_input("mpi.n2x1", "split the sweep")


def test_a_job_that_needs_files_of_this_machine_is_named(tmp_path):
    options = "-p", 4, "-b", "1M", "--format", "mscclpp", "--out", tmp_path / "p.json"
    assert invoke("show", "ring", *options).code == 0
    sweep = "algorithms: ['file:p.json']\nbytes: [1K]\nnodes: [1]\nranks_per_node: [4]\n"
    (tmp_path / "s.yaml").write_text(sweep)
    (tmp_path / "site.yaml").write_text(LOCAL_SITE)
    options = "--site", tmp_path / "site.yaml", "--format", "mpijob"
    assert invoke("plan", tmp_path / "s.yaml", *options).is_bad_input("mpi.n1x4", "file:p.json")


def test_the_plan_of_such_a_site_shows_launches_and_no_slurm(tmp_path):
    (tmp_path / "s.yaml").write_text(SWEEP + "devices: [cuda]\n")
    (tmp_path / "site.yaml").write_text(SITE)
    shown = invoke("plan", tmp_path / "s.yaml", "--site", tmp_path / "site.yaml")
    assert shown.code == 0, shown.err
    assert f"--hostfile {HOST_FILE}" in shown.out
    assert "--format mpijob" in shown.out
    assert not re.search("slurm|srun|sbatch", shown.out, re.IGNORECASE)
