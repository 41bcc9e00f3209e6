"""Variants in a plan: a job each, sized by what is left, and never another than its name says."""

import pytest
import yaml
from planning_inputs import CLUSTER, TEXT, begin

from hpccoll.cases.case import Shape
from hpccoll.cases.requirements import REQUIREMENTS
from hpccoll.cases.variants import named_variants
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.sweep.paths import workflow_directory
from hpccoll.sweep.planner import make_plan, write_plan


def test_a_variant_is_a_job_with_an_environment(planned):
    plan = planned(TEXT + "variants: {plain: {}, few: {MPI4PY_RC_THREAD_LEVEL: funneled, N: 1}}")
    assert [(job.name, job.variant) for job in plan.jobs if job.ranks == 2] == [
        ("mpi.p2.plain", "plain"), ("mpi.p2.few", "few"),
    ]  # fmt: skip
    environments = {job.variant: job.environment for job in plan.jobs}
    assert environments == {"plain": {}, "few": {"MPI4PY_RC_THREAD_LEVEL": "funneled", "N": "1"}}


def test_the_nodes_of_a_variant_limit_the_library_and_our_schedules(on_cluster):
    text = "algorithms: [ring, native]\nbytes: 8\nin_place: false\nnodes: [1, 2]\nranks_per_node: 2\n"
    gpus = (
        text + "devices: cuda\ntransports: [nccl]\nvariants: {nccl-nvls: {NCCL_DEBUG: WARN}, mine: {NCCL_IB_TC: 1}}\n"
    )
    plan = on_cluster(gpus)
    of_one, mine = plan.jobs
    assert {(case.algorithm, case.nodes) for case in of_one.cases} == {("native", 1), ("ring", 1)}
    assert len(mine.cases) == 4
    assert {(skip.job, skip.reason) for skip in plan.skips} == {
        (of_one.name, "nccl-nvls: the variant takes at most 1 node")
    }


def test_between_nodes_a_variant_is_no_variant_of_a_node_over_any_transport(on_cluster):
    text = "algorithms: [ring, native]\nbytes: 8\nin_place: false\nnodes: [1, 2]\nranks_per_node: 2\ndevices: cuda\n"
    (job,) = on_cluster(text + "transports: [mpi, staged]\nvariants: {ucx-one-rail: }\n").jobs
    assert {(case.algorithm, case.transport, case.nodes) for case in job.cases} == {
        (algorithm, transport, 2) for algorithm in ("ring", "native") for transport in ("mpi", "staged")
    }


NVLS = "devices: cuda\ntransports: [nccl]\nalgorithms: native\nbytes: 8\nin_place: false\nnodes: [1, 2]\n"


def test_a_job_is_as_large_as_the_largest_launch_that_is_left_and_goes_on_where_it_was(on_cluster, tmp_path):
    text = NVLS + "ranks_per_node: 2\nvariants: {default: {}, nccl-nvls: , nccl-pat: }\n"
    out = tmp_path / "out"
    plan = on_cluster(text, out=out)
    assert [(job.name, job.largest) for job in plan.jobs] == [
        ("nccl.n2x2.default", Shape(2, 4)), ("nccl.n1x2.nccl-nvls", Shape(1, 2)),
    ]  # fmt: skip
    assert [plan.resources[job.name]["nodes"] for job in plan.jobs] == [2, 1]
    assert {skip.job for skip in plan.skips} == {"nccl.n1x2.nccl-nvls", "nccl.n2x2.nccl-pat"}
    write_plan(plan, out)
    begin(plan.jobs[1], out)
    assert on_cluster(text, out=out).jobs == plan.jobs


