import json
import re
from functools import partial
from pathlib import Path

import pytest

from hpccoll.errors import BadInputError
from hpccoll.evidence.communicator_settings import COMMUNICATOR_SETTINGS, OVERRIDING_VARIABLES
from hpccoll.evidence.log_record import CollectiveLine, LogRecord, ModelledCost, Unavailable
from hpccoll.evidence.requested import NCCL_ALGORITHMS, forced_algorithms, requested_by_environment
from hpccoll.evidence.variables import CHOICE_VARIABLES, FABRIC_VARIABLES, LIST_VARIABLES, SITE_VARIABLES, VARIABLES
from hpccoll.evidence.variants import known_variant, named_variants, variant_communicator, variant_environment


def test_every_variable_of_the_table_is_explained_in_one_line_and_no_other_is():
    assert {name for variant in named_variants().values() for name in variant.environment} == VARIABLES.keys()
    assert not [words for words in VARIABLES.values() if "\n" in words or len(words) > 110]


def test_what_describes_a_network_is_of_the_table():
    assert {*SITE_VARIABLES} < {*FABRIC_VARIABLES} < VARIABLES.keys()


def test_every_setting_of_communicators_is_explained_in_one_line_and_those_of_variants_are_known():
    assert {
        name for variant in named_variants().values() for name in variant.communicator
    } <= COMMUNICATOR_SETTINGS.keys()
    assert not [one.effect for one in COMMUNICATOR_SETTINGS.values() if "\n" in one.effect or len(one.effect) > 110]
    assert {name: re.findall(r"(\w+) wins", one.effect) for name, one in COMMUNICATOR_SETTINGS.items()} == {
        name: [OVERRIDING_VARIABLES[name]] if name in OVERRIDING_VARIABLES else [] for name in COMMUNICATOR_SETTINGS
    }


def test_people_read_of_every_setting_what_it_does_and_since_when():
    text = (Path(__file__).parents[2] / "slurm/README.md").read_text()
    for name, setting in COMMUNICATOR_SETTINGS.items():
        assert f"| `{name}` | {setting.since // 10000}.{setting.since // 100 % 100} | {setting.effect} |" in text


def test_what_takes_nccl4py_is_what_communicators_are_made_with():
    assert {name for name, variant in named_variants().items() if variant.communicator} == {
        name for name, variant in named_variants().items() if {"nccl4py", "nccl-2.27"} <= {*variant.requirements}
    }


def test_every_algorithm_of_nccl_has_a_variant_that_asks_for_it_and_nothing_else():
    assert {variant.requested for variant in named_variants().values()} >= {*NCCL_ALGORITHMS.values(), "sharp"}


@pytest.mark.parametrize(
    "name",
    [name for name, variant in named_variants().items() if variant.requested in ("sharp", "collnet_direct", "nvls")],
)
def test_what_claims_an_offload_has_a_negative_control_that_claims_nothing(name):
    control = named_variants()[named_variants()[name].control]
    assert control.requested is None
    assert control.control is None


def test_nothing_logged_meets_no_demand_but_those_of_the_negative_controls():
    met = {
        name
        for name, variant in named_variants().items()
        if variant.expected_evidence.is_met and variant.expected_evidence.is_met(LogRecord())
    }
    assert met == {variant.control for variant in named_variants().values()} - {None, "nccl-gdr-off"}


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
def test_what_a_communicator_is_made_with_asks_for_something_too(environment, communicator, collective, requested):
    assert requested_by_environment(environment, collective, communicator) == requested


def test_an_inverted_list_leaves_all_others():
    assert forced_algorithms({"NCCL_ALGO": "^tree,ring"}) == (
        "collnet_direct",
        "collnet_chain",
        "nvls",
        "nvls_tree",
        "pat",
    )


