"""The request of environment variables and communicator settings, in one word."""

import pytest

from hpccoll.cases.requested_algorithm import forced_algorithms, requested_by_environment


@pytest.mark.parametrize(
    ("environment", "collective", "requested"),
    [
        ({}, None, None),
        ({"NCCL_ALGO": "tree"}, "all_reduce", "tree"),
        ({"NCCL_ALGO": "Ring"}, None, "ring"),
        ({"NCCL_ALGO": "ring,tree"}, "all_reduce", None),
        ({"NCCL_ALGO": "allreduce:tree;allgather:ring"}, "all_reduce", "tree"),
        ({"NCCL_ALGO": "allreduce:tree;allgather:ring"}, "all_gather", "ring"),
        ({"NCCL_ALGO": "allreduce:tree;allgather:ring"}, None, None),
        ({"NCCL_ALGO": "ring;allreduce:tree"}, "all_reduce", "tree"),
        ({"NCCL_ALGO": "ring;allreduce:tree"}, "broadcast", "ring"),
        ({"NCCL_ALGO": "allreduce:tree"}, "broadcast", None),
        ({"NCCL_ALGO": "^tree"}, None, None),
        ({"NCCL_ALGO": "no such thing"}, None, None),
        ({"NCCL_ALGO": "NVLS"}, "all_reduce", "nvls"),
        ({"NCCL_ALGO": "NVLS", "NCCL_COLLNET_ENABLE": "1"}, "all_reduce", "sharp"),
        ({"NCCL_ALGO": "CollnetChain", "NCCL_COLLNET_ENABLE": "1"}, "all_reduce", "collnet_chain"),
        ({"NCCL_ALGO": "CollnetChain,CollnetDirect", "NCCL_COLLNET_ENABLE": "1"}, "all_reduce", "sharp"),
        ({"NCCL_ALGO": "Ring", "NCCL_COLLNET_ENABLE": "1"}, "all_reduce", "ring"),
        ({"NCCL_COLLNET_ENABLE": "1"}, "all_reduce", "sharp"),
        ({"NCCL_COLLNET_ENABLE": "0"}, "all_reduce", None),
        ({"UCC_CL_BASIC_TLS": "ucp,sharp"}, "all_reduce", "sharp"),
        ({"UCC_CL_BASIC_TLS": "^sharp,nccl"}, "all_reduce", None),
        ({"HCOLL_ENABLE_SHARP": "3"}, "all_reduce", "sharp"),
    ],
)
def test_the_request_of_an_environment_is_one_word(environment, collective, requested):
    assert requested_by_environment(environment, collective) == requested


@pytest.mark.parametrize(
    ("environment", "communicator", "collective", "requested"),
    [
        ({}, {"collnet_enable": 1}, "all_reduce", "sharp"),
        ({}, {"collnet_enable": 0}, "all_reduce", None),
        ({"NCCL_COLLNET_ENABLE": "0"}, {"collnet_enable": 1}, "all_reduce", None),  # the environment wins
        ({}, {"buffers": "symmetric"}, "all_reduce", "symmetric"),
        ({}, {"buffers": "symmetric"}, "broadcast", None),  # for which there are no such kernels
        ({"NCCL_ALGO": "Ring"}, {"buffers": "symmetric"}, "all_reduce", "symmetric"),
        ({}, {"buffers": "allocated"}, "all_reduce", None),
        ({}, {"traffic_class": 106}, "all_reduce", None),
    ],
)
def test_communicator_settings_are_requests_too(environment, communicator, collective, requested):
    assert requested_by_environment(environment, collective, communicator) == requested


def test_an_inverted_list_leaves_all_others():
    assert forced_algorithms({"NCCL_ALGO": "^tree,ring"}) == (
        "collnet_direct",
        "collnet_chain",
        "nvls",
        "nvls_tree",
        "pat",
    )