def test_nodes_of_one_nvlink_domain_are_one_node_of_nccl_and_several_of_mpi(on_cluster):
    text = NVLS.replace("[1, 2]", "[2, 4]").replace("[nccl]", "[nccl, mpi]") + "ranks_per_node: 4\n"
    text = text.replace("algorithms: native", "algorithms: [native, ring]")
    text += "variants: {nccl-nvls: , nccl-nvls-tree: , nccl-gdr: , ucx-one-rail: }\n"

    def planned_nodes(site):
        jobs = on_cluster(text, f"launcher: srun\n{site}").jobs
        assert {case.algorithm for job in jobs for case in job.cases if "nvls" not in job.variant} == {"native", "ring"}
        return {job.variant: {case.nodes for case in job.cases} for job in jobs}

    both = {2, 4}
    assert planned_nodes("") == {"nccl-nvls-tree": both, "nccl-gdr": both, "ucx-one-rail": both}
    assert planned_nodes("nvlink_nodes: 2") == {
        "nccl-nvls": {2}, "nccl-nvls-tree": {4}, "nccl-gdr": {4}, "ucx-one-rail": both,
    }  # fmt: skip
    assert planned_nodes("nvlink_nodes: 18") == {"nccl-nvls": both, "ucx-one-rail": both}


@pytest.mark.parametrize("gpus", ["2", "h100:2"])
def test_more_ranks_than_gpus_of_a_node_are_left_out_over_nccl_unless_they_are_to_share(on_cluster, gpus):
    site = f"gpus_per_node: {gpus}\nlauncher: srun\n"
    text = NVLS.replace("devices: cuda", "devices: [cpu, cuda]").replace("[nccl]", "[nccl, mpi]")
    plan = on_cluster(text + "ranks_per_node: [2, 4]\n", site)
    assert {(job.name, case.device, case.transport) for job in plan.jobs for case in job.cases} == {
        ("nccl-mpi.n2x2", "cuda", "nccl"), ("nccl-mpi.n2x2", "cuda", "mpi"), ("nccl-mpi.n2x2", "cpu", "mpi"),
        ("nccl-mpi.n2x4", "cuda", "mpi"), ("nccl-mpi.n2x4", "cpu", "mpi"),
    }  # fmt: skip
    assert {".nccl.cuda." in skip.case for skip in plan.skips} == {True}
    assert {skip.reason.partition(";")[0] for skip in plan.skips} == {
        f"{4 * nodes} ranks on {words}: more ranks on a node than its 2 GPUs (gpus_per_node of the site file)"
        for nodes, words in ((1, "1 node"), (2, "2 nodes"))
    }
    with pytest.raises(UnusableError) as error:
        on_cluster(NVLS.replace("8\nin", "[8, 1K]\nin") + "ranks_per_node: 4\nvariants: {nccl-ring: }\n", site)
    assert str(error.value).endswith(
        "none of its 4 cases can be measured: 4 ranks on 1 node: more ranks on a node than its 2 GPUs (gpus_per_node "
        "of the site file); valid over nccl: at most 2 ranks_per_node, or NCCL_MULTI_RANK_GPU_ENABLE=1 to share GPUs "
        "(and 1 more reason)"
    )
    share = "{NCCL_MULTI_RANK_GPU_ENABLE: 1}"
    assert not on_cluster(text + "ranks_per_node: 4\n", f"{site}environment: {share}\n").skips
    assert not on_cluster(NVLS + f"ranks_per_node: 4\nvariants: {{mine: {share}}}\n", site).skips


def test_a_variable_of_a_site_that_a_variant_sets_is_refused_if_it_selects_and_noted_if_it_describes(on_cluster):
    text = NVLS + "variants: {default: {}, nccl-ring: , nccl-one-rail: , mine: {A: 1}}\n"
    with pytest.raises(
        BadInputError, match=r"--site .*site\.yaml: environment\.NCCL_ALGO: 'Tree' .*nccl-ring.*default"
    ):
        on_cluster(text, "environment: {NCCL_ALGO: Tree}\n")
    plan = on_cluster(text, "environment: {NCCL_IB_HCA: =mlx5_1, NCCL_PROTO: LL, A: 2, B: 3}\n")
    assert plan.notes == (
        "NCCL_IB_HCA='=mlx5_1' of the site file also applies to default, nccl-ring, mine; their names do not show it",
        (
            "NCCL_PROTO=LL of the site file also applies to default, nccl-ring, nccl-one-rail, mine; "
            "their names do not show it"
        ),
        "A=2 of the site file also applies to default, nccl-ring, nccl-one-rail; their names do not show it",
    )
    assert not on_cluster(NVLS + "variants: {nccl-ring: , nccl-tree: }", "environment: {NCCL_ALGO: Tree}\n").notes
    assert len(on_cluster(NVLS, "environment: {NCCL_ALGO: Tree}\n").notes) == 1


