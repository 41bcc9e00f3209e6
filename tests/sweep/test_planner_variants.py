"""Variants in a plan: a job each, sized by what is left, and never another than its name says."""

from math import prod

import pytest
import yaml
from planning_inputs import CLUSTER, begin

from hpccoll.cases.case import Shape
from hpccoll.cases.library_algorithms import algorithms_by_word
from hpccoll.cases.requirements import REQUIREMENTS
from hpccoll.cases.variants import named_variants
from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.sweep import execution_site
from hpccoll.sweep.paths import workflow_directory
from hpccoll.sweep.planner import write_plan

SMALL = "algorithms: [ring, native]\nbytes: 8\nin_place: false\nranks_per_node: 2\n"
GPUS = SMALL + "devices: cuda\ntransports: [nccl]\n"
ALL_GPU = SMALL + "devices: cuda\ntransports: [nccl, mpi, staged]\nnodes: [2]\n"
TRAINING = (
    "devices: cuda\ntransports: [nccl]\nnodes: [2]\nranks_per_node: 2\nalgorithms: [native, ring]\n"
)
TRAINING += "workloads: [{model: resnet50}]\n"
BOTH, NATIVE = "native ring nccl 2", "native nccl 2"


@pytest.mark.parametrize(
    ("text", "variants", "left", "reasons"),
    [
        (  # the nodes of a variant limit the library and our schedules, over any transport
            GPUS + "nodes: [1, 2]\n",
            "nccl-nvls: {NCCL_DEBUG: WARN}, mine: {NCCL_IB_TC: 1}",
            {"nccl-nvls": "native ring nccl 1", "mine": "native ring nccl 1 2"},
            {"nccl-nvls: the variant takes at most 1 node"},
        ),
        (  # MPI under the name of nccl-ring would pass for it
            SMALL + "nodes: [2]\n",
            "plain: {}, nccl-ring: , mine: {NCCL_IB_TC: 1}",
            {"plain": "native ring mpi 2"},
            {
                f"{name}: its settings affect cases over nccl, not over mpi"
                for name in ("nccl-ring", "mine")
            },
        ),
        (
            ALL_GPU,
            "ucx-one-rail: , ucc-sharp-off: , mixed: {NCCL_IB_TC: 1, UCX_TLS: rc}",
            {
                "ucx-one-rail": "native ring mpi staged 2",
                "ucc-sharp-off": "native mpi staged 2",
                "mixed": "native ring mpi nccl staged 2",
            },
            set(),
        ),
        (  # our schedules are not measured anew where only collectives of the library change
            GPUS + "nodes: [2]\n",
            "plain: {}, nccl-tree: , nccl-ring: {NCCL_BUFFSIZE: 1}, mine: {NCCL_PROTO: LL}, nccl-gdr-off: ",
            {
                "plain": BOTH,
                "nccl-tree": NATIVE,
                "nccl-ring": BOTH,
                "mine": NATIVE,
                "nccl-gdr-off": BOTH,
            },
            {"nccl-tree: the variant affects the library's own collectives only"},
        ),
        (  # stages of a pipeline send messages
            TRAINING,
            "plain: {}, nccl-ring: , nccl-simple: , nccl-nvls-off: , nccl-p2p-ll-off: , nccl-gdr: ",
            {"plain": BOTH, "nccl-p2p-ll-off": BOTH, "nccl-gdr": BOTH}
            | dict.fromkeys(("nccl-ring", "nccl-simple", "nccl-nvls-off"), NATIVE),
            set(),
        ),
    ],
)
def test_a_variant_has_the_cases_that_it_can_change(on_cluster, text, variants, left, reasons):
    plan = on_cluster(f"{text}variants: {{{variants}}}\n")
    found = {
        job.variant: {(case.algorithm, case.transport, case.nodes) for case in job.cases}
        for job in plan.jobs
    }
    properties = {
        variant: (map(str, sorted({*map(str, values)})) for values in zip(*cases, strict=True))
        for variant, cases in found.items()
    }
    assert {
        variant: " ".join(map(" ".join, values)) for variant, values in properties.items()
    } == left
    assert all(
        len(cases) == prod(len({*values}) for values in zip(*cases, strict=True))
        for cases in found.values()
    )
    assert reasons <= {skip.reason for skip in plan.skips}


NVLS = "devices: cuda\ntransports: [nccl]\nalgorithms: native\nbytes: 8\nin_place: false\nnodes: [1, 2]\n"


