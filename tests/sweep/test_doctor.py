"""Doctor, on machines of all kinds: what it finds, and which profile it says."""

import json
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest
from cli_runner import invoke
from golden_page import assert_golden

from hpccoll.common.errors import UnusableError
from hpccoll.common.text import finding_line
from hpccoll.executor.library import ExecutorUnavailableError
from hpccoll.host import cpu_and_memory
from hpccoll.host.cpu_and_memory import SharedMemorySpace
from hpccoll.host.machine_load import LoadSample
from hpccoll.sweep import doctor
from hpccoll.sweep.doctor import cluster as cluster_checks
from hpccoll.sweep.doctor import machine, mpi
from hpccoll.sweep.doctor.machine import LIBRARY, MachineFacts

NO_GPU = Path("/nowhere")
GIB = 2**30
PARTITION = "PartitionName={} AllowAccounts=ALL Default=NO MaxNodes={} State=UP TotalNodes=2\n"
WORK = PARTITION.format("work", "UNLIMITED")
LIBRARIES = {
    "mpich": (
        "MPICH",
        "MPICH Version:      5.0.2\nMPICH configure:    --with-device=ch4:ucx,ofi\n",
    ),
    "mpich for pmix": (
        "MPICH",
        "MPICH Version:      4.3.0\nMPICH configure:    --with-pmix=/usr\n",
    ),
    "cray": ("MPICH", "MPI VERSION    : CRAY MPICH version 8.1.28.1\n"),
    "open mpi": ("Open MPI", "Open MPI v5.0.3, package: Open MPI, ident: 5.0.3\n"),
    "another": ("unknown", "MPI of my own\n"),
}


@pytest.fixture
def library(monkeypatch):
    """Have an MPI library that starts two connected ranks, and a compiled executor."""
    monkeypatch.setattr(cluster_checks, "load_library", lambda: None)

    def library(name, ranks="ranks 2\nranks 2\n"):
        answers = {LIBRARY: json.dumps(LIBRARIES[name]), mpi.HELLO: ranks}
        monkeypatch.setattr(mpi, "mpiexec_command", lambda: ["mpiexec"])
        monkeypatch.setattr(
            MachineFacts,
            "python",
            lambda _, code, *__: subprocess.CompletedProcess([], 0, answers.get(code, ""), ""),
        )

    library("mpich")
    return library


def settings(**changed):
    known = {
        "SLURM_VERSION": "22.05.8",
        "ClusterName": "c",
        "MinJobAge": "300 sec",
        "MpiDefault": "none",
        "AccountingStorageType": "accounting_storage/none",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
    }
    return "".join(f"{name:24}= {value}\n" for name, value in {**known, **changed}.items())


@pytest.fixture
def cluster(programs, library, monkeypatch, tmp_path):  # noqa: ARG001 - there is an MPI library
    """Have a cluster of Slurm, without a database; its settings can be changed."""
    monkeypatch.setattr(cpu_and_memory, "TESTBED_FILE", tmp_path / "marker")

    def cluster(*, partition=WORK, topologies=None, **changed):
        shown = {f"show topology{name}": text for name, text in (topologies or {}).items()}
        programs(
            "scontrol", {"show config": settings(**changed), "show partition": partition, **shown}
        )

    programs("sbatch")
    programs("sinfo", {"%P": "work*\n", "%N": "n1|idle|2|worker\nn2|idle|2|worker\n"})
    programs("sacct", code=1, err="Slurm accounting storage is disabled\n")
    programs(
        "srun",
        "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n",
    )
    cluster()
    return cluster


def findings():
    """Return the findings by component."""
    return {each.title: each for each in doctor.examine(NO_GPU)}


def wrong():
    return {each.title for each in doctor.examine(NO_GPU) if each.severity == "critical"}


