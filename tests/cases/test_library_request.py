"""The request of environment variables and communicator settings, in one word."""

import pytest

from hpccoll.cases.library_request import forced_algorithms, forced_by_mpi, requested_by_environment

ALL, GATHER, OTHER, ANY = "all_reduce", "all_gather", "broadcast", None


@pytest.mark.parametrize(
    ("nccl_algo", "others", "collective", "requested"),
    [
        ("", "", ANY, None),
        ("Ring", "", ANY, "ring"),
        ("ring,tree", "", ALL, None),
        ("allreduce:tree;allgather:ring", "", GATHER, "ring"),
        ("allreduce:tree;allgather:ring", "", ANY, None),
        ("ring;allreduce:tree", "", ALL, "tree"),
        ("ring;allreduce:tree", "", OTHER, "ring"),
        ("allreduce:tree", "", OTHER, None),
        ("^tree", "", ANY, None),
        ("NVLS", "NCCL_COLLNET_ENABLE=1", ALL, "sharp"),
        ("CollnetChain", "NCCL_COLLNET_ENABLE=1", ALL, "collnet_chain"),
        ("CollnetChain,CollnetDirect", "NCCL_COLLNET_ENABLE=1", ALL, "sharp"),
        ("", "NCCL_COLLNET_ENABLE=1", ALL, "sharp"),
        ("", "NCCL_COLLNET_ENABLE=0", ALL, None),
        ("", "UCC_CL_BASIC_TLS=ucp,sharp", ALL, "sharp"),
        ("", "UCC_CL_BASIC_TLS=^sharp,nccl", ALL, None),
        ("", "HCOLL_ENABLE_SHARP=3", ALL, "sharp"),
        # settings of communicators are requests, too
        ("", "collnet_enable=1", ALL, "sharp"),
        ("", "NCCL_COLLNET_ENABLE=0 collnet_enable=1", ALL, None),
        # no such kernels
        ("Ring", "buffers=symmetric", ALL, "symmetric"),
        ("", "buffers=symmetric", OTHER, None),
        ("", "buffers=allocated", ALL, None),
    ],
)
def test_the_request_of_an_environment_is_one_word(nccl_algo, others, collective, requested):
    values = dict(word.split("=") for word in others.split())
    environment = {name: value for name, value in values.items() if name.isupper()}
    environment |= {"NCCL_ALGO": nccl_algo} if nccl_algo else {}
    settings = {
        name: int(value) if value.isdecimal() else value
        for name, value in values.items()
        if name.islower()
    }
    assert requested_by_environment(environment, collective, settings) == requested


def test_an_inverted_list_leaves_all_others():
    left = "collnet_direct collnet_chain nvls nvls_tree pat"
    assert forced_algorithms({"NCCL_ALGO": "^tree,ring"}) == tuple(left.split())


TUNED, CVAR = "OMPI_MCA_coll_tuned", "MPIR_CVAR"


@pytest.mark.parametrize(
    ("variables", "collective", "forced"),
    [
        ("", ALL, None),
        (f"{TUNED}_use_dynamic_rules=1 {TUNED}_allreduce_algorithm=4", ALL, "ring"),
        (f"{TUNED}_use_dynamic_rules=true {TUNED}_allreduce_algorithm=ring", ALL, "ring"),
        (f"{TUNED}_use_dynamic_rules=1 {TUNED}_allreduce_algorithm=4", GATHER, None),
        # ignore: its own decision
        (f"{TUNED}_use_dynamic_rules=1 {TUNED}_allreduce_algorithm=0", ALL, None),
        (f"{TUNED}_use_dynamic_rules=0 {TUNED}_allreduce_algorithm=4", ALL, None),
        (f"{TUNED}_allreduce_algorithm=4", ALL, None),  # without dynamic rules it has no effect
        (
            f"{TUNED}_use_dynamic_rules=1 {TUNED}_bcast_algorithm=6 {TUNED}_allreduce_algorithm=4",
            OTHER,
            "binomial",
        ),
        (
            f"{TUNED}_use_dynamic_rules=1 {TUNED}_bcast_algorithm=6 {TUNED}_allreduce_algorithm=4",
            ANY,
            None,
        ),
        (f"{CVAR}_ALLREDUCE_INTRA_ALGORITHM=recexch", ALL, "recexch"),
        (f"{CVAR}_ALLREDUCE_INTRA_ALGORITHM=auto", ALL, None),
        # ours calls the one of blocks
        (f"{CVAR}_REDUCE_SCATTER_INTRA_ALGORITHM=pairwise", "reduce_scatter", None),
        (f"{CVAR}_REDUCE_SCATTER_BLOCK_INTRA_ALGORITHM=pairwise", "reduce_scatter", "pairwise"),
    ],
)
def test_variables_of_mpi_libraries_force_an_algorithm_on_the_calls_that_they_name(
    variables, collective, forced
):
    assert forced_by_mpi(dict(word.split("=") for word in variables.split()), collective) == forced