def test_a_job_is_as_large_as_the_largest_launch_that_is_left_and_goes_on_where_it_was(
    on_cluster, tmp_path
):
    text = NVLS + "ranks_per_node: 2\nvariants: {default: {}, nccl-nvls: , nccl-pat: }\n"
    out = tmp_path / "out"
    plan = on_cluster(text, out=out)
    assert [(job.name, job.largest) for job in plan.jobs] == [
        ("nccl.n2x2.default", Shape(2, 4)),
        ("nccl.n1x2.nccl-nvls", Shape(1, 2)),
    ]
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
        assert {
            case.algorithm for job in jobs for case in job.cases if "nvls" not in job.variant
        } == {"native", "ring"}
        return {job.variant: {case.nodes for case in job.cases} for job in jobs}

    both = {2, 4}
    assert planned_nodes("") == {"nccl-nvls-tree": both, "nccl-gdr": both, "ucx-one-rail": both}
    assert planned_nodes("nvlink_nodes: 2") == {
        "nccl-nvls": {2},
        "nccl-nvls-tree": {4},
        "nccl-gdr": {4},
        "ucx-one-rail": both,
    }
    assert planned_nodes("nvlink_nodes: 18") == {"nccl-nvls": both, "ucx-one-rail": both}


def test_more_ranks_than_gpus_of_a_node_are_left_out_over_nccl_unless_they_are_to_share(on_cluster):
    site = "gpus_per_node: h100:2\nlauncher: srun\n"
    text = NVLS.replace("devices: cuda", "devices: [cpu, cuda]").replace("[nccl]", "[nccl, mpi]")
    plan = on_cluster(text + "ranks_per_node: [2, 4]\n", site)
    assert {(job.name, case.device, case.transport) for job in plan.jobs for case in job.cases} == {
        ("nccl-mpi.n2x2", "cuda", "nccl"), ("nccl-mpi.n2x2", "cuda", "mpi"), ("nccl-mpi.n2x2", "cpu", "mpi"),
        ("nccl-mpi.n2x4", "cuda", "mpi"), ("nccl-mpi.n2x4", "cpu", "mpi"),
    }  # fmt: skip
    assert {".nccl.cuda." in skip.case for skip in plan.skips} == {True}
    words = r"none of its 2 cases .* at most 2 ranks_per_node, or NCCL_MULTI_RANK_GPU_ENABLE=1 .* \(and 1 more reason\)"
    with pytest.raises(UnusableError, match=words):
        on_cluster(NVLS + "ranks_per_node: 4\nvariants: {nccl-ring: }\n", site)
    share = "{NCCL_MULTI_RANK_GPU_ENABLE: 1}"
    assert not on_cluster(text + "ranks_per_node: 4\n", f"{site}environment: {share}\n").skips
    assert not on_cluster(NVLS + f"ranks_per_node: 4\nvariants: {{mine: {share}}}\n", site).skips


SETTING = "default: {}, nccl-ring: , nccl-one-rail: , mine: {A: 1}"


@pytest.mark.parametrize(
    ("text", "variants", "site", "notes"),
    [
        (
            NVLS,
            SETTING,
            "NCCL_IB_HCA: =mlx5_1, NCCL_PROTO: LL, A: 2, B: 3",
            [
                ("NCCL_IB_HCA='=mlx5_1'", "default, nccl-ring, mine;"),
                ("NCCL_PROTO=LL", "default, nccl-ring, nccl-one"),
                ("A=2", "default, nccl-ring, nccl-one-rail;"),
            ],
        ),
        (NVLS, "nccl-ring: , nccl-tree: ", "NCCL_ALGO: Tree", []),  # all of them set it
        (
            NVLS,
            "mine: {NCCL_AGLO: Ring}",
            "NCCL_IB_HCAS: mlx5",
            [("NCCL_IB_HCA?", ""), ("NCCL_ALGO? (mine)", "")],
        ),
        # no case over NCCL
        (CLUSTER, "default: {}, mine: {NCCL_ALGO: Ring, A: 1}", "NCCL_ALGO: Tree", []),
        (CLUSTER, "", "UCC_CL_BASIC_TLS: ucp", [("UCC_CL_BASIC_TLS=ucp", "every job")]),
        (
            CLUSTER,
            "",
            "MPIR_CVAR_BCAST_INTRA_ALGORITHM: tree",
            [("BCAST_INTRA_ALGORITHM=tree", "every job")],
        ),
    ],
)
@pytest.mark.parametrize("where", ["site", "shell"])
def test_a_variable_that_describes_and_that_some_variants_inherit_is_a_note(
    on_cluster, monkeypatch, where, text, variants, site, notes
):
    if where == "shell":
        for name, value in yaml.safe_load(f"{{{site}}}").items():
            monkeypatch.setenv(name, str(value))
    names = f"variants: {{{variants}}}\n" if variants else ""
    plan = on_cluster(
        text + names, f"environment: {{{site}}}\n" if where == "site" else "launcher: srun\n"
    )
    # the shell's own are not doubted
    notes = [each for each in notes if where == "site" or "HCA?" not in each[0]]
    assert len(plan.notes) == len(notes)
    assert all(
        variable in note and names in note
        for (variable, names), note in zip(notes, plan.notes, strict=True)
    )