SLURM_ONLY = {"accounting", "MinJobAge", "slurm.conf", "partitions", "PMI"}


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (None, "slurm_missing", "no sbatch"),
        (
            "slurm_load_ctl_conf error: Unable to contact slurm controller\n",
            "slurm_unreachable",
            "(slurm_load_ctl_conf error: Unable to contact slurm controller)",
        ),
    ],
)
def test_without_a_controller_that_answers_one_line_says_why_and_leaves_this_machine(
    programs, error, kind, why
):
    if error:
        programs("sbatch")
        programs("scontrol", code=1, err=error)
    examined = findings()
    assert (examined["Slurm"].kind, examined["profile"].kind) == (kind, "profile_local")
    assert why in examined["Slurm"].text
    assert not SLURM_ONLY & set(examined)
    assert not wrong()
    assert error or programs.calls() == []


@pytest.mark.usefixtures("cluster")
def test_the_lines_of_a_cluster():
    names = (
        "Slurm",
        "accounting",
        "MinJobAge",
        "partitions",
        "PMI",
        "launcher",
        "MPI library",
        "profile",
    )
    examined = findings()
    assert_golden("doctor_cluster", (finding_line(examined[name]) for name in names))


DATABASE = {"AccountingStorageType": "accounting_storage/slurmdbd"}


@pytest.mark.parametrize(
    ("changed", "sacct", "kinds", "profile", "faults"),
    [
        ({}, False, {"accounting_missing", "min_job_age"}, "testbed", set()),
        (
            {"MinJobAge": "5000 sec"},
            False,
            {"accounting_missing", "min_job_age"},
            "slurm-nodbd",
            set(),
        ),
        (
            {"MinJobAge": "299 sec"},
            False,
            {"accounting_missing", "min_job_age_short"},
            "slurm-nodbd",
            {"MinJobAge"},
        ),
        ({**DATABASE, "MinJobAge": "2 sec"}, True, {"accounting"}, "slurm", set()),
        (DATABASE, False, {"accounting_unreachable", "min_job_age"}, "slurm-nodbd", set()),
    ],
)
def test_the_profile_follows_from_where_the_end_of_jobs_can_be_read(
    programs, cluster, changed, sacct, kinds, profile, faults
):
    cluster(**changed)
    if sacct:
        programs("sacct")
    if profile == "testbed":
        cpu_and_memory.TESTBED_FILE.write_text("{}")
    examined = findings()
    found = {each.kind for title, each in examined.items() if title in ("accounting", "MinJobAge")}
    assert (found, examined["profile"].values["profile"], wrong()) == (kinds, profile, faults)


@pytest.mark.parametrize(
    ("name", "default", "offered", "kind", "chosen"),
    [
        ("cray", "none", "pmix pmi2", "pmi_option", "pmi2"),
        ("mpich for pmix", "none", "pmix pmi2", "pmi_option", "pmix"),
        ("open mpi", "none", "pmix pmi2", "pmi_option", "pmix"),
        ("mpich", "pmi2", "pmi2", "pmi_default", "pmi2"),
        ("open mpi", "none", "pmi2", "pmi_mismatch", None),
        ("another", "none", "pmi2", "pmi_unknown", None),
    ],
)
def test_the_type_of_mpi_is_one_that_slurm_and_the_library_speak(
    programs, cluster, library, name, default, offered, kind, chosen
):
    cluster(MpiDefault=default)
    programs("srun", "\n\t".join(["MPI plugin types are...", *offered.split(), "none\n"]))
    library(name)
    examined = findings()
    assert (examined["PMI"].kind, examined["PMI"].values.get("chosen")) == (kind, chosen)
    assert wrong() == ({"PMI"} if kind == "pmi_mismatch" else set())
    assert f"--mpi={chosen or 'TYPE'}" in examined["profile"].remedy


