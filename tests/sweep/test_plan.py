"""The plan: jobs, cases and what is left out, known before anything runs."""

import json
import re
import shlex

import pytest
from commands import inside
from tuned import table

from hpccoll.case import Job, Shape
from hpccoll.errors import BadInputError
from hpccoll.evidence.variants import VARIANTS
from hpccoll.plan import Plan
from hpccoll.schedule import COLLECTIVES
from hpccoll.schedule.registry import power_of_two
from hpccoll.store.journal import Journal
from hpccoll.sweep.config import load_sweep
from hpccoll.sweep.launch import launch
from hpccoll.sweep.locate import workflows
from hpccoll.sweep.plan import check_out, make_plan, write_plan

TEXT = "algorithms: [ring, native]\nbytes: [8, 1K]\nranks: [2, 3]\nseed: 4\n"


@pytest.fixture
def planned(tmp_path):
    def plan(text=TEXT):
        path = tmp_path / "some.yaml"
        path.write_text(text)
        return make_plan(path)

    return plan


@pytest.fixture
def picky():
    """An algorithm that a power of two of ranks can run."""
    family = COLLECTIVES["all_reduce"]
    family("picky", needs=[power_of_two])(family.algorithms["ring"].program)
    yield
    del family.algorithms["picky"]


def test_a_job_is_a_number_of_ranks_and_its_cases_are_the_product(planned):
    plan = planned()
    assert [(job.name, job.ranks, job.seed, len(job.cases)) for job in plan.jobs] == [
        ("mpi.p2", 2, 4, 8),
        ("mpi.p3", 3, 4, 8),
    ]
    assert len({case.id for job in plan.jobs for case in job.cases}) == 8
    assert [plan.launcher.line(*job.shapes) for job in plan.jobs] == ["mpiexec -n 2 hpccoll", "mpiexec -n 3 hpccoll"]


def test_the_same_sweep_file_gives_the_same_plan(planned):
    assert planned() == planned()


def test_values_of_a_parameter_are_cases(planned):
    cases = planned(TEXT + "params: {ring: {channels: [1, 4]}}").jobs[0].cases
    assert {case.params.get("channels") for case in cases if case.algorithm == "ring"} == {1, 4}
    assert {case.params.get("channels") for case in cases if case.algorithm == "native"} == {None}


def test_the_table_of_auto_is_in_the_plan_and_its_jobs_and_no_other_file_is_needed(planned, tmp_path):
    file = tmp_path / "t.json"
    file.write_text(json.dumps(table({"ring": {8: 1e-6}}).to_json()))
    plan = planned(TEXT + f"algorithms: [auto, native]\ntable: {file}")
    write_plan(plan, tmp_path / "out")
    file.unlink()
    assert Plan.load(tmp_path / "out" / "plan.json") == plan
    assert Job.load(tmp_path / "out" / "jobs" / "mpi.p2.json").table == table({"ring": {8: 1e-6}}).to_json() | {
        "created": plan.jobs[0].table["created"]
    }
    assert {case.algorithm for case in plan.jobs[0].cases} == {"auto", "native"}


def test_the_floor_is_measured_in_one_placement(planned):
    cases = planned("algorithms: [null]\nbytes: 8\nranks: 2").jobs[0].cases
    assert len(cases) == 1


def test_a_barrier_has_one_size(planned):
    cases = planned("collectives: barrier\nalgorithms: native\nbytes: [8, 16]\nin_place: false\nranks: 2").jobs[0].cases
    assert len(cases) == 1


@pytest.mark.usefixtures("picky")
def test_a_case_that_cannot_run_is_skipped_with_the_reason(planned):
    plan = planned("algorithms: [ring, picky]\nbytes: 8\nin_place: false\nranks: [2, 3]")
    assert [(skip.job, skip.reason) for skip in plan.skips] == [
        ("mpi.p3", "picky needs a power-of-two number of workers")
    ]
    assert [len(job.cases) for job in plan.jobs] == [2, 1]


def test_on_one_node_there_is_one_mapping_and_between_nodes_the_job_sees(planned, on_cluster):
    plan = planned("algorithms: ring\nbytes: 8\nin_place: false\nranks: 2\nmapping: [block, cyclic]")
    assert [case.mapping for case in plan.jobs[0].cases] == ["block"]
    assert [skip.reason for skip in plan.skips] == ["mapping cyclic numbers these ranks as block does: all on one node"]
    plan = on_cluster("algorithms: ring\nbytes: 8\nin_place: false\nnodes: [1, 2]\nmapping: [block, cyclic]")
    assert [(case.nodes, case.mapping) for case in plan.jobs[0].cases] == [(1, "block"), (2, "block"), (2, "cyclic")]


