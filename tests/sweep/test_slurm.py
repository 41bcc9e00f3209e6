"""What Slurm's commands say, as recorded on real clusters, and what is made of it."""

import getpass

import pytest
from commands import inside

from hpccoll.errors import BadInputError
from hpccoll.sweep import slurm

PARTITIONS = """\
PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A DefaultTime=NONE \
DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=2 MaxTime=00:30:00 MinNodes=0 LLN=NO \
MaxCPUsPerNode=UNLIMITED Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO \
OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=8 TotalNodes=4 SelectTypeParameters=NONE JobDefaults=(null) \
DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=8,mem=4M,node=4,billing=8
PartitionName=work AllowGroups=ALL AllowAccounts=physics,chem AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A \
DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED \
MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO \
OverSubscribe=NO OverTimeLimit=NONE PreemptMode=OFF State=UP TotalCPUs=8 TotalNodes=4 SelectTypeParameters=NONE \
JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=8,mem=4M,node=4,billing=8
"""
NODES = "n1|idle|2|(null)\nn2|idle|2|worker,hdr\nn3|idle|2|aggregator\nn4|idle|2|worker\n"
DISABLED = """\
Slurm accounting storage is disabled
You are not running a supported accounting_storage plugin
Only 'accounting_storage/slurmdbd' is supported.
"""
SILENT = "slurm_load_partitions: Unable to contact slurm controller (connect failure)\n"
JOB = """\
JobId=7 JobName=hpccoll-abc UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901754 Nice=0 Account=(null) \
QOS=(null) JobState=TIMEOUT Reason=TimeLimit Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:15 \
RunTime=00:01:12 TimeLimit=00:01:00 TimeMin=N/A SubmitTime=2026-11-21T13:11:33 Partition=work AllocNode:Sid=head:7 \
ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2] BatchHost=n1 NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=1 \
ReqB:S:C:T=0:0:*:* TRES=cpu=4,mem=2M,node=2,billing=4 Comment=rule_measure_wildcards_mpi.n2x1 \
StdOut=/home/me/my results/1.log Power=
"""
SWEEP = "algorithms: ring\nbytes: 8\nnodes: 2\n"


@pytest.fixture
def cluster(programs):
    """A cluster of two partitions without a database."""
    programs("scontrol", {"show partition": PARTITIONS, "show job": JOB, "show hostnames n[1-2]": "n1\nn2\n"})
    programs("sinfo", NODES)
    programs("sacct", code=1, err=DISABLED)
    programs("sbatch", err="sbatch: Job 3 to start at 2026-11-21T13:07:53 using 2 processors on nodes n[1-2]\n")
    return programs


@pytest.mark.usefixtures("cluster")
def test_a_job_goes_to_the_default_partition_unless_it_says_another():
    work, debug = slurm.partition(None), slurm.partition("debug")
    assert (work.name, work.nodes, work.usable, work.cpus, work.largest) == ("work", 4, 4, (2, 2, 2, 2), None)
    assert (work.accounts, debug.accounts) == (("physics", "chem"), None)


def test_a_partition_is_asked_for_its_own_nodes(cluster):
    slurm.partition("debug")
    assert "sinfo -h -N --noconvert -p debug -o %N|%T|%c|%b" in cluster.calls()


def test_nodes_with_a_feature_are_counted_by_themselves(cluster):
    workers, helpers = slurm.partition("debug", "worker"), slurm.partition("debug", "aggregator")
    assert (workers.usable, helpers.usable, slurm.partition("debug", "hdr").usable) == (2, 1, 1)
    assert helpers.lack(2, 1) == "partition debug has 1 nodes with feature aggregator"
    assert slurm.partition("debug", "gpu").lack(1, 1) == "partition debug has no nodes with feature gpu"
    assert (workers.lack(2, 1), workers.lack(2, 1, 1)) == (None, "partition debug gives a job at most 2 nodes")
    cluster("sinfo", "n1|worker\nn1|worker\na1|aggregator,x\n")
    assert slurm.having("aggregator", ["a1", "n1"]) == ("a1",)
    assert "sinfo -a -h -N -n a1,n1 -o %N|%b" in cluster.calls(), "of hidden partitions, too"


@pytest.mark.usefixtures("cluster")
def test_an_unknown_partition_is_told_with_those_that_there_are():
    with pytest.raises(BadInputError, match=r"partition: 'gpu' is not valid: choose from debug, work"):
        slurm.partition("gpu")


def test_without_a_default_partition_one_has_to_be_named(cluster):
    cluster("scontrol", PARTITIONS.replace("Default=YES", "Default=NO"))
    with pytest.raises(BadInputError, match="partition: None is not valid: choose from debug, work"):
        slurm.partition(None)