def test_partitions_are_reported_with_their_usable_nodes_and_limits(programs, cluster):
    cluster(partition=WORK + PARTITION.format("debug", 1))
    programs("sinfo", {"%P": "work*\ndebug\n", "%N": "n1|idle|2|worker\nn2|drained|2|worker\n"})
    assert findings()["partitions"].text == (
        "work* 1 of 2 nodes usable; debug 1 of 2 nodes usable, at most 1 for a job (* is the default)"
    )
    programs("sinfo", {"%P": "work*\n", "%N": "n1|down*|2|worker\nn2|drained|2|worker\n"})
    assert "sinfo -R" in findings()["partitions"].remedy
    assert wrong() == {"partitions"}


@pytest.mark.usefixtures("programs")
def test_mpiexec_matters_where_there_is_no_slurm(library, request):
    library("mpich", ranks="ranks 1\nranks 1\n")
    assert wrong() == {"launcher"}
    ended = invoke("doctor")
    (line,) = (line for line in ended.out.splitlines() if "launcher" in line)
    assert (ended.code, line.split()[0]) == (1, "WRONG")
    request.getfixturevalue("cluster")
    assert not wrong()
    assert findings()["launcher"].remedy.startswith("for profile local only: ")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (ExecutorUnavailableError, ("executor_missing", "absent")),
        (UnusableError, ("executor_stale", "critical")),
    ],
)
def test_a_compiled_executor_that_ranks_would_refuse_is_wrong_and_a_missing_one_is_not(
    monkeypatch, error, found
):
    assert cluster_checks.executor(MachineFacts(NO_GPU)).kind == "executor"
    monkeypatch.setattr(
        cluster_checks,
        "load_library",
        Mock(side_effect=error("executor", "it is so; do: rebuild it")),
    )
    examined = cluster_checks.executor(MachineFacts(NO_GPU))
    assert (examined.kind, examined.severity) == found
    assert "do: rebuild it" in examined.text


def test_the_shared_memory_of_killed_processes_is_counted(monkeypatch):
    monkeypatch.setattr(mpi, "abandoned_files", lambda _: [(NO_GPU, 1 << 20)] * 3)
    found = mpi.abandoned_memory(MachineFacts(NO_GPU))
    assert (found.kind, found.values, "3.0 MiB" in found.text) == (
        "abandoned_memory",
        {"files": 3},
        True,
    )


@pytest.mark.usefixtures("library", "programs")
@pytest.mark.parametrize(
    ("size", "free", "text"),
    [
        (8 * GIB, 2 * GIB, None),
        (8 * GIB, 3 << 20, "has 8 GiB, 3 MiB of them free"),
        (0, 0, "cannot be written"),
    ],
)
def test_small_shared_memory_is_reported_on_every_machine(monkeypatch, size, free, text):
    monkeypatch.setattr(SharedMemorySpace, "read", lambda _: SharedMemorySpace(size, free))
    found = findings().get("shared memory")
    assert (found and found.severity, found and found.text) == (
        text and "warning",
        text and f"/dev/shm {text}",  # noqa: S108  a message
    )
    assert not wrong()


@pytest.mark.parametrize(
    ("code", "free", "kind"),
    [
        (11, 64 << 20, "mpiexec_without_memory"),
        (15, 2 << 20, "mpiexec_without_memory"),
        (11, 8 * GIB, "mpiexec_disconnected"),
        (0, 2 << 20, "mpiexec_disconnected"),
    ],
)
@pytest.mark.usefixtures("library", "programs")
def test_a_launcher_is_not_blamed_for_small_shared_memory(monkeypatch, code, free, kind):
    stdout = "=   EXIT CODE: 7\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Bus error (signal 7)\nPlease see\n"
    ended = subprocess.CompletedProcess([], code, stdout if code else "ranks 1\nranks 1\n", "")
    answers = {
        LIBRARY: subprocess.CompletedProcess([], 0, json.dumps(LIBRARIES["mpich"]), ""),
        mpi.HELLO: ended,
    }
    monkeypatch.setattr(MachineFacts, "python", lambda _, program, *__: answers[program])
    monkeypatch.setattr(SharedMemorySpace, "read", lambda _: SharedMemorySpace(free, free))
    found = findings()["launcher"]
    assert (found.kind, found.severity) == (kind, "critical")
    assert ("PATH" in found.remedy) == (kind == "mpiexec_disconnected")
    assert ("--shm-size" in found.remedy) == (kind == "mpiexec_without_memory")
    assert not code or "Bus error (signal 7)" in found.text


