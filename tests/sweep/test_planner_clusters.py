"""Plans for clusters: allocations, aggregators, sites, on paper and where Slurm is asked."""

import re

import pytest
from cli_runner import invoke
from guide_blocks import ROOT
from planning_inputs import CLUSTER, NODES, PARTITION, TEXT, begin, last_of_each_key
from shipped_sweeps import sweep_files

from hpccoll.cases.case import Shape
from hpccoll.cases.plan import Plan
from hpccoll.common.errors import BadInputError
from hpccoll.sweep.launch import launch
from hpccoll.sweep.paths import site_files
from hpccoll.sweep.planner import make_plan, write_plan
from hpccoll.sweep.site_file import load_site

BESIDE = "launcher: srun\naggregators: {partition: all}\n"


@pytest.fixture
def with_helpers(on_cluster, programs):
    """The same with a partition that has two hosts for aggregators, too."""
    programs("scontrol", PARTITION + PARTITION.replace("work", "all").replace("YES", "NO"))
    programs(
        "sinfo",
        {"-p work": NODES, "-p all": f"a1|idle|1|aggregator\n{NODES}a2|idle|1|aggregator\n"},
    )
    return on_cluster


def test_aggregators_with_nodes_have_hosts_of_their_own(with_helpers):
    plan = with_helpers(CLUSTER + "ranks_per_node: 2\naggregators: 2", BESIDE)
    (job,) = plan.jobs
    assert (job.name, job.largest, job.dedicated_aggregators) == ("mpi.n4x2", Shape(4, 8, 2), True)
    requested = plan.resources[job.name]
    assert (requested["nodes"], requested["tasks"], requested["slurm_partition"]) == (6, 10, "all")
    assert requested["constraint"] == "[worker*4&aggregator*2]"
    assert plan.launcher.aggregator == "aggregator"
    assert job.shapes[1].text == "4 ranks on 2 nodes and 2 aggregators on other hosts"
    (reason,) = {skip.reason for skip in plan.skips}
    assert reason.endswith(
        "on other hosts: partition all has 6 nodes with feature worker, 2 of them down or drained"
    )


@pytest.mark.parametrize(
    "command", [["sweep"], ["plan", "--profile", "local"]], ids=lambda command: command[0]
)
def test_nodes_and_sites_are_not_of_this_machine(command, tmp_path):
    (tmp_path / "some.yaml").write_text(CLUSTER)
    out = "--out", tmp_path / "out"
    assert invoke(*command, tmp_path / "some.yaml", *out).is_bad_input(
        "some.yaml: nodes", "--profile slurm or"
    )
    (tmp_path / "some.yaml").write_text(TEXT)
    assert invoke(*command, tmp_path / "some.yaml", *out, "--site", "hgx").is_bad_input(
        "--site", "'hgx'", "profile local"
    )
    assert not out[1].exists()


GPU_SITES = [path.stem for path in site_files() if load_site(path.stem, "slurm").gpus]


@pytest.mark.parametrize("site", GPU_SITES)
def test_the_first_sweep_on_gpus_can_be_planned_for_each_shipped_site_that_has_some(site):
    (config,) = (path for path in sweep_files(ROOT / "workflows") if path.name == "gpu-node.yaml")
    plan = make_plan(config, None, site)
    (shape,) = {shape for job in plan.jobs for shape in job.shapes}
    text = plan.launcher.line(shape, ["n1"])
    assert shape == Shape(1, 8)
    assert "--gpu-bind=none" in text
    assert ("apptainer exec --nv" in text) == ("apptainer" in site)
    assert ("--container-image=" in text) == ("pyxis" in site)


def test_sites_with_gpus_in_containers_are_shipped():
    assert {"apptainer-gpu", "pyxis-gpu"} <= {*GPU_SITES}


@pytest.mark.parametrize("config", ["gpu-node", "gpu-nccl", "gpu-mpi", "sharp"])
@pytest.mark.parametrize(
    ("site", "gpus"), [("gpus_per_node: 4", 4), ("gres: gpu:gb200:4", 4), ("partition: work", 8)]
)
def test_shipped_sweep_files_have_a_rank_for_each_gpu_of_the_site(config, site, gpus, tmp_path):
    (tmp_path / "site.yaml").write_text(site)
    path = next(path for path in sweep_files(ROOT / "workflows") if path.stem == config)
    plan = make_plan(path, None, str(tmp_path / "site.yaml"))
    assert {job.largest.ranks_per_node for job in plan.jobs} == {gpus}
    assert any("how many GPUs" in note for note in plan.notes) == (site == "partition: work")


CYCLIC = (
    "algorithms: ring\nbytes: 8\nin_place: false\nnodes: [2, 4]\n"
    "ranks_per_node: [1, 2]\nmapping: [block, cyclic]\n"
)