def test_a_variable_that_selects_and_that_some_variants_inherit_is_refused(on_cluster, monkeypatch):
    text = NVLS + f"variants: {{{SETTING}}}\n"
    with pytest.raises(
        BadInputError, match=r"--site .*: environment\.NCCL_ALGO: 'Tree' .*nccl-ring.*default"
    ):
        on_cluster(text, "environment: {NCCL_ALGO: Tree}\n")
    monkeypatch.setenv("NCCL_ALGO", "Tree")
    with pytest.raises(BadInputError, match="NCCL_ALGO of this shell: 'Tree' is not valid: unset"):
        on_cluster(text)
    monkeypatch.setenv("OMPI_MCA_coll_tuned_allreduce_algorithm", "3")
    with pytest.raises(
        BadInputError, match="allreduce_algorithm of this shell: '3' is not valid: unset: variant"
    ):
        on_cluster(CLUSTER + "variants: {default: {}, openmpi-ring: }\n")


@pytest.mark.parametrize(
    ("table", "variant"),
    [
        ("OMPI_MCA_coll_tuned_dynamic_rules_filename", "openmpi-ring"),
        ("MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE", "mpich-ring"),
        ("MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE", "mpich-ring"),
    ],
)
def test_a_tuning_table_of_the_shell_is_refused_beside_forced_algorithms_and_else_a_note(
    on_cluster, monkeypatch, table, variant
):
    monkeypatch.setenv(table, "/tables/t")
    (note,) = on_cluster(CLUSTER).notes
    assert f"{table}=/tables/t of this shell" in note
    with pytest.raises(
        BadInputError,
        match=rf"{table} of this shell: '/tables/t' .*default, beside variant {variant}",
    ):
        on_cluster(CLUSTER + f"variants: {{default: {{}}, {variant}: }}\n")


def test_our_schedules_are_not_measured_again_with_a_table_of_the_library(on_cluster):
    table = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"
    plan = on_cluster(CLUSTER + f"variants: {{default: {{}}, mine: {{{table}: /tables/t}}}}\n")
    assert {case.algorithm for job in plan.jobs if job.variant == "mine" for case in job.cases} == {
        "native"
    }


def test_variables_of_infiniband_are_left_out_if_nccl_must_use_another_network(on_cluster):
    net = "SOCKET"
    variants = "default: {}, nccl-one-rail: , nccl-traffic-class: , both: {NCCL_IB_TC: 1, NCCL_ALGO: Ring}, gdr: {A: 1}"
    plan = on_cluster(NVLS + f"variants: {{{variants}}}\n", f"environment: {{NCCL_NET: {net}}}\n")
    assert [job.variant for job in plan.jobs] == ["default", "both", "gdr"]
    words = f"over InfiniBand and RoCE only, and NCCL_NET={net} is neither"
    assert {skip.reason for skip in plan.skips} >= {
        f"nccl-one-rail: NCCL reads NCCL_IB_HCA {words}",
        f"nccl-traffic-class: NCCL reads NCCL_IB_TC {words}",
    }
    own = on_cluster(
        NVLS + "variants: {mine: {NCCL_IB_TC: 1, NCCL_NET: IB}}\n",
        f"environment: {{NCCL_NET: {net}}}\n",
    )
    assert [job.variant for job in own.jobs] == ["mine"]


def test_a_site_whose_variable_wins_over_a_setting_of_communicators_is_refused(on_cluster):
    text = NVLS + "variants: {few: {communicator: {max_ctas: 4}}}\n"
    assert not on_cluster(text, "environment: {NCCL_MIN_CTAS: 2}\n").notes
    with pytest.raises(
        BadInputError, match=r"environment\.NCCL_MAX_CTAS: '8' .* override max_ctas of variant few"
    ):
        on_cluster(text, "environment: {NCCL_MAX_CTAS: 8}\n")
    with pytest.raises(
        BadInputError, match=r"some.yaml: variants\.few\.NCCL_MAX_CTAS: .* left out: .* max_ctas"
    ):
        on_cluster(text.replace("few: {", "few: {NCCL_MAX_CTAS: 8, "))