@pytest.mark.parametrize("state", ["down", "down*", "idle*", "drained", "draining", "drained*", "fail"])
def test_nodes_on_which_no_job_can_start_are_counted_out(cluster, state):
    cluster("sinfo", f"n1|idle|8|x\nn2|{state}|2|x\nn3|allocated|4|x\nn4|mixed-|8|x\n")
    found = slurm.partition("work")
    assert (found.nodes, found.usable, found.cpus) == (4, 3, (8, 4, 8))
    assert found.lack(3, 4) is None
    assert found.lack(3, 5) == "2 nodes of partition work have 5 CPUs"
    assert found.lack(1, 9) == "no nodes of partition work have 9 CPUs"
    assert found.lack(4, 1) == "partition work has 4 nodes, 1 of them down or drained"


@pytest.mark.parametrize("state", ["idle", "idle~", "idle#", "mixed", "allocated+", "completing", "reserved", "maint"])
def test_nodes_that_are_busy_or_asleep_are_counted(cluster, state):
    cluster("sinfo", f"n1|{state}|2|x\n")
    assert slurm.partition("work").usable == 1


@pytest.mark.usefixtures("cluster")
def test_a_partition_may_give_a_job_fewer_nodes_than_it_has():
    debug = slurm.partition("debug")
    assert (debug.usable, debug.lack(2, 1)) == (4, None)
    assert debug.lack(3, 1) == "partition debug gives a job at most 2 nodes"


def test_a_partition_that_is_down_has_no_nodes(cluster):
    cluster("scontrol", PARTITIONS.replace("State=UP", "State=DOWN"))
    assert slurm.partition("work").usable == 0


def test_without_slurm_a_plan_takes_one_line_that_says_what_to_do(programs, tmp_path):
    assert programs.calls() == []
    (tmp_path / "a.yaml").write_text(SWEEP)
    said = inside("plan", tmp_path / "a.yaml", "--profile", "slurm")
    assert said.complains_of("scontrol", "on PATH", "Slurm's module", "--profile local")


def test_a_controller_that_is_away_takes_one_line(programs, tmp_path):
    programs("scontrol", code=1, err=SILENT)
    (tmp_path / "a.yaml").write_text(SWEEP)
    said = inside("plan", tmp_path / "a.yaml", "--profile", "slurm")
    assert said.complains_of("scontrol -a -o show partition", "Unable to contact slurm controller")


def test_a_controller_that_hangs_takes_one_line(programs, monkeypatch):
    programs("sinfo")
    (programs.place / "sinfo").write_text("#!/bin/sh\nexec /bin/sleep 9\n")
    monkeypatch.setattr(slurm, "ANSWER_S", 0.1)
    with pytest.raises(BadInputError, match=r"'sinfo -h' is not valid: .* answers within 0.1 s: see 'scontrol ping'"):
        slurm.ask("sinfo", "-h")


def test_there_is_accounting_where_sacct_answers(programs, monkeypatch):
    assert not slurm.accounting(), "there is no sacct"
    programs("sacct", code=1, err=DISABLED)
    assert not slurm.accounting()
    programs("sacct")
    assert slurm.accounting()
    (programs.place / "sacct").write_text("#!/bin/sh\nexec /bin/sleep 9\n")
    monkeypatch.setattr(slurm, "ANSWER_S", 0.1)
    assert not slurm.accounting(), "a database that hangs does not answer"


@pytest.mark.usefixtures("cluster")
def test_without_a_database_an_account_is_one_that_the_partition_names():
    work, debug = slurm.partition("work"), slurm.partition("debug")
    slurm.check_account(None, work)
    slurm.check_account("chem", work)
    with pytest.raises(BadInputError, match=r"account: 'bio' is not valid: .* no accounts, .* names physics, chem"):
        slurm.check_account("bio", work)
    with pytest.raises(BadInputError, match=r"account: 'chem' is not valid: left out: .* partition debug names none"):
        slurm.check_account("chem", debug)


def test_with_a_database_an_account_is_one_of_the_user(cluster):
    cluster("sacct")
    cluster("sacctmgr", "chem\nbio\nchem\n")
    work = slurm.partition("work")
    slurm.check_account("bio", work)
    assert any(f"user={getpass.getuser()} " in call for call in cluster.calls() if call.startswith("sacctmgr"))
    with pytest.raises(BadInputError, match="account: 'physics' is not valid: an account of yours: bio, chem"):
        slurm.check_account("physics", work)
    cluster("sacctmgr", "")
    with pytest.raises(BadInputError, match="you have none"):
        slurm.check_account("bio", work)