@pytest.mark.parametrize(
    ("warning", "left_out"),
    [
        ("scontrol: No topology information available\n", {"one on each node"}),
        ("", {"one on each node"}),  # topology/flat prints nothing
        ("SwitchName=rack1 Level=0 LinkSpeed=1 Nodes=n[1-3]\n", set()),
        ("BlockName=b1 BlockIndex=0 Nodes=n[1-3] BlockSize=3\n", set()),
    ],
    ids=["no racks", "flat", "racks", "blocks"],
)
def test_where_slurm_knows_of_no_racks_the_plan_leaves_out_the_mapping_that_changes_nothing(
    on_cluster, programs, warning, left_out
):
    programs("scontrol", {"show partition": PARTITION}, err=warning)
    plan = on_cluster(CYCLIC)
    words = "mapping cyclic numbers these ranks as block does: "
    assert {skip.reason.removeprefix(words) for skip in plan.skips} == left_out
    shapes = {
        str(job.shape(case)) for job in plan.jobs for case in job.cases if case.mapping == "cyclic"
    }
    assert shapes == {"2x2", "4x2"} | ({"2x1", "4x1"} if not left_out else set())


def test_the_profile_of_the_testbed_is_of_its_hosts(programs, tmp_path):
    (tmp_path / "some.yaml").write_text(CLUSTER)
    result = invoke("plan", tmp_path / "some.yaml", "--profile", "testbed")
    assert result.is_bad_input("--profile testbed: ", "slurm/testbed/testbed run hpccoll")
    assert programs.calls() == []


def test_a_plan_on_paper_is_not_written_over_that_of_a_sweep(on_cluster, tmp_path):
    plan, out = on_cluster(), tmp_path / "out"
    write_plan(plan, out)
    result = invoke("plan", tmp_path / "some.yaml", "--out", out)
    assert result.is_bad_input("--out", out, "another directory, or a plan with --profile")
    assert Plan.load(out / "plan.json") == plan
    for _ in range(2):
        assert invoke("plan", tmp_path / "some.yaml", "--out", tmp_path / "paper").code == 0


def test_nodes_are_planned_on_paper_where_there_is_no_cluster(programs, tmp_path):
    (tmp_path / "some.yaml").write_text(CLUSTER + "ranks_per_node: 8\n")
    (tmp_path / "site.yaml").write_text("launcher: srun --mpi=pmix\npartition: gpu\n")
    result = invoke("plan", tmp_path / "some.yaml", "--site", tmp_path / "site.yaml")
    assert (result.code, result.err, programs.calls()) == (0, "", [])
    assert "planned offline" in result.out
    assert (
        "mpi.n6x8: 16 cases on 1x8, 2x8, 4x8 and 6x8; requests 6 nodes for at most " in result.out
    )
    assert re.search(
        r"^  sbatch --nodes=6 --ntasks=48 --time=\d+ --partition=gpu --ntasks-per",
        result.out,
        re.MULTILINE,
    )
    assert "  6x8: srun --mpi=pmix -N 6 -n 48 --ntasks-per-node=8" in result.out
    assert invoke("plan", tmp_path / "some.yaml", "--site", "x").is_bad_input(
        "--site", "'x'", "a file, or one of"
    )
    (tmp_path / "some.yaml").write_text(TEXT)  # on one node, for a site
    (tmp_path / "plan.json").write_text(
        invoke("plan", tmp_path / "some.yaml", "--site", "hgx", "--json").out
    )
    plan = Plan.load(tmp_path / "plan.json")
    assert (plan.offline, plan.profile, plan.launcher.slurm, plan.skips) == (
        True,
        "slurm",
        True,
        (),
    )
    with pytest.raises(BadInputError, match="--profile"):
        launch(tmp_path / "plan.json", plan.jobs[0].name, tmp_path / "a.h5")


def test_what_is_begun_stays_as_it_was_planned_when_nodes_go_and_when_they_come(
    on_cluster, programs, tmp_path
):
    out = tmp_path / "out"
    first = on_cluster(out=out)
    write_plan(first, out)
    assert on_cluster(out=out) == first  # nothing is begun: it is planned anew, and alike
    begin(first.jobs[0], out)
    programs("sinfo", NODES.replace("n4|idle", "n4|down"))
    assert on_cluster(out=out).jobs == first.jobs
    programs("sinfo", NODES.replace("drained", "idle").replace("down*", "idle"))
    later = on_cluster(out=out)
    assert [(job.name, job.shapes) for job in later.jobs] == [
        ("mpi.n4x1", (Shape(1, 1), Shape(2, 2), Shape(4, 4))), ("mpi.n6x1", (Shape(6, 6),)),
    ]  # fmt: skip
    assert later.skips == ()