def test_a_plan_says_if_nccl4py_is_missing_where_ranks_have_the_packages_of_this_program(
    on_cluster, monkeypatch
):
    text = (
        NVLS
        + "ranks_per_node: 2\nvariants: {nccl-nvls: , nccl-symmetric: , nccl-symmetric-off: }\n"
    )
    reason = "nccl4py not found: pip install 'hpccoll[nccl4py]'"
    monkeypatch.setitem(REQUIREMENTS, "nccl4py", lambda _: reason)
    jobs = "nccl.n1x2.nccl-symmetric and nccl.n2x2.nccl-symmetric-off"
    assert on_cluster(text).notes == (f"all cases over nccl of {jobs} will be skipped: {reason}",)
    assert not on_cluster(text, "container: {runtime: apptainer, image: a.sif}\n").notes, (
        "an image has its own"
    )
    assert not on_cluster(NVLS + "ranks_per_node: 2\nvariants: {nccl-nvls: }\n").notes
    monkeypatch.setitem(REQUIREMENTS, "nccl4py", lambda _: None)
    assert not on_cluster(text).notes


KERNELS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "barrier")
"""The collectives for which NCCL has kernels of its own (ncclFunc_t in src/include/nccl_common.h of 2.28.9)."""
OF_KERNELS = [
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NVLS_ENABLE",
    "NCCL_COLLNET_ENABLE",
    "collnet_enable",
    "cta_policy",
]
OF_NETWORKS = [
    "NCCL_NET",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_IB_HCA",
    "NCCL_IB_TC",
    "NCCL_CROSS_NIC",
    "traffic_class",
]


def can_change(name, case):
    """Return whether a setting of the variants of NCCL can change a case."""
    kernel = case.algorithm == "native" and case.collective in KERNELS
    if name in OF_KERNELS:
        return kernel
    if name in OF_NETWORKS:
        return case.nodes > 1
    if (
        name == "NCCL_P2P_LL_THRESHOLD"
    ):  # of messages in a node up to 16 KiB in each of 64 channels, if blocks are equal
        small = case.collective == "all_to_all_v" or case.bytes / case.ranks <= 64 * 16384
        return small and not kernel and case.ranks > case.nodes
    return name == "buffers"  # the others come next to settings that can


def test_no_named_variant_of_nccl_has_a_case_that_it_does_not_change(on_cluster):
    variants = [name for name, one in named_variants().items() if one.transport == "nccl"]
    text = "devices: cuda\ntransports: [nccl]\ncollectives: all\nalgorithms: [native, ring]\nbytes: [1K, 64M]\n"
    text += f"in_place: false\nnodes: [1, 2]\nranks_per_node: [1, 4]\nvariants: {{{': , '.join(variants)}: }}\n"
    jobs = on_cluster(text).jobs
    assert {job.variant for job in jobs} == {*variants}
    unchanged = [
        (job.variant, case.id)
        for job in jobs
        for case in job.cases
        if job.sets and not any(can_change(name, case) for name in job.sets)
    ]
    assert unchanged == []


LIBRARIES = workflow_directory() / "config" / "libraries.yaml"


@pytest.mark.parametrize(
    ("version", "library", "others"),
    [
        (  # those of later versions, of two ranks, and of other collectives
            "Open MPI v5.0.11, package",
            "openmpi",
            "direct-messaging allgather_reduce two_proc double_ring tree binary in-order_binary linear_nb",
        ),
        (  # with a rank on each node, in host memory, and with separate buffers
            "MPICH Version:      5.0.2",
            "mpich",
            "smp ccl pairwise_sendrecv_replace k_dissemination reduce_scatter_gather",
        ),
    ],
)
def test_the_algorithms_of_the_library_are_compared_with_its_default(
    on_cluster, monkeypatch, version, library, others
):
    monkeypatch.setattr(execution_site, "mpi_version", lambda: version)
    plan = on_cluster(LIBRARIES.read_text())
    measured = {job.variant: {case.collective for case in job.cases} for job in plan.jobs}
    assert measured.pop("default") == {
        "all_reduce",
        "broadcast",
        "all_gather",
        "all_to_all",
        "reduce_scatter",
    }
    assert measured.keys() == {
        f"{library}-{word}" for word in algorithms_by_word(library).keys() - {*others.split()}
    }
    assert measured[f"{library}-ring"] == {"all_reduce", "all_gather"}
    assert max(case.bytes for job in plan.jobs for case in job.cases) == 4 << 20


def test_jobs_that_may_load_another_library_find_out_themselves(on_cluster, monkeypatch):
    monkeypatch.setattr(execution_site, "mpi_version", lambda: "MPICH Version:      5.0.2")
    text = "algorithms: native\nbytes: 64\nin_place: false\nnodes: 2\nvariants: {openmpi-r*: }\n"
    with pytest.raises(UnusableError, match="the MPI library is not Open MPI"):
        on_cluster(text)
    plan = on_cluster(text, "launcher: srun --mpi=pmi2\nmodules: [openmpi]\n")
    assert {job.variant for job in plan.jobs} == {
        "openmpi-rabenseifner",
        "openmpi-recursive_doubling",
        "openmpi-ring",
    }