@pytest.mark.parametrize("net", ["Libfabric", "SOCKET"])
def test_variables_of_infiniband_are_left_out_if_nccl_must_use_another_network(on_cluster, net):
    variants = "default: {}, nccl-one-rail: , nccl-traffic-class: , both: {NCCL_IB_TC: 1, NCCL_ALGO: Ring}, gdr: {A: 1}"
    plan = on_cluster(NVLS + f"variants: {{{variants}}}\n", f"environment: {{NCCL_NET: {net}}}\n")
    assert [job.variant for job in plan.jobs] == ["default", "both", "gdr"]
    words = f"over InfiniBand and RoCE only, and NCCL_NET={net} is neither"
    assert {skip.reason for skip in plan.skips} >= {
        f"nccl-one-rail: NCCL reads NCCL_IB_HCA {words}", f"nccl-traffic-class: NCCL reads NCCL_IB_TC {words}",
    }  # fmt: skip
    both = on_cluster(NVLS + f"variants: {{{variants}}}\n", "environment: {NCCL_NET: IB}\n")
    assert {"nccl-one-rail", "nccl-traffic-class"} < {job.variant for job in both.jobs}
    own = on_cluster(NVLS + "variants: {mine: {NCCL_IB_TC: 1, NCCL_NET: IB}}\n", f"environment: {{NCCL_NET: {net}}}\n")
    assert [job.variant for job in own.jobs] == ["mine"]


def test_a_site_whose_variable_wins_over_a_setting_of_communicators_is_refused(on_cluster):
    text = NVLS + "variants: {few: {communicator: {max_ctas: 4}}}\n"
    assert not on_cluster(text, "environment: {NCCL_MIN_CTAS: 2}\n").notes
    with pytest.raises(BadInputError, match=r"environment\.NCCL_MAX_CTAS: '8' .* override max_ctas of variant few"):
        on_cluster(text, "environment: {NCCL_MAX_CTAS: 8}\n")
    with pytest.raises(BadInputError, match=r"some.yaml: variants\.few\.NCCL_MAX_CTAS: .* left out: .* max_ctas"):
        on_cluster(NVLS + "variants: {few: {NCCL_MAX_CTAS: 8, communicator: {max_ctas: 4}}}\n")


def test_a_variable_of_the_shell_that_a_variant_sets_is_treated_like_one_of_a_site(on_cluster, monkeypatch):
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    assert [note.partition(" also")[0] for note in on_cluster(NVLS).notes] == ["NCCL_ALGO=Tree of this shell"]
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
        f"{name}: its settings affect cases over nccl, not over mpi" for name in ("nccl-ring", "mine")
    }
    both = text + "devices: cuda\ntransports: [nccl, mpi, staged]\n"
    ucx, mixed = on_cluster(both + "variants: {ucx-one-rail: , mixed: {NCCL_IB_TC: 1, UCX_TLS: rc}}\n").jobs
    assert {case.transport for case in ucx.cases} == {"mpi", "staged"}
    assert {case.transport for case in mixed.cases} == {"nccl", "mpi", "staged"}