@pytest.mark.parametrize(
    ("text", "done", "change"),
    [
        (CLUSTER.replace("1K", "2K"), 0, r"\(sizes: 8 B,1 KiB before, 8 B,2 KiB now\)"),
        (CLUSTER + "rounds: 5\n", 0, r"\(rounds: 3 before, 5 now\)"),
        (CLUSTER.replace("[1, 2, 4, 6]", "2"), 1, "nodes, ranks or variant are no longer"),
        (CLUSTER.replace("[1, 2, 4, 6]", "[1, 2, 4]"), 1, None),  # 6 nodes could not be had
        # without a result nodes may leave the sweep file
        (CLUSTER.replace("[1, 2, 4, 6]", "2"), 0, None),
    ],
)
def test_what_is_begun_is_not_mixed_with_another_sweep_file(
    on_cluster, tmp_path, text, done, change
):
    out = tmp_path / "out"
    first = on_cluster(out=out)
    write_plan(first, out)
    begin(first.jobs[0], out, done=done)
    if change is None:
        assert on_cluster(text, out=out).jobs
        return
    with pytest.raises(BadInputError, match=rf"--out .*/out: mpi\.n4x1 was measured .*{change}"):
        on_cluster(text, out=out)


def test_the_profile_that_reads_a_database_is_refused_without_one(cluster, tmp_path):
    (tmp_path / "some.yaml").write_text(CLUSTER.replace("[1, 2, 4, 6]", "2"))
    with pytest.raises(
        BadInputError, match=r"--profile slurm: sacct does not answer.*--profile slurm-nodbd"
    ):
        make_plan(tmp_path / "some.yaml", "slurm")
    assert make_plan(tmp_path / "some.yaml", "slurm-nodbd").profile == "slurm-nodbd"
    cluster("sacct")
    assert make_plan(tmp_path / "some.yaml", "slurm").profile == "slurm"


@pytest.mark.parametrize(
    ("added", "site", "words"),
    [
        (
            "nodes: 2\naggregators: 3\n",
            BESIDE,
            "2 nodes and 3 aggregators on other hosts: partition all has 2 nodes",
        ),
        ("aggregators: 1\n", "launcher: srun\n", "key aggregators"),
        (
            "nodes: 6\n",
            "launcher: srun\n",
            r"nodes: \[6\] .*partition work has 6 nodes, 2 of them down or drained",
        ),
        (
            "",
            "partition: wrok\n",
            r"--site .*/site\.yaml: partition: 'wrok' is not valid: did you mean work\?",
        ),
    ],
)
def test_what_a_cluster_does_not_have_is_refused_with_the_reason(with_helpers, added, site, words):
    with pytest.raises(BadInputError, match=words):
        with_helpers(last_of_each_key(CLUSTER + added), site)


ONE, TWO, FOUR = Shape(1, 1), Shape(2, 2), Shape(4, 4)
UNUSABLE = "6 ranks on 6 nodes: partition work has 6 nodes, 2 of them down or drained"


@pytest.mark.parametrize(
    ("added", "jobs", "reasons"),
    [
        ("", {"mpi.n4x1": (ONE, TWO, FOUR)}, {UNUSABLE}),
        (
            "scaling: separate",
            {"mpi.n1x1": (ONE,), "mpi.n2x1": (TWO,), "mpi.n4x1": (FOUR,)},
            {UNUSABLE},
        ),
        (
            "ranks_per_node: [1, 8]",
            {"mpi.n4x1": (ONE, TWO, FOUR)},
            {UNUSABLE, "8 ranks on 1 node: no nodes of partition work have 8 CPUs"},
        ),
        ("nodes: [1, 4]\nranks_per_node: 4", {"mpi.n4x4": (Shape(1, 4), Shape(4, 16))}, set()),
    ],
)
def test_a_job_is_an_allocation_of_the_largest_shape_that_can_be_had(
    on_cluster, added, jobs, reasons
):
    plan = on_cluster(last_of_each_key(f"{CLUSTER}{added}\n"))
    assert {job.name: job.shapes for job in plan.jobs} == jobs
    assert {skip.reason for skip in plan.skips} >= reasons
    for job in plan.jobs:
        requested = plan.resources[job.name]
        assert (requested["nodes"], requested["tasks"]) == (job.nodes, job.ranks)
        assert requested["mpi"] == ("srun" if job.ranks > 1 else ""), (
            "the plugin refuses it for a single task"
        )
        assert len({case.id for case in job.cases}) == len(job.cases) == 4 * len(job.shapes)
    looked = [call for call in on_cluster.calls() if call.startswith("sbatch")]
    assert ["--test-only" in call for call in looked] == [True] * len(plan.jobs), (
        "Slurm itself looks at each job"
    )


def test_ranks_of_a_sweep_file_are_on_one_node_of_a_cluster_with_its_aggregators(on_cluster):
    plan = on_cluster(
        "algorithms: [ring, sharp_emulated]\nbytes: 8\nranks: [2, 4]\naggregators: 1\n"
    )
    (job,) = plan.jobs
    assert (job.name, job.shapes, str(*job.shapes)) == ("mpi.p2", (Shape(1, 2, 1),), "1x2+1")
    assert plan.resources[job.name]["tasks"] == 3
    assert {skip.job for skip in plan.skips} == {"mpi.p4"}