REQUEST = {
    "mpi": "srun", "nodes": 2, "tasks": 4, "runtime": 30, "mem_mb": 0, "cpus_per_task": -1, "slurm_partition": "work",
    "slurm_extra": "--ntasks-per-node=2 --exclusive '--nodelist=n[1-2]'",
}  # fmt: skip


def test_slurm_looks_at_a_job_as_it_will_be_submitted(cluster):
    slurm.check_request(REQUEST)
    (call,) = cluster.calls()
    assert call == (
        "sbatch --test-only --nodes=2 --ntasks=4 --time=30 --partition=work --ntasks-per-node=2 --exclusive "
        "--nodelist=n[1-2] --wrap=true"
    )
    slurm.check_request({**REQUEST, "mem_mb": 1000, "cpus_per_task": 4, "slurm_account": "me", "qos": "q"})
    assert " --partition=work --account=me --qos=q --mem=1000 --cpus-per-task=4 --ntasks-" in cluster.calls()[1]


def test_a_job_that_slurm_would_refuse_is_told_with_its_reason(cluster):
    cluster("sbatch", code=1, err="allocation failure: Requested node configuration is not available\n")
    with pytest.raises(BadInputError) as error:
        slurm.check_request(REQUEST)
    assert str(error.value).endswith("a request that Slurm grants: Requested node configuration is not available")
    cluster("sbatch", code=1, err="sbatch: error: Batch job submission failed: Invalid qos specification\n")
    with pytest.raises(BadInputError, match="grants: Batch job submission failed: Invalid qos specification"):
        slurm.check_request(REQUEST)


def test_the_jobs_of_a_sweep_are_found_by_their_names(programs):
    programs(
        "squeue",
        "4|timeout|COMPLETED|None|(null)\n"
        "7|hpccoll-abc_3f|RUNNING|None|rule_measure_wildcards_mpi.n2x1\n"
        "8|hpccoll-abc_3f|TIMEOUT|TimeLimit|rule_measure_wildcards_mpi.n4x1.a|b\n"
        "9|hpccoll-other|PENDING|Resources|rule_measure_wildcards_mpi.n2x1\n",
    )
    running, ended = slurm.queued("hpccoll-abc")
    assert (running.id, running.job, running.state, running.alive) == ("7", "mpi.n2x1", "RUNNING", True)
    assert (ended.job, ended.reason, ended.alive) == ("mpi.n4x1.a|b", "TimeLimit", False)


def test_a_job_is_told_by_words_that_may_hold_blanks(cluster):
    facts = slurm.show_job("7")
    assert (facts["JobState"], facts["TimeLimit"], facts["NodeList"]) == ("TIMEOUT", "00:01:00", "n[1-2]")
    assert facts["StdOut"] == "/home/me/my results/1.log"
    assert facts["TRES"] == "cpu=4,mem=2M,node=2,billing=4"
    cluster("scontrol", code=1, err="slurm_load_jobs error: Invalid job id specified\n")
    assert slurm.show_job("99") == {}


@pytest.mark.usefixtures("cluster")
def test_the_nodes_of_a_job_come_one_by_one():
    assert slurm.allocated_hosts("7") == ("n1", "n2")


LISTS = {
    "22.05": "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n",
    "21.08": "srun: MPI types are...\nsrun: pmix\nsrun: none\nsrun: pmi2\n",
}


@pytest.mark.parametrize("version", LISTS)
def test_the_types_of_mpi_are_read_from_either_stream(programs, version):
    programs("srun", LISTS[version])
    assert slurm.mpi_types() == ["pmix", "none", "pmi2"]
    programs("srun", err=LISTS[version])
    assert slurm.mpi_types() == ["pmix", "none", "pmi2"]


def test_the_settings_of_the_controller_are_read_by_name(programs):
    programs(
        "scontrol",
        "Configuration data as of 2026-11-21T13:07:54\nMinJobAge               = 300 sec\nSLURM_VERSION   = 22.05.8\n"
        "InteractiveStepOptions  = --interactive --preserve-env --pty $SHELL\n"
        "LaunchParameters = a=b\n\nSlurmctld(primary) at head is UP\n",
    )
    settings = slurm.configuration()
    assert (settings["MinJobAge"], settings["SLURM_VERSION"]) == ("300 sec", "22.05.8")
    assert settings["LaunchParameters"] == "a=b"


def test_jobs_are_cancelled_together_and_none_where_there_are_none(programs):
    programs("scancel", code=1)
    slurm.cancel([])
    assert programs.calls() == []
    slurm.cancel(["7", "8"])
    assert programs.calls() == ["scancel 7 8"]