def test_our_schedules_are_not_measured_anew_where_only_collectives_of_the_library_change(on_cluster):
    text = "algorithms: [ring, native]\nbytes: 8\nin_place: false\nnodes: [2]\nvariants: {plain: {}, "
    gpus = text.replace("nodes", "devices: cuda\ntransports: [nccl]\nnodes")
    for names, ours in [(gpus + "nccl-tree: , nccl-sharp: , nccl-ll: , nccl-ll128: , nccl-simple: ", 0),
                        (gpus + "mine: {NCCL_PROTO: LL}, nccl-gdr-off: ", 1),
                        (text + "ucc-sharp-off: , hcoll-sharp-off: ", 0), (text + "ucx-one-rail: ", 1)]:  # fmt: skip
        plan = on_cluster(names + "}")
        rings = [job.variant for job in plan.jobs for case in job.cases if case.algorithm == "ring"]
        assert (rings[0], len(rings) - 1) == ("plain", ours)
    skip = on_cluster(gpus + "nccl-tree: }").skips[0]
    assert skip.reason == "nccl-tree: the variant affects the library's own collectives only"


def test_a_plan_says_if_nccl4py_is_missing_where_ranks_have_the_packages_of_this_program(on_cluster, monkeypatch):
    text = NVLS + "ranks_per_node: 2\nvariants: {nccl-nvls: , nccl-symmetric: , nccl-symmetric-off: }\n"
    reason = "nccl4py not found: pip install 'hpccoll[nccl4py]'"
    monkeypatch.setitem(REQUIREMENTS, "nccl4py", lambda _: reason)
    jobs = "nccl.n1x2.nccl-symmetric and nccl.n2x2.nccl-symmetric-off"
    assert on_cluster(text).notes == (f"all cases over nccl of {jobs} will be skipped: {reason}",)
    assert not on_cluster(text, "container: {runtime: apptainer, image: a.sif}\n").notes, "an image has its own"
    assert not on_cluster(NVLS + "ranks_per_node: 2\nvariants: {nccl-nvls: }\n").notes
    monkeypatch.setitem(REQUIREMENTS, "nccl4py", lambda _: None)
    assert not on_cluster(text).notes


def test_training_steps_are_measured_in_variants_of_kernels_that_their_collectives_have(on_cluster):
    text = "devices: cuda\ntransports: [nccl]\nnodes: [2]\nranks_per_node: 2\n"
    text += "algorithms: [native, ring]\nworkloads: [{model: resnet50}]\nvariants: {plain: {}, "
    plan = on_cluster(f"{text}nccl-ring: , nccl-simple: , nccl-nvls-off: , nccl-p2p-ll-off: , nccl-gdr: }}\n")
    algorithms = {job.variant: {case.algorithm for case in job.cases} for job in plan.jobs}
    both, native = {"native", "ring"}, {"native"}
    assert algorithms == {
        "plain": both, "nccl-ring": native, "nccl-simple": native, "nccl-nvls-off": native, "nccl-gdr": both,
        "nccl-p2p-ll-off": both,  # stages of a pipeline send messages
    }  # fmt: skip


@pytest.mark.parametrize(
    ("variant", "collective", "alone", "with_more"),
    [
        ("nccl-ring", "all_to_all", False, True), ("nccl-p2p-ll-off", "all_reduce", False, True),
        ("nccl-nvls-off", "broadcast", False, True), ("nccl-sharp-off", "broadcast", False, True),
        ("nccl-sharp-off", "barrier", True, True), ("nccl-nvls-off", "barrier", True, True),
        ("nccl-sharp", "broadcast", False, False), ("nccl-pat", "all_reduce", False, False),
    ],
)  # fmt: skip
def test_what_a_variant_cannot_change_is_left_out_unless_a_variable_is_added_to_it(
    on_cluster, variant, collective, alone, with_more
):
    text = (
        f"devices: cuda\ntransports: [nccl]\nnodes: [2]\nranks_per_node: 2\ncollectives: [all_gather, {collective}]\n"
    )
    text += "algorithms: native\nbytes: 64\nin_place: false\nvariants: "
    for added, measured in (("", alone), ("{NCCL_BUFFSIZE: 8388608}", with_more)):
        plan = on_cluster(f"{text}{{{variant}: {added}, default: {{}}}}\n")
        cases = {(job.variant, case.collective) for job in plan.jobs for case in job.cases}
        assert ((variant, collective) in cases) == measured


