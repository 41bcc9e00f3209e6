"""Partitions and accounts, as Slurm's commands tell of them on real clusters, and what is made of it."""

import getpass
import re

import pytest
import slurm_outputs

from hpccoll.common.errors import BadInputError
from hpccoll.sweep.slurm import partitions


@pytest.mark.usefixtures("cluster")
def test_a_job_goes_to_the_default_partition_unless_it_says_another():
    work, debug = partitions.load_partition(None), partitions.load_partition("debug")
    assert (work.name, work.nodes, work.usable, work.cpus, work.largest) == (
        "work",
        4,
        4,
        (2, 2, 2, 2),
        None,
    )
    assert (work.accounts, debug.accounts) == (("physics", "chem"), None)
    assert partitions.load_partition("work", "Worker").usable == 0, (
        "Slurm compares features with case"
    )
    with pytest.raises(
        BadInputError, match=r"partition: 'Work' is not valid: .*choose from debug, work$"
    ):
        partitions.load_partition("Work")


def test_nodes_with_a_feature_are_counted_by_themselves(cluster):
    workers, helpers = (
        partitions.load_partition("debug", "worker"),
        partitions.load_partition("debug", "aggregator"),
    )
    assert (workers.usable, helpers.usable, partitions.load_partition("debug", "hdr").usable) == (
        2,
        1,
        1,
    )
    assert helpers.why_unavailable(2, 1) == "partition debug has 1 nodes with feature aggregator"
    assert (
        partitions.load_partition("debug", "gpu").why_unavailable(1, 1)
        == "partition debug has no nodes with feature gpu"
    )
    assert (workers.why_unavailable(2, 1), workers.why_unavailable(2, 1, 1)) == (
        None,
        "partition debug gives a job at most 2 nodes",
    )
    cluster("sinfo", "n1|worker\nn1|worker\na1|aggregator,x\n")
    assert partitions.hosts_with_feature("aggregator", ["a1", "n1"]) == ("a1",)
    assert "sinfo -a -h -N -n a1,n1 -o %N|%b" in cluster.calls(), "of hidden partitions, too"


def test_without_a_default_partition_one_has_to_be_named_and_one_that_is_down_has_no_nodes(cluster):
    texts = {"Default=YES": "Default=NO", "State=UP": "State=DOWN"}
    cluster(
        "scontrol", re.sub("|".join(texts), lambda found: texts[found[0]], slurm_outputs.PARTITIONS)
    )
    with pytest.raises(BadInputError, match="partition is missing: choose from debug, work"):
        partitions.load_partition(None)
    assert partitions.load_partition("work").usable == 0


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_partition_that_starts_no_job_is_the_reason_and_not_its_nodes(cluster, state):
    cluster("scontrol", slurm_outputs.PARTITIONS.replace("State=UP", f"State={state}"))
    why = partitions.load_partition("work").why_unavailable(1, 1)
    assert f"State={state}" in why
    assert "drained" not in why or state == "DRAIN"


def test_a_node_in_maintenance_is_counted_out_with_that_reason(cluster):
    cluster("sinfo", "n1|idle|8|x\nn2|down|8|x\nn3|maint|8|x\nn4|maint*|8|x\n")
    found = partitions.load_partition("work")
    assert (found.usable, found.why_unavailable(1, 8)) == (1, None)
    why = found.why_unavailable(2, 8)
    assert "in maintenance" in why
    assert "down or drained" in why


@pytest.mark.parametrize(
    "state", ["down", "idle*", "draining", "inval", "inval*", "unknown", "future"]
)
def test_nodes_on_which_no_job_can_start_are_counted_out(cluster, state):
    cluster("sinfo", f"n1|idle~|8|x\nn2|{state}|2|x\nn3|allocated+|4|x\nn4|mixed-|8|x\n")
    found = partitions.load_partition("work")
    assert (found.nodes, found.usable, found.cpus) == (4, 3, (8, 4, 8))
    assert found.why_unavailable(3, 4) is None
    assert found.why_unavailable(3, 5) == "2 nodes of partition work have 5 CPUs"
    assert found.why_unavailable(1, 9) == "no nodes of partition work have 9 CPUs"
    assert found.why_unavailable(4, 1) == "partition work has 4 nodes, 1 of them down or drained"