@pytest.mark.usefixtures("picky")
def test_a_job_without_cases_is_not_started(planned):
    plan = planned("algorithms: picky\nbytes: 8\nranks: [2, 3]")
    assert [job.name for job in plan.jobs] == ["mpi.p2"]


def test_the_estimate_grows_with_the_cases(planned):
    assert planned().estimated_s == pytest.approx(2 * (1.5 + 8 * (0.5 + 3 * 0.01)))


def test_a_plan_is_read_as_it_was_written(planned, tmp_path):
    plan = planned()
    write_plan(plan, tmp_path / "out")
    assert Plan.load(tmp_path / "out" / "plan.json") == plan
    assert sorted(path.name for path in (tmp_path / "out" / "jobs").iterdir()) == ["mpi.p2.json", "mpi.p3.json"]


def test_a_directory_takes_more_jobs_and_no_other_ones(planned, tmp_path):
    write_plan(planned(), tmp_path / "out")
    check_out(planned(TEXT + "ranks: [2, 3, 4]"), tmp_path / "out")
    with pytest.raises(BadInputError, match=r"--out: .* another directory: mpi\.p2 was measured there"):
        check_out(planned(TEXT + "bytes: 16"), tmp_path / "out")


def test_a_plan_that_is_none_takes_one_line(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    assert inside("status", tmp_path).complains_of("plan", "plan.json", "hpccoll plan")


@pytest.mark.usefixtures("picky")
def test_plan_shows_jobs_cases_skips_and_time(planned, tmp_path):
    planned("algorithms: [ring, picky]\nbytes: 8\nin_place: false\nranks: [2, 3]")
    said = inside("plan", tmp_path / "some.yaml")
    assert said.code == 0
    assert said.out.splitlines() == [
        "some: 3 cases in 2 jobs, 3 rounds of each, 1 case left out, about 5 s",
        "",
        "launches, by nodes x ranks on each:",
        "  1x2: mpiexec -n 2 hpccoll run --shape 1x2 --job JOB.json --out JOB.h5",
        "  1x3: mpiexec -n 3 hpccoll run --shape 1x3 --job JOB.json --out JOB.h5",
        "",
        "mpi.p2: 2 cases on 1x2",
        "",
        "mpi.p3: 1 case on 1x3",
        "",
        "left out:",
        "  1 case: picky needs a power-of-two number of workers (mpi.p3)",
    ]
    assert not (tmp_path / "results").exists()


def test_plan_as_json_is_the_plan_and_the_evidence_of_its_jobs(planned, tmp_path):
    plan = planned()
    said = json.loads(inside("plan", tmp_path / "some.yaml", "--json").out)
    assert said.pop("evidence").keys() == {job.name for job in plan.jobs}
    assert said == json.loads(plan.to_json())


def test_plan_writes_what_the_jobs_read(planned, tmp_path):
    plan = planned()
    assert inside("plan", tmp_path / "some.yaml", "--out", tmp_path / "out").code == 0
    assert (tmp_path / "out" / "jobs" / "mpi.p3.json").read_text() == plan.jobs[1].to_json()


@pytest.mark.parametrize("command", ["plan", "sweep"])
@pytest.mark.parametrize("out", ["/proc/nowhere", "some.yaml/below"])
def test_an_output_that_cannot_be_written_takes_one_line(command, out, planned, tmp_path, monkeypatch):
    planned()
    monkeypatch.chdir(tmp_path)
    assert inside(command, "some.yaml", "--out", out).complains_of("--out", out, "can be written")


def test_an_unknown_profile_takes_one_line(planned, tmp_path):
    planned()
    assert inside("plan", tmp_path / "some.yaml", "--profile", "mars").complains_of("--profile", "'mars'", "local")


PARTITION = "PartitionName=work AllowAccounts=ALL Default=YES MaxNodes=UNLIMITED Nodes=n[1-6] State=UP\n"
STATES = {"n1": "idle", "n2": "mixed", "n3": "idle", "n4": "idle", "n5": "drained", "n6": "down*"}
NODES = "".join(f"{node}|{state}|4|worker\n" for node, state in STATES.items())
CLUSTER = "algorithms: [ring, native]\nbytes: [8, 1K]\nin_place: false\nnodes: [1, 2, 4, 6]\n"


@pytest.fixture
def on_cluster(programs, tmp_path):
    """Plan for a cluster of six nodes with four CPUs, of which two are gone."""
    programs("scontrol", PARTITION)
    programs("sinfo", NODES)
    programs("sbatch")

    def plan(text=CLUSTER, site="launcher: srun --mpi=pmi2\n", out=None):
        (tmp_path / "some.yaml").write_text(text)
        (tmp_path / "site.yaml").write_text(site)
        return make_plan(tmp_path / "some.yaml", "slurm-nodbd", str(tmp_path / "site.yaml"), out)

    plan.calls = programs.calls
    return plan


def test_all_numbers_of_nodes_share_an_allocation_of_the_largest_that_can_be_had(on_cluster):
    plan = on_cluster()
    (job,) = plan.jobs
    assert (job.name, job.shapes) == ("mpi.n4x1", (Shape(1, 1), Shape(2, 2), Shape(4, 4)))
    assert len({case.id for case in job.cases}) == len(job.cases) == 12
    assert {(skip.job, skip.reason) for skip in plan.skips} == {
        ("mpi.n4x1", "6 ranks on 6 nodes: partition work has 6 nodes, 2 of them down or drained")
    }
    asked = plan.resources[job.name]
    assert (asked["nodes"], asked["tasks"], asked["mpi"]) == (4, 4, "srun")


def test_aggregators_are_asked_for_beside_the_workers(on_cluster):
    (job,) = (plan := on_cluster("algorithms: [ring, sharp_emulated]\nbytes: 8\nranks: 2\naggregators: 1\n")).jobs
    asked, (shape,) = plan.resources[job.name], job.shapes
    assert (asked["tasks"], shape.processes, job.ranks, str(shape)) == (3, 3, 2, "1x2+1")


BESIDE = "launcher: srun\naggregators: {partition: all}\n"


@pytest.fixture
def with_helpers(on_cluster, programs):
    """The same with a partition that has two hosts for aggregators, too."""
    programs("scontrol", PARTITION + PARTITION.replace("work", "all").replace("YES", "NO"))
    programs("sinfo", {"-p work": NODES, "-p all": f"a1|idle|1|aggregator\n{NODES}a2|idle|1|aggregator\n"})
    return on_cluster


def test_aggregators_beside_nodes_are_on_hosts_of_their_own(with_helpers):
    plan = with_helpers(CLUSTER + "ranks_per_node: 2\naggregators: 2", BESIDE)
    (job,) = plan.jobs
    assert (job.name, job.largest, job.apart) == ("mpi.n4x2", Shape(4, 8, 2), True)
    asked = plan.resources[job.name]
    assert (asked["nodes"], asked["tasks"], asked["slurm_partition"]) == (6, 10, "all")
    assert asked["constraint"] == "[worker*4&aggregator*2]"
    assert plan.launcher.aggregator == "aggregator"
    assert job.shapes[1].words == "4 ranks on 2 nodes and 2 aggregators apart"
    lost = "12 ranks on 6 nodes and 2 aggregators apart: partition all has 6 nodes with feature worker, 2 of them down"
    assert {skip.reason for skip in plan.skips} == {f"{lost} or drained"}


def test_more_aggregators_than_there_are_hosts_for_are_refused_with_the_reason(with_helpers):
    with pytest.raises(BadInputError, match="2 nodes and 3 aggregators apart: partition all has 2 nodes with feature"):
        with_helpers(CLUSTER.replace("[1, 2, 4, 6]", "2") + "aggregators: 3", BESIDE)


def test_a_site_that_does_not_say_where_aggregators_go_is_told_the_key(on_cluster):
    with pytest.raises(BadInputError, match="the site file does not say where aggregators go: key aggregators"):
        on_cluster(CLUSTER + "aggregators: 1")


def test_separate_scaling_is_a_job_for_each_number_of_nodes(on_cluster):
    plan = on_cluster(CLUSTER + "scaling: separate")
    assert [(job.name, job.shapes) for job in plan.jobs] == [
        ("mpi.n1x1", (Shape(1, 1),)), ("mpi.n2x1", (Shape(2, 2),)), ("mpi.n4x1", (Shape(4, 4),)),
    ]  # fmt: skip
    assert [plan.resources[job.name]["mpi"] for job in plan.jobs] == ["", "srun", "srun"]
    assert {case.id for case in plan.jobs[0].cases} == {case.id for case in plan.jobs[2].cases}


def test_numbers_of_ranks_per_node_are_allocations_of_their_own(on_cluster):
    plan = on_cluster(CLUSTER + "ranks_per_node: [1, 4, 8]")
    assert [(job.name, job.ranks) for job in plan.jobs] == [("mpi.n4x1", 4), ("mpi.n4x4", 16)]
    assert "8 ranks on 1 node: no nodes of partition work have 8 CPUs" in {skip.reason for skip in plan.skips}


def test_ranks_of_a_sweep_file_are_on_one_node_of_a_cluster(on_cluster):
    plan = on_cluster("algorithms: ring\nbytes: 8\nranks: [2, 4, 5]\n")
    assert [(job.name, job.shapes) for job in plan.jobs] == [("mpi.p2", (Shape(1, 2),)), ("mpi.p4", (Shape(1, 4),))]
    assert {skip.job for skip in plan.skips} == {"mpi.p5"}


def test_a_variant_is_a_job_with_an_environment(planned):
    plan = planned(TEXT + "variants: {plain: {}, few: {MPI4PY_RC_THREAD_LEVEL: funneled, N: 1}}")
    assert [(job.name, job.variant) for job in plan.jobs if job.ranks == 2] == [
        ("mpi.p2.plain", "plain"), ("mpi.p2.few", "few"),
    ]  # fmt: skip
    environments = {job.variant: job.environment for job in plan.jobs}
    assert environments == {"plain": {}, "few": {"MPI4PY_RC_THREAD_LEVEL": "funneled", "N": "1"}}


def test_a_variant_is_asked_of_the_library_where_it_can_be_and_of_our_schedules_everywhere(on_cluster):
    text = "algorithms: [ring, native]\nbytes: 8\nin_place: false\nnodes: [1, 2]\nranks_per_node: 2\n"
    gpus = (
        text + "devices: cuda\ntransports: [nccl]\nvariants: {nccl-nvls: {NCCL_DEBUG: WARN}, mine: {NCCL_IB_TC: 1}}\n"
    )
    plan = on_cluster(gpus)
    of_one, mine = plan.jobs
    assert {(case.algorithm, case.nodes) for case in of_one.cases} == {("native", 1), ("ring", 1), ("ring", 2)}
    assert len(mine.cases) == 4
    assert [(skip.job, skip.reason) for skip in plan.skips] == [(of_one.name, "nccl-nvls: at most 1 node")]


NVLS = "devices: cuda\ntransports: [nccl]\nalgorithms: native\nbytes: 8\nin_place: false\nnodes: [1, 2]\n"


def test_a_job_is_as_large_as_the_largest_launch_that_is_left_and_goes_on_where_it_was(on_cluster, tmp_path):
    text, out = NVLS + "variants: {default: {}, nccl-nvls: , nccl-pat: }\n", tmp_path / "out"
    plan = on_cluster(text, out=out)
    assert [(job.name, job.largest) for job in plan.jobs] == [
        ("nccl.n2x1.default", Shape(2, 2)), ("nccl.n1x1.nccl-nvls", Shape(1, 1)),
    ]  # fmt: skip
    assert [plan.resources[job.name]["nodes"] for job in plan.jobs] == [2, 1]
    assert {skip.job for skip in plan.skips} == {"nccl.n1x1.nccl-nvls", "nccl.n2x1.nccl-pat"}
    write_plan(plan, out)
    begin(plan.jobs[1], out)
    assert on_cluster(text, out=out).jobs == plan.jobs


@pytest.mark.parametrize("gpus", ["2", "h100:2"])
def test_more_ranks_than_gpus_of_a_node_are_left_out_unless_they_are_to_share(on_cluster, gpus):
    site = f"gpus_per_node: {gpus}\nlauncher: srun\n"
    text = NVLS.replace("devices: cuda", "devices: [cpu, cuda]").replace("[nccl]", "[nccl, mpi]")
    plan = on_cluster(text + "ranks_per_node: [2, 4]\n", site)
    assert {(job.name, case.device) for job in plan.jobs for case in job.cases} == {
        ("nccl-mpi.n2x2", "cuda"), ("nccl-mpi.n2x2", "cpu"), ("nccl-mpi.n2x4", "cpu"),
    }  # fmt: skip
    assert {skip.reason.partition(";")[0] for skip in plan.skips} == {
        f"{4 * nodes} ranks on {words}: more ranks on a node than its 2 GPUs (gpus_per_node of the site file)"
        for nodes, words in ((1, "1 node"), (2, "2 nodes"))
    }
    share = "{NCCL_MULTI_RANK_GPU_ENABLE: 1}"
    assert not on_cluster(text + "ranks_per_node: 4\n", f"{site}environment: {share}\n").skips
    assert not on_cluster(NVLS + f"ranks_per_node: 4\nvariants: {{mine: {share}}}\n", site).skips


def test_a_site_that_sets_what_a_variant_varies_is_refused_where_it_chooses_and_told_where_it_describes(on_cluster):
    text = NVLS + "variants: {default: {}, nccl-ring: , nccl-one-rail: , mine: {A: 1}}\n"
    with pytest.raises(BadInputError, match=r"--site: environment\.NCCL_ALGO: 'Tree' .*nccl-ring.* default would have"):
        on_cluster(text, "environment: {NCCL_ALGO: Tree}\n")
    plan = on_cluster(text, "environment: {NCCL_IB_HCA: =mlx5_1, NCCL_PROTO: LL, A: 2, B: 3}\n")
    assert plan.notes == (
        "NCCL_IB_HCA='=mlx5_1' of the site file holds in default, nccl-ring, mine, whose names do not say so",
        "NCCL_PROTO=LL of the site file holds in default, nccl-ring, nccl-one-rail, mine, whose names do not say so",
        "A=2 of the site file holds in default, nccl-ring, nccl-one-rail, whose names do not say so",
    )
    assert not on_cluster(NVLS + "variants: {nccl-ring: , nccl-tree: }", "environment: {NCCL_ALGO: Tree}\n").notes
    assert len(on_cluster(NVLS, "environment: {NCCL_ALGO: Tree}\n").notes) == 1


def test_a_site_whose_variable_wins_over_a_setting_of_communicators_is_refused(on_cluster):
    text = NVLS + "variants: {few: {communicator: {max_ctas: 4}}}\n"
    assert not on_cluster(text, "environment: {NCCL_MIN_CTAS: 2}\n").notes
    with pytest.raises(BadInputError, match=r"environment\.NCCL_MAX_CTAS: '8' .* win over max_ctas of variant few"):
        on_cluster(text, "environment: {NCCL_MAX_CTAS: 8}\n")
    with pytest.raises(BadInputError, match=r"some.yaml: variants\.few\.NCCL_MAX_CTAS: .* left out: .* max_ctas"):
        on_cluster(NVLS + "variants: {few: {NCCL_MAX_CTAS: 8, communicator: {max_ctas: 4}}}\n")


def test_a_shell_that_sets_what_a_variant_varies_is_told_like_a_site(on_cluster, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    assert [note.partition(" holds")[0] for note in on_cluster(NVLS).notes] == ["NCCL_ALGO=Tree of this shell"]
    with pytest.raises(BadInputError, match="NCCL_ALGO of this shell: 'Tree' is not valid: unset"):
        on_cluster(NVLS + "variants: {default: {}, nccl-ring: }\n")
    assert not on_cluster(NVLS, "environment: {NCCL_ALGO: Ring}\n").notes[1:], "the site's wins"
    assert not on_cluster(CLUSTER + "variants: {default: {}, mine: {NCCL_ALGO: Ring, A: 1}}\n").notes, (
        "none goes over it"
    )
    monkeypatch.setenv("UCC_CL_BASIC_TLS", "ucp")
    assert len(on_cluster(CLUSTER).notes) == len(on_cluster(NVLS).notes) == 1, "each library reads its own"


def test_a_variable_that_nccl_does_not_know_is_a_note(on_cluster):
    plan = on_cluster(NVLS + "variants: {mine: {NCCL_AGLO: Ring}}\n", "environment: {NCCL_IB_HCAS: mlx5}\n")
    assert ["NCCL_IB_HCA?" in plan.notes[0], "NCCL_ALGO? (mine)" in plan.notes[1]] == [True, True]


def test_a_variant_of_nccl_is_none_of_mpi_and_the_other_way_round(on_cluster):
    text = "algorithms: [ring, native]\nbytes: 8\nin_place: false\nnodes: [2]\n"
    plan = on_cluster(text + "variants: {plain: {}, nccl-ring: , mine: {NCCL_IB_TC: 1}}\n")
    assert [job.variant for job in plan.jobs] == ["plain"], "MPI under the name of nccl-ring would pass for it"
    assert {skip.reason for skip in plan.skips} == {
        f"{name}: what it sets is for what goes over nccl, not over mpi" for name in ("nccl-ring", "mine")
    }
    both = text + "devices: cuda\ntransports: [nccl, mpi, staged]\n"
    ucx, mixed = on_cluster(both + "variants: {ucx-one-rail: , mixed: {NCCL_IB_TC: 1, UCX_TLS: rc}}\n").jobs
    assert {case.transport for case in ucx.cases} == {"mpi", "staged"}
    assert {case.transport for case in mixed.cases} == {"nccl", "mpi", "staged"}


def test_our_schedules_are_not_measured_anew_where_only_collectives_of_the_library_change(on_cluster):
    text = "algorithms: [ring, native]\nbytes: 8\nin_place: false\nnodes: [2]\nvariants: {plain: {}, "
    gpus = text.replace("nodes", "devices: cuda\ntransports: [nccl]\nnodes")
    for names, ours in [(gpus + "nccl-tree: , nccl-sharp: ", 0), (gpus + "nccl-ll: , nccl-gdr-off: ", 2),
                        (text + "ucc-sharp-off: , hcoll-sharp-off: ", 0), (text + "ucx-one-rail: ", 1)]:  # fmt: skip
        plan = on_cluster(names + "}")
        rings = [job.variant for job in plan.jobs for case in job.cases if case.algorithm == "ring"]
        assert (rings[0], len(rings) - 1) == ("plain", ours)
    skip = on_cluster(gpus + "nccl-tree: }").skips[0]
    assert skip.reason == "nccl-tree: only the library's own collectives go by what it sets"


def test_slurm_itself_looks_at_each_job_before_it_is_submitted(on_cluster):
    on_cluster(CLUSTER + "scaling: separate")
    looked = [call for call in on_cluster.calls() if call.startswith("sbatch")]
    assert len(looked) == 3
    assert all("--test-only" in call for call in looked)


@pytest.mark.parametrize("command", [["sweep"], ["plan", "--profile", "local"]], ids=lambda command: command[0])
def test_nodes_and_sites_are_not_of_this_machine(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.yaml").write_text(CLUSTER)
    assert inside(*command, "some.yaml").complains_of("some.yaml: nodes", "[1, 2, 4, 6]", "this machine alone", "ranks")
    (tmp_path / "some.yaml").write_text(TEXT)
    assert inside(*command, "some.yaml", "--site", "hgx").complains_of("--site", "'hgx'", "profile local")
    assert [path.name for path in tmp_path.iterdir()] == ["some.yaml"]


def test_a_sweep_on_one_node_is_planned_for_a_site_anywhere_and_not_run_from_that(programs, tmp_path):
    (tmp_path / "some.yaml").write_text(TEXT)
    said = inside("plan", tmp_path / "some.yaml", "--site", "hgx", "--out", tmp_path / "out", "--json")
    assert (said.code, said.err, programs.calls()) == (0, "", [])
    plan = Plan.load(tmp_path / "out" / "plan.json")
    assert (plan.on_paper, plan.profile, plan.launcher.slurm) == (True, "slurm", True)
    with pytest.raises(BadInputError, match="one for a cluster that was asked"):
        launch(tmp_path / "out" / "plan.json", plan.jobs[0].name, tmp_path / "a.h5")


def test_a_plan_on_paper_is_not_written_over_that_of_a_sweep(on_cluster, tmp_path):
    plan, out = on_cluster(), tmp_path / "out"
    write_plan(plan, out)
    said = inside("plan", tmp_path / "some.yaml", "--out", out)
    assert said.complains_of("--out", out, "another directory, or with --profile")
    assert Plan.load(out / "plan.json") == plan
    for _ in range(2):
        assert inside("plan", tmp_path / "some.yaml", "--out", tmp_path / "paper").code == 0


def test_nodes_are_planned_on_paper_where_there_is_no_cluster(programs, tmp_path):
    (tmp_path / "some.yaml").write_text(CLUSTER + "ranks_per_node: 8\n")
    (tmp_path / "site.yaml").write_text("launcher: srun --mpi=pmix\npartition: gpu\n")
    said = inside("plan", tmp_path / "some.yaml", "--site", tmp_path / "site.yaml")
    assert (said.code, said.err, programs.calls()) == (0, "", [])
    assert "planned by the files alone" in said.out
    assert "mpi.n6x8: 16 cases on 1x8, 2x8, 4x8 and 6x8; asks for 6 nodes, " in said.out
    assert "  6x8: srun --mpi=pmix -N 6 -n 48 --ntasks-per-node=8" in said.out
    plan = Plan.load(_written(inside("plan", tmp_path / "some.yaml", "--json").out, tmp_path))
    assert plan.on_paper
    assert plan.launcher.command.startswith("srun -N")
    assert not plan.skips
    assert inside("plan", tmp_path / "some.yaml", "--site", "x").complains_of("--site", "'x'", "a file, or one of")


@pytest.mark.parametrize("name", ["gpu-nccl", "gpu-mpi", "sharp", "sharp-mpi"])
def test_sweeps_of_gpus_are_read_anywhere_with_what_each_job_sets_and_has_to_show(programs, name):
    said = inside("plan", workflows() / "config" / f"{name}.yaml")
    assert (said.code, said.err, programs.calls()) == (0, "", [])
    jobs = [part for part in said.out.split("\n\n") if " cases on " in part]
    launches = re.findall(r"^  (\w+): srun .* run --shape (\w+) ", said.out, re.MULTILINE)
    sweep = load_sweep(workflows() / "config" / f"{name}.yaml")
    assert len(jobs) == len(sweep.variants) > 2
    assert {line for shape in launches for line in shape} >= set(re.findall(r"\d+x\d+", " ".join(jobs)))
    for variant, words in zip(sweep.variants, jobs, strict=True):
        (told,) = re.findall(r"environment: (.*)", words)
        of_shell = dict(word.split("=", 1) for word in shlex.split(told) if "=" in word)
        assert of_shell == sweep.environments[variant]
        assert variant not in VARIANTS or VARIANTS[variant].demands.words in words
        control = VARIANTS[variant].control if variant in VARIANTS else None
        assert control is None or control in sweep.variants, "what is claimed is compared with its control"


@pytest.mark.parametrize(
    ("device", "site", "told"),
    [("cuda", "partition: gpu", True), ("cuda", "gpus_per_node: h100:8", False), ("cpu", "partition: work", False)],
)
def test_a_plan_of_gpus_says_where_none_are_asked_for(device, site, told, tmp_path):
    (tmp_path / "some.yaml").write_text(CLUSTER + f"devices: {device}\n")
    (tmp_path / "site.yaml").write_text(site + "\n")
    said = inside("plan", tmp_path / "some.yaml", "--site", tmp_path / "site.yaml")
    assert said.code == 0, said.err
    assert ("no GPUs are asked of Slurm" in said.out) == told


def _written(text, place):
    (place / "plan.json").write_text(text)
    return place / "plan.json"


def test_a_plan_for_a_cluster_is_read_as_it_was_written(on_cluster, tmp_path):
    plan = on_cluster(CLUSTER + "variants: {few: {N: 1}}")
    write_plan(plan, tmp_path / "out")
    assert Plan.load(tmp_path / "out" / "plan.json") == plan
    assert Job.load(tmp_path / "out" / "jobs" / "mpi.n4x1.few.json") == plan.jobs[0]


def begin(job, out):
    """Have a journal of a job there."""
    Journal(out / "raw" / f"{job.name}.h5", job).close(remove=False)


def test_what_is_begun_stays_as_it_was_planned_when_nodes_go_and_when_they_come(on_cluster, programs, tmp_path):
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


def test_what_is_begun_is_not_mixed_with_another_sweep_file(on_cluster, tmp_path):
    out = tmp_path / "out"
    first = on_cluster(out=out)
    write_plan(first, out)
    begin(first.jobs[0], out)
    with pytest.raises(BadInputError, match=r"--out: .*: mpi\.n4x1 was measured there for a sweep file that"):
        on_cluster(CLUSTER.replace("1K", "2K"), out=out)


def test_a_sweep_of_which_nothing_can_be_measured_is_refused_with_the_reason(on_cluster):
    with pytest.raises(BadInputError, match=r"nodes: \[6\] .*partition work has 6 nodes, 2 of them down or drained"):
        on_cluster(CLUSTER.replace("[1, 2, 4, 6]", "6"))