def test_a_variant_is_the_tables_with_more_added_and_its_site_put_in_and_no_longer_with_another_claim():
    assert known_variant("nccl-ring", {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}) is named_variants()["nccl-ring"]
    assert known_variant("nccl-one-rail", {"NCCL_IB_HCA": "=mlx5_7:1"}) is named_variants()["nccl-one-rail"]
    assert known_variant("nccl-ring", {"NCCL_ALGO": "Tree"}) is None
    assert known_variant("mine", {}) is known_variant(None, {}) is None


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
    unmet = named_variants()[name].limits.violation(*case)
    assert unmet == reason or (reason and unmet.startswith(reason))


def test_a_record_survives_its_json():
    record = LogRecord(
        library="nccl",
        collectives=(CollectiveLine(collective="all_reduce", bytes=8, algorithm="ring", line="a line"),),
        unavailable=(Unavailable(feature="sharp", reason="too few nodes", line="b"),),
        paths={"NET/IB/GDRDMA": 4},
        network=("IB",),
        model=(
            ModelledCost(collective="all_reduce", algorithm="ring", protocol="LL", latency_s=1e-6, bytes_per_s=1e9),
        ),
    )
    assert LogRecord.from_json(record.to_json()) == record


def test_a_record_of_another_version_is_read_as_far_as_it_is_known():
    ran = {"collective": "all_reduce", "bytes": 8, "algorithm": "ring", "line": "a", "new": 1}
    record = LogRecord.from_json(json.dumps({"library": "nccl", "ran": [ran], "new": [1]}))
    assert record == LogRecord(
        library="nccl", collectives=(CollectiveLine(collective="all_reduce", bytes=8, algorithm="ring", line="a"),)
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"library": "nccl", "ran": [1]}', '{"library": "nccl", "ran": [{}]}']
)
def test_what_is_no_record_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  json says its own words
        LogRecord.from_json(text)


def test_a_known_name_brings_its_environment_and_variables_behind_it_are_added():
    assert variant_environment("nccl-ring", None) == {"NCCL_ALGO": "Ring"}
    assert variant_environment("nccl-ring", {"NCCL_PROTO": "LL"}) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    assert variant_environment("nccl-ring", {"NCCL_ALGO": "Ring"}) == {"NCCL_ALGO": "Ring"}
    assert variant_environment("mine", {"A": 1}) == {"A": 1}


@pytest.mark.parametrize("name", named_variants())
def test_a_known_variant_cannot_be_made_another_and_takes_what_its_site_has(name):
    for key, own in named_variants()[name].environment.items():
        other = next(
            (value for value in CHOICE_VARIABLES.get(key, LIST_VARIABLES.get(key, ("7",))) if value != own), "7"
        )
        if key in SITE_VARIABLES:
            assert variant_environment(name, {key: "7"})[key] == "7"
        else:
            with pytest.raises(
                BadInputError, match=rf"variants\.{name}\.{key}: '{other}' .* {own}, the value of {name}"
            ):
                variant_environment(name, {key: other})
        assert variant_environment(name, {key: own}) == named_variants()[name].environment


def test_an_unknown_name_with_nothing_behind_it_is_refused_with_the_known_names():
    with pytest.raises(BadInputError, match=r"'nccl-rnig' .* variables to set, or a named variant: nccl-ring") as error:
        variant_environment("nccl-rnig", None)
    assert "is not valid: did you mean nccl-ring? variables to set, or" in str(error.value)


def test_what_communicators_are_made_with_is_the_tables_with_more_added_and_examples_put_in():
    made_with = partial(variant_communicator, key="--communicator")
    assert made_with("nccl-symmetric", {"max_ctas": 4}) == {"buffers": "symmetric", "max_ctas": 4}
    assert made_with("nccl-traffic-class-comm", {"traffic_class": 26}) == {"traffic_class": 26}
    assert made_with("nccl-ring", {}) == {}
    assert made_with(None, {"max_ctas": 4}) == {"max_ctas": 4}
    with pytest.raises(BadInputError, match=r"--communicator.buffers: 'allocated' .* the value of nccl-symmetric"):
        made_with("nccl-symmetric", {"buffers": "allocated"})