@pytest.mark.usefixtures("cluster")
def test_without_a_database_an_account_is_one_that_the_partition_names():
    work, debug = partitions.load_partition("work"), partitions.load_partition("debug")
    partitions.check_account(None, work)
    partitions.check_account("chem", work)
    with pytest.raises(
        BadInputError, match=r"account: 'bio' is not valid: .* no accounts, .* names physics, chem"
    ):
        partitions.check_account("bio", work)
    with pytest.raises(
        BadInputError, match=r"account: 'chem' .* keeps no accounts, and partition debug names none"
    ):
        partitions.check_account("chem", debug)


def test_with_a_database_an_account_is_one_of_the_user(cluster):
    cluster("sacct")
    cluster("sacctmgr", "chem\nMy Project (A1)\nchem\n\n")
    work = partitions.load_partition("work")
    for account in ("Chem", "my project (a1)"):  # Slurm compares them without case
        partitions.check_account(account, work)
    assert any(
        f"user={getpass.getuser()} " in call
        for call in cluster.calls()
        if call.startswith("sacctmgr")
    )
    for account in ("physics", "My", "", "che"):
        with pytest.raises(BadInputError, match=r"an account of yours: My Project \(A1\), chem$"):
            partitions.check_account(account, work)
    cluster("sacctmgr", "")
    with pytest.raises(BadInputError, match="you have none"):
        partitions.check_account("chem", work)


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
REQUEST = {
    "mpi": "srun",
    "nodes": 2,
    "tasks": 4,
    "runtime": 30,
    "mem_mb": 0,
    "cpus_per_task": -1,
    "slurm_partition": "work",
    "slurm_extra": "--ntasks-per-node=2 --exclusive '--nodelist=n[1-2]'",
}


def test_slurm_looks_at_a_job_as_it_will_be_submitted(cluster):
    partitions.check_request(REQUEST, {})
    (call,) = cluster.calls()
    assert call == (
        "sbatch --test-only --nodes=2 --ntasks=4 --time=30 --partition=work --ntasks-per-node=2 --exclusive "
        "--nodelist=n[1-2] --wrap=true"
    )
    partitions.check_request(
        {**REQUEST, "mem_mb": 1000, "cpus_per_task": 4, "slurm_account": "me", "qos": "q"}, {}
    )
    assert (
        " --partition=work --account=me --qos=q --mem=1000 --cpus-per-task=4 --ntasks-"
        in cluster.calls()[1]
    )


@pytest.mark.parametrize(
    ("site", "message", "key"),
    [
        (
            {"gpus_per_node": "h100:8"},
            "Invalid generic resource (gres) specification",
            "gpus_per_node: 'h100:8'",
        ),
        (
            {"minutes": 99},
            "Requested time limit is invalid (missing or exceeds some limit)",
            "minutes: 99",
        ),
        (
            {"minutes": None},
            "Requested time limit is invalid (missing or exceeds some limit)",
            "job: '",
        ),
        ({"minutes": 9, "qos": "q", "account": "me"}, POLICY, "job: '"),
        ({"qos": None}, "Invalid qos specification", "job: '"),
    ],
    ids=["GPUs", "minutes", "estimated minutes", "policy", "no value"],
)
def test_a_refusal_for_a_value_of_the_site_file_names_its_key(cluster, site, message, key):
    cluster("sbatch", code=1, err=f"sbatch: error: Batch job submission failed: {message}\n")
    with pytest.raises(BadInputError, match=f"^{re.escape(key)}.*{re.escape(message)}$"):
        partitions.check_request(REQUEST, site)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            (
                "sbatch: error: !!! slurm_job_submit ERROR: submitted a job to "
                "a gpu32 partition, without a GPU32 Account.\n"
                "sbatch: error: Batch job submission failed: Unspecified error\n"
            ),
            "without a GPU32 Account",
        ),
        (
            "allocation failure: Invalid account or account/partition combination specified\n",
            "Invalid account",
        ),
        (
            (
                "sbatch: error: You must specify a number of tasks.\n"
                "allocation failure: Job size specification needs to be provided\n"
            ),
            "You must specify a number of tasks.",
        ),
    ],
    ids=["a plugin of the site", "account", "two lines"],
)
def test_a_refusal_has_the_words_of_slurm_and_of_its_plugins(cluster, answer, words):
    cluster("sbatch", code=1, err=answer)
    with pytest.raises(
        BadInputError,
        match=rf"^job: '--nodes=2 .*: a request that Slurm grants: .*{re.escape(words)}",
    ):
        partitions.check_request(REQUEST, {})