def test_doctor_warns_of_a_quota_below_the_cpus_of_the_machine(monkeypatch):
    for quota, expected in (
        ({"pod": 1e6}, ("machine", {})),
        ({"a": 0.5, "b": 4.0}, ("machine_with_quota", {"quota": 0.5})),
    ):
        monkeypatch.setattr(cpu_and_memory, "cpu_quotas", lambda _, quota=quota: quota)
        found = cluster_checks.cores(MachineFacts(NO_GPU))
        assert (found.kind, found.values) == expected


def test_doctor_warns_of_what_else_uses_the_machine(monkeypatch):
    sample = LoadSample(
        seconds=-99.0, load_average=3.0, total_ticks=1, stolen_ticks=0, processes={}
    )
    for module in (machine, cluster_checks):
        monkeypatch.setattr(module, "read_load", lambda _: sample)
    for cores, kind, severity in ((0.01, "load", "info"), (1.5, "load_high", "warning")):
        load = {"stolen": 0.0, "other_cores": cores, "busiest": [{"name": "make", "cores": cores}]}
        monkeypatch.setattr(cluster_checks, "load_between", lambda *_, load=load: load)
        found = cluster_checks.load(MachineFacts(NO_GPU))
        assert (found.kind, found.severity, "make 1.50" in found.text) == (
            kind,
            severity,
            cores > 1,
        )


BLOCKS = (
    "BlockName=b1 BlockIndex=0 Nodes=node[01-04] BlockSize=4\nBlockName=b2 "
    "BlockIndex=1 Nodes=node[05-08] BlockSize=4\n"
)
LEAVES = "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=node[01-02]\nSwitchName=s2 Level=0 LinkSpeed=1 Nodes=node[03-04]\n"
"""Topologies of topology.yaml(5), section EXAMPLE, as scontrol prints them: a part of topo2, and topo1."""


@pytest.mark.parametrize(
    ("topologies", "partition", "kind", "words"),
    [
        (
            {"": BLOCKS},
            WORK,
            "topology",
            ("topology/block, 2 blocks of 4 nodes", "if each block is one NVLink domain"),
        ),
        ({"": LEAVES}, WORK, "topology", ("topology/tree, 2 leaf switches of 2 nodes",)),
        # partitions of a topology of topology.yaml
        (
            {" topo2": BLOCKS, "": LEAVES},
            f"{WORK.strip()} Topology=topo2",
            "topology_of_partition",
            ("partition work has topology topo2", "show topology NAME > FILE"),
        ),
        (
            {" topo2": BLOCKS, "": ""},
            f"{WORK.strip()} Topology=topo2",
            "topology_of_partition",
            ("no racks by default",),
        ),
        (
            {" topo2": BLOCKS, "": BLOCKS},
            f"{WORK.strip()} Topology=topo2",
            "topology",
            ("2 blocks",),
        ),
        ({"": LEAVES + BLOCKS}, WORK, "topology_unknown", ("topology/tree and topology/block",)),
        ({"": "BlockName=b1 Nodes=node[01-"}, WORK, "topology_unknown", ("node[01-",)),
        ({"": "words"}, WORK, "topology_unknown", ("words",)),
    ],
)
def test_the_racks_of_slurms_topology_are_reported(cluster, topologies, partition, kind, words):
    cluster(partition=f"{partition.strip()}\n", topologies=topologies)
    examined = findings()["topology"]
    assert examined.kind == kind
    assert [word for word in words if word not in examined.with_remedy] == []


def test_without_a_topology_nothing_is_said_of_racks(cluster):
    cluster(topologies={"": ""})
    assert "topology" not in findings()
