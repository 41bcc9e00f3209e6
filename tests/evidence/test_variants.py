import json
import re
from pathlib import Path

import pytest

from hpccoll.evidence.communicator import SETTINGS, WINNERS
from hpccoll.evidence.records import Modelled, Ran, Record, Refusal
from hpccoll.evidence.requested import ALGORITHMS, forced, requested_of
from hpccoll.evidence.variables import OF_A_FABRIC, OF_A_SITE, VARIABLES
from hpccoll.evidence.variants import VARIANTS, as_known


def test_every_variable_of_the_table_is_explained_in_one_line_and_no_other_is():
    assert {name for variant in VARIANTS.values() for name in variant.environment} == VARIABLES.keys()
    assert not [words for words in VARIABLES.values() if "\n" in words or len(words) > 110]


def test_what_describes_a_network_is_of_the_table():
    assert {*OF_A_SITE} < {*OF_A_FABRIC} < VARIABLES.keys()


def test_every_setting_of_communicators_is_explained_in_one_line_and_those_of_variants_are_known():
    assert {name for variant in VARIANTS.values() for name in variant.communicator} <= SETTINGS.keys()
    assert not [one.what for one in SETTINGS.values() if "\n" in one.what or len(one.what) > 110]
    assert {name: re.findall(r"(\w+) wins", one.what) for name, one in SETTINGS.items()} == {
        name: [WINNERS[name]] if name in WINNERS else [] for name in SETTINGS
    }


def test_people_read_of_every_setting_what_it_does_and_since_when():
    text = (Path(__file__).parents[2] / "slurm/README.md").read_text()
    for name, setting in SETTINGS.items():
        assert f"| `{name}` | {setting.since // 10000}.{setting.since // 100 % 100} | {setting.what} |" in text


def test_what_takes_nccl4py_is_what_communicators_are_made_with():
    assert {name for name, variant in VARIANTS.items() if variant.communicator} == {
        name for name, variant in VARIANTS.items() if {"nccl4py", "nccl-2.27"} <= {*variant.needs}
    }


def test_every_algorithm_of_nccl_has_a_variant_that_asks_for_it_and_nothing_else():
    assert {variant.requested for variant in VARIANTS.values()} >= {*ALGORITHMS.values(), "sharp"}


@pytest.mark.parametrize(
    "name", [name for name, variant in VARIANTS.items() if variant.requested in ("sharp", "collnet_direct", "nvls")]
)
def test_what_claims_an_offload_has_a_negative_control_that_claims_nothing(name):
    control = VARIANTS[VARIANTS[name].control]
    assert control.requested is None
    assert control.control is None


def test_nothing_logged_meets_no_demand_but_those_of_the_negative_controls():
    met = {name for name, variant in VARIANTS.items() if variant.demands.met and variant.demands.met(Record())}
    assert met == {variant.control for variant in VARIANTS.values()} - {None, "nccl-gdr-off"}


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
def test_what_an_environment_asks_for_is_said_in_one_word(environment, collective, requested):
    assert requested_of(environment, collective) == requested


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
def test_what_a_communicator_is_made_with_asks_for_something_too(environment, communicator, collective, requested):
    assert requested_of(environment, collective, communicator) == requested


def test_an_inverted_list_leaves_all_others():
    assert forced({"NCCL_ALGO": "^tree,ring"}) == ("collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")


def test_a_variant_is_the_tables_with_more_added_and_its_site_put_in_and_no_longer_with_another_claim():
    assert as_known("nccl-ring", {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}) is VARIANTS["nccl-ring"]
    assert as_known("nccl-one-rail", {"NCCL_IB_HCA": "=mlx5_7:1"}) is VARIANTS["nccl-one-rail"]
    assert as_known("nccl-ring", {"NCCL_ALGO": "Tree"}) is None
    assert as_known("mine", {}) is as_known(None, {}) is None


@pytest.mark.parametrize(
    ("name", "case", "reason"),
    [
        ("nccl-sharp", ("all_reduce", "float32", "sum", 2, 8), None),
        ("nccl-sharp", ("all_reduce", "float32", "prod", 2, 8), "the variant takes op sum, min, max, avg, not prod"),
        ("nccl-sharp", ("all_reduce", "float32", "sum", 1, 8), "the variant takes at least 2 nodes"),
        ("nccl-sharp", ("all_reduce", "float32", "sum", 2, 9), "the variant takes at most 8 ranks per node"),
        ("nccl-sharp", ("broadcast", "float32", None, 2, 8), "the variant takes collective all_reduce,"),
        ("nccl-nvls", ("all_reduce", "float32", "sum", 2, 8), "the variant takes at most 1 node"),
        ("ucc-sharp", ("all_reduce", "float32", "sum", 2, 2), "the variant takes at most 1 rank per node"),
    ],
)
def test_a_case_outside_the_limits_of_a_variant_is_told_why(name, case, reason):
    unmet = VARIANTS[name].limits.unmet(*case)
    assert unmet == reason or (reason and unmet.startswith(reason))


def test_a_record_survives_its_json():
    record = Record(
        library="nccl", ran=(Ran(collective="all_reduce", bytes=8, algorithm="ring", line="a line"),),
        refusals=(Refusal(of="sharp", reason="too few nodes", line="b"),), paths={"NET/IB/GDRDMA": 4}, network=("IB",),
        model=(Modelled(collective="all_reduce", algorithm="ring", protocol="LL", latency_s=1e-6, bytes_per_s=1e9),),
    )  # fmt: skip
    assert Record.from_json(record.to_json()) == record


def test_a_record_of_another_version_is_read_as_far_as_it_is_known():
    ran = {"collective": "all_reduce", "bytes": 8, "algorithm": "ring", "line": "a", "new": 1}
    record = Record.from_json(json.dumps({"library": "nccl", "ran": [ran], "new": [1]}))
    assert record == Record(library="nccl", ran=(Ran(collective="all_reduce", bytes=8, algorithm="ring", line="a"),))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"library": "nccl", "ran": [1]}', '{"library": "nccl", "ran": [{}]}']
)
def test_what_is_no_record_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  json says its own words
        Record.from_json(text)
