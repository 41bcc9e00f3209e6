"""Environment variables: the values that NCCL takes, and names that no library reads."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.cases import variables
from hpccoll.cases.library_request import NCCL_ALGORITHMS, NCCL_FUNCTIONS, forced_algorithms
from hpccoll.cases.variables import LIST_VARIABLES, VARIABLES, check_variables
from hpccoll.cases.variants import named_variants, variant_environment
from hpccoll.common.errors import BadInputError


def test_exactly_the_variables_of_the_table_are_explained_in_one_line_each_and_have_values_that_nccl_takes():
    names = {name for variant in named_variants().values() for name in variant.environment}
    of_calls = re.compile(
        r"(?<=OMPI_MCA_coll_tuned_)\w+(?=_algorithm)|(?<=MPIR_CVAR_)\w+(?=_INTRA_ALG|_COMPOSITION)"
    )
    assert {of_calls.sub("CALL", name) for name in names} == VARIABLES.keys()
    assert not [words for words in VARIABLES.values() if "\n" in words or len(words) > 110]
    assert {*variables.SITE_VARIABLES} < {*variables.FABRIC_VARIABLES} < VARIABLES.keys()
    for variant in named_variants().values():
        check_variables("here", variant.environment)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_ALGO", "Rign", "did you mean Ring.*Ring, Tree, CollnetDirect"),
        ("NCCL_ALGO", "ring, tree", "in a list, such as Ring,Tree"),
        ("NCCL_ALGO", "reduceall:ring", "before a colon one of allreduce, reducescatter"),
        ("NCCL_PROTO", "LL64", "LL, LL128, Simple, in a list"),
        ("NCCL_NVLS_ENABLE", 3, "choose from 0, 1, 2"),
    ],
)
def test_unknown_values_are_refused_with_the_valid_ones(name, value, words):
    with pytest.raises(BadInputError, match=rf"variants\.mine\.{name}: .*{words}"):
        variant_environment("mine", {name: value})


WORD = st.sampled_from(
    [case(word) for word in LIST_VARIABLES["NCCL_ALGO"] for case in (str, str.lower, str.upper)]
)
FUNCTION = st.sampled_from(["", *(f"{name}:" for name in NCCL_FUNCTIONS)])


@given(
    st.lists(
        st.tuples(FUNCTION, st.sampled_from(["", "^"]), st.lists(WORD, min_size=1)), min_size=1
    ),
    st.data(),
)
def test_every_list_by_the_grammar_is_accepted_and_none_with_an_extra_letter(parts, data):
    texts = [f"{function}{inverted}{','.join(words)}" for function, inverted, words in parts]
    check_variables("here", {"NCCL_ALGO": ";".join(texts)})
    texts[data.draw(st.integers(0, len(texts) - 1))] += "x"
    with pytest.raises(BadInputError, match="NCCL_ALGO"):
        check_variables("here", {"NCCL_ALGO": ";".join(texts)})


def test_accepted_words_are_those_that_requests_understand():
    understood = {
        word.lower(): forced_algorithms({"NCCL_ALGO": word}) for word in LIST_VARIABLES["NCCL_ALGO"]
    }
    assert understood == {word: (own,) for word, own in NCCL_ALGORITHMS.items()}


SOME_VERSIONS = (
    "SYM_CTAS",
    "IB_RESILIENCY_PORT_FAILOVER",
    "P2P_PER_CHANNEL_NET_BW",
    "GIN_NCONTEXTS",
    "IPC_USE_ABSTRACT_SOCKET",
    "MNNVL",
    "DEBUG_SUBSYS",
    "RUN_DIAGNOSTICS",
    "SHARP_GROUP_SIZE_THRESH",
    "TREE_THRESHOLD",
)
"""Variables of parameters, of calls of getenv, of the newest library, of the plugin of SHARP, and of old versions."""


def test_the_list_of_variables_has_each_name_once_with_its_source_and_those_of_the_tables():
    lines = (Path(variables.__file__).with_name("nccl_variables.txt")).read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    assert len(names) == len({*names}) == len(variables.nccl_names()) > 300
    blocks = "\n".join(lines).split("\n\n")[1:]
    assert all(block.startswith("# ") and "\nNCCL_" in block for block in blocks)
    used = {
        name
        for name in (*VARIABLES, *LIST_VARIABLES, *variables.CHOICE_VARIABLES)
        if name.startswith(variables.NCCL_PREFIX)
    }
    assert (
        used | {f"{variables.NCCL_PREFIX}{name}" for name in SOME_VERSIONS}
        <= variables.nccl_names()
    )


@pytest.mark.parametrize(
    ("name", "near"), [("NCCL_AGLO", "ALGO"), ("nccl_algo", "ALGO"), ("NCCL_QQQQ", "")]
)
def test_an_unknown_variable_of_nccl_is_a_warning_with_the_nearest_name(name, near):
    (warning,) = variables.unknown_nccl_variables(
        {name: "Ring", "UCX_TLS": "rc", "NCCL_IB_HCA": "mlx5"}
    )
    words, _, meant = warning.partition("; did you mean NCCL_")
    assert words == f"{name} is not in our list of NCCL's variables (NCCL 2.20 to 2.32)"
    assert meant == (f"{near}?" if near else "")