KERNELS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "barrier")
"""The collectives for which NCCL has kernels of its own (ncclFunc_t in src/include/nccl_common.h of 2.28.9)."""


def of_kernels(case, _ranks_per_node):
    return case.algorithm == "native" and case.collective in KERNELS


def between_nodes(case, _ranks_per_node):
    return case.nodes > 1


def of_messages(case, ranks_per_node):
    """Whether a message in a node may take LL, up to 16 KiB in each of 64 channels; unequal blocks may be small."""
    if case.collective == "all_to_all_v":
        return ranks_per_node > 1
    sends = case.algorithm != "native" or case.collective not in KERNELS
    messages = 128 if case.algorithm == "double_binary_tree" else case.ranks  # it has up to 64 channels of two trees
    return sends and ranks_per_node > 1 and case.bytes / messages <= 64 * 16384


def of_all(_case, _ranks_per_node):
    return True


REACH = {
    **dict.fromkeys(
        ("NCCL_ALGO", "NCCL_PROTO", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "collnet_enable", "cta_policy"),
        of_kernels,
    ),
    **dict.fromkeys(
        ("NCCL_NET", "NCCL_NET_GDR_LEVEL", "NCCL_IB_HCA", "NCCL_IB_TC", "NCCL_CROSS_NIC", "traffic_class"),
        between_nodes,
    ),
    **dict.fromkeys(("NCCL_SHARP_DISABLE", "SHARP_COLL_LOG_LEVEL"), lambda *_: False),  # next to other settings
    "NCCL_P2P_LL_THRESHOLD": of_messages,
    "buffers": of_all,
}
"""For each setting of the variants of NCCL, whether it can change a case."""


def unchanged(plan):
    """Return the cases of a plan that no setting of their variant can change."""
    return {
        (job.variant, case.id)
        for job in plan.jobs
        for case in job.cases
        if job.sets and not any(REACH[name](case, case.ranks // case.nodes) for name in job.sets)
    }


@pytest.mark.parametrize("nodes", [[1], [1, 2]])
def test_the_sweep_of_nccl_has_no_case_that_its_variant_does_not_change_and_no_plan_twice(programs, tmp_path, nodes):
    sweep = yaml.safe_load((workflow_directory() / "config" / "gpu-nccl.yaml").read_text())
    (tmp_path / "gpus.yaml").write_text(yaml.safe_dump({**sweep, "nodes": nodes, "bytes": ["4K", "1M", "256M"]}))
    plan = make_plan(tmp_path / "gpus.yaml", None)
    assert not programs.calls()
    assert not unchanged(plan)
    algorithms = {job.variant: {(case.algorithm, case.nodes) for case in job.cases} for job in plan.jobs}
    ours = {("ring", 1), ("double_binary_tree", 1)}
    assert algorithms["default"] >= {("native", 1), *ours}
    assert {variant for variant, names in algorithms.items() if ours <= names} == {
        "default", "nccl-p2p-ll-off", "nccl-symmetric", "nccl-symmetric-off",
    }  # fmt: skip
    assert not any(("hierarchical", 1) in names for names in algorithms.values())
    assert {skip.job for skip in plan.skips if skip.reason.startswith("the same plan as ring on 1x8")} == {
        job.name for job in plan.jobs if ours <= algorithms[job.variant]
    }


def test_no_named_variant_of_nccl_has_a_case_that_it_does_not_change(on_cluster):
    variants = [name for name, one in named_variants().items() if one.transport == "nccl"]
    text = "devices: cuda\ntransports: [nccl]\ncollectives: all\nalgorithms: [native, ring]\nbytes: [1K, 64M]\n"
    text += f"in_place: false\nnodes: [1, 2]\nranks_per_node: [1, 4]\nvariants: {{{': , '.join(variants)}: }}\n"
    plan = on_cluster(text)
    assert {job.variant for job in plan.jobs} == {*variants}
    assert not unchanged(plan)
