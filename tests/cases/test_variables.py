"""Environment variables: the values that NCCL takes, and names that no library reads."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases import variables
from hpccoll.cases.library_request import NCCL_ALGORITHMS, NCCL_FUNCTIONS, forced_algorithms
from hpccoll.cases.variables import (
    CHOICE_VARIABLES,
    FABRIC_VARIABLES,
    LIST_VARIABLES,
    NCCL_PREFIX,
    SITE_VARIABLES,
    VARIABLES,
    check_variables,
    nccl_names,
    unknown_nccl_variables,
)
from hpccoll.cases.variants import named_variants, variant_environment
from hpccoll.common.errors import BadInputError


def test_exactly_the_variables_of_the_table_are_explained_in_one_line_each():
    assert {name for variant in named_variants().values() for name in variant.environment} == VARIABLES.keys()
    assert not [words for words in VARIABLES.values() if "\n" in words or len(words) > 110]


def test_site_and_fabric_variables_are_among_the_explained_ones():
    assert {*SITE_VARIABLES} < {*FABRIC_VARIABLES} < VARIABLES.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [("NCCL_ALGO", "ring"), ("NCCL_ALGO", "^NVLS,tree"), ("NCCL_ALGO", "Ring;allreduce:tree,nvlstree;AllGather:^pat"),
     ("NCCL_PROTO", "ll128,SIMPLE"), ("NCCL_NVLS_ENABLE", 2), ("NCCL_NET_GDR_LEVEL", "PXB"), ("NCCL_IB_TC", "any")],
)  # fmt: skip
def test_values_that_nccl_takes_are_accepted(name, value):
    check_variables("here", {name: value})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_ALGO", "Rign", "did you mean Ring.*Ring, Tree, CollnetDirect"),
        ("NCCL_ALGO", "ring tree", "in a list, such as Ring,Tree"),
        ("NCCL_ALGO", "ring,", "in a list"),
        ("NCCL_ALGO", "ring, tree", "in a list, such as Ring,Tree"),
        ("NCCL_ALGO", ["Ring", "Tree"], "in a list, such as Ring,Tree"),
        ("NCCL_ALGO", "reduceall:ring", "before a colon one of allreduce, reducescatter"),
        ("NCCL_PROTO", "LL64", "LL, LL128, Simple, in a list"),
        ("NCCL_NVLS_ENABLE", 3, "choose from 0, 1, 2"),
        ("NCCL_NET_GDR_LEVEL", "SYSS", "did you mean SYS.*LOC, "),
    ],
)
def test_unknown_values_are_refused_with_the_valid_ones(name, value, words):
    with pytest.raises(BadInputError, match=rf"variants\.mine\.{name}: .*{words}"):
        variant_environment("mine", {name: value})


WORD = st.sampled_from(LIST_VARIABLES["NCCL_ALGO"]).flatmap(
    lambda word: st.sampled_from([word, word.lower(), word.upper()])
)
PART = st.tuples(
    st.sampled_from(["", *(f"{name}:" for name in NCCL_FUNCTIONS)]),
    st.sampled_from(["", "^"]),
    st.lists(WORD, min_size=1),
)


@given(st.lists(PART, min_size=1), st.data())
def test_every_list_by_the_grammar_is_accepted_and_none_with_an_extra_letter(parts, data):
    texts = [f"{function}{inverted}{','.join(words)}" for function, inverted, words in parts]
    check_variables("here", {"NCCL_ALGO": ";".join(texts)})
    at = data.draw(st.integers(0, len(texts) - 1))
    texts[at] += "x"
    with pytest.raises(BadInputError, match="NCCL_ALGO"):
        check_variables("here", {"NCCL_ALGO": ";".join(texts)})


def test_accepted_words_are_those_that_requests_understand():
    assert {word.lower() for word in LIST_VARIABLES["NCCL_ALGO"]} == NCCL_ALGORITHMS.keys()
    assert {forced_algorithms({"NCCL_ALGO": word}) for word in LIST_VARIABLES["NCCL_ALGO"]} == {
        (own,) for own in NCCL_ALGORITHMS.values()
    }
    for variant in named_variants().values():
        check_variables("here", variant.environment)


def test_all_variables_of_nccl_in_the_tables_are_known_names():
    named = {name for name in (*VARIABLES, *LIST_VARIABLES, *CHOICE_VARIABLES) if name.startswith(NCCL_PREFIX)}
    assert named <= nccl_names()
    assert not [*unknown_nccl_variables(VARIABLES)]


@pytest.mark.parametrize(
    "name",
    ["SYM_CTAS", "IB_RESILIENCY_PORT_FAILOVER", "IB_MQP_RETRY_ALL", "P2P_PER_CHANNEL_NET_BW", "GIN_NCONTEXTS",
     "IPC_USE_ABSTRACT_SOCKET", "SOCKET_MAGIC", "P2P_LEVEL", "MNNVL", "WORK_FIFO_DEPTH", "DEBUG_SUBSYS",
     "CE_INTRA_GPU_MEMCPY_ENABLE", "RUN_DIAGNOSTICS", "SHARP_GROUP_SIZE_THRESH", "TREE_THRESHOLD"],
)  # fmt: skip
def test_a_variable_that_some_version_or_plugin_of_nccl_reads_is_known(name):
    """Those of parameters, of calls of getenv, of the newest library, of the plugin of SHARP, and of old versions."""
    assert not [*unknown_nccl_variables({f"NCCL_{name}": "1"})]


def test_the_list_of_variables_has_each_name_once_and_its_source():
    lines = (Path(variables.__file__).with_name("nccl_variables.txt")).read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    assert len(names) == len({*names}) == len(nccl_names()) > 300
    blocks = "\n".join(lines).split("\n\n")[1:]
    assert all(block.startswith("# ") and "\nNCCL_" in block for block in blocks)


def test_an_unknown_variable_of_nccl_is_a_warning_with_the_nearest_name():
    (warning,) = unknown_nccl_variables({"NCCL_AGLO": "Ring", "UCX_TLS": "rc", "NCCL_IB_HCA": "mlx5"})
    assert warning.startswith("NCCL_AGLO is not in our list of NCCL's variables (NCCL 2.20 to 2.32)")
    assert warning.endswith("; did you mean NCCL_ALGO?")
    (warning,) = unknown_nccl_variables({"nccl_algo": "Ring"})
    assert warning.endswith("; did you mean NCCL_ALGO?"), "variables in lower case are recognised"
    (warning,) = unknown_nccl_variables({"NCCL_QQQQ": "1"})
    assert "did you mean" not in warning
