"""Slurm's jobs, as its commands tell of them, and what is made of it."""

import pytest

from hpccoll.sweep.slurm import squeue


def test_the_jobs_of_a_sweep_are_found_by_their_names(programs):
    programs(
        "squeue",
        "4|timeout|COMPLETED|None|(null)\n"
        "7|hpccoll-abc_3f|RUNNING|None|rule_measure_wildcards_mpi.n2x1\n"
        "8|hpccoll-abc_3f|TIMEOUT|TimeLimit|rule_measure_wildcards_mpi.n4x1.a|b\n"
        "9|hpccoll-other|PENDING|Resources|rule_measure_wildcards_mpi.n2x1\n",
    )
    running, ended = squeue.list_jobs("hpccoll-abc")
    assert (running.id, running.job, running.state, running.alive) == (
        "7",
        "mpi.n2x1",
        "RUNNING",
        True,
    )
    assert (ended.job, ended.reason, ended.alive) == ("mpi.n4x1.a|b", "TimeLimit", False)


def test_facts_of_a_job_may_contain_blanks(cluster):
    facts = squeue.show_job("7")
    assert (facts["JobState"], facts["TimeLimit"], facts["NodeList"]) == (
        "TIMEOUT",
        "00:01:00",
        "n[1-2]",
    )
    assert facts["StdOut"] == "/home/me/my results/1.log"
    assert facts["TRES"] == "cpu=4,mem=2M,node=2,billing=4"
    assert not squeue.waits_for_nodes("7")
    cluster("sinfo", "n1|idle|2|worker\nn2|down|2|worker\n")
    assert squeue.waits_for_nodes("7")
    cluster("scontrol", code=1, err="slurm_load_jobs error: Invalid job id specified\n")
    assert squeue.show_job("99") == {}


NODES = """\
NodeName=n1 Arch=x86_64 NodeAddr=10.77.0.1 NodeHostName=n1 Version=22.05.8 OS=Linux 6.1 #1 SMP RealMemory=1
NodeName=n2 Arch=x86_64 NodeAddr=n2.cluster.example NodeHostName=n2 Version=22.05.8 OS=Linux 6.1 #1 SMP RealMemory=1
NodeName=n3 Arch=x86_64 NodeAddr=fd00::7 NodeHostName=ip-0A000007.cluster.example Version=22.05.8 OS=Linux 6.1
NodeName=n4 NodeAddr=n4-ib0 NodeHostName=gpu04
NodeName=n5 State=FUTURE
"""


def test_other_names_of_nodes_are_those_of_their_hosts_but_for_domains_and_numbers(cluster):
    cluster("scontrol", NODES)
    assert squeue.host_aliases(["n1", "n2", "n3", "n4", "n5"]) == {
        "n1": [],
        "n2": [],
        "n3": ["ip-0A000007.cluster.example"],
        "n4": ["gpu04", "n4-ib0"],
        "n5": [],
    }
    assert cluster.calls() == ["scontrol -a -o show node n1,n2,n3,n4,n5"]


@pytest.mark.parametrize(
    ("cpus", "groups", "expected"),
    [
        (
            240,
            "Nodes=n[1-2] CPU_IDs=0-95 Mem=0 GRES= Nodes=n3 CPU_IDs=0-31,40-55 Mem=0 GRES=gpu:8",
            48,
        ),
        # of two threads
        (120, "Nodes=n[1-2] CPU_IDs=0-95 Mem=0 GRES= Nodes=n3 CPU_IDs=0-31,40-55 Mem=0 GRES=", 24),
        (192, "Nodes=n[1-2] CPU_IDs=0-95 Mem=0 GRES=", 96),
    ],
)
def test_of_nodes_with_different_cpus_the_smallest_counts(programs, cpus, groups, expected):
    job = f"JobId=7 NumNodes=3 NumCPUs={cpus} NumTasks=3 JOB_GRES=(null) {groups} MinCPUsNode=1\n"
    programs("scontrol", {"show job": job, "hostnames n[1-2]": "n1\nn2\n", "hostnames n3": "n3\n"})
    assert squeue.cpus_of_node("7") == expected


def test_the_last_task_of_an_array_has_its_own_hosts(programs):
    """Its id is that of the array, for which scontrol prints all tasks, this one first (job_array.html of Slurm)."""
    tasks = [
        f"JobId={number} ArrayJobId=36 ArrayTaskId={task} JobState=RUNNING NodeList={nodes} NumNodes=4 NumCPUs=16"
        for number, task, nodes in ((36, 3, "n[5-8]"), (37, 1, "n[1-4]"))
    ]
    programs(
        "scontrol",
        {
            "show job 36": "\n".join(tasks),
            "hostnames n[5-8]": "n5\nn6\nn7\nn8\n",
            "hostnames n[1-4]": "n1\nn2\nn3\nn4\n",
        },
    )
    assert squeue.allocated_hosts("36") == ("n5", "n6", "n7", "n8")
