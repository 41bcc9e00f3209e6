"""Environments of variants: what is added, what would make another variant of one, and what is misspelt."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.errors import BadInputError
from hpccoll.evidence.environments import check_values, communicator_of, doubts, environment_of
from hpccoll.evidence.nccl_names import CHOICES, LISTS, NAMES, PREFIX
from hpccoll.evidence.requested import ALGORITHMS, FUNCTIONS, forced
from hpccoll.evidence.variables import OF_A_SITE, VARIABLES
from hpccoll.evidence.variants import VARIANTS


def test_a_known_name_brings_its_environment_and_variables_behind_it_are_added():
    assert environment_of("nccl-ring", None) == {"NCCL_ALGO": "Ring"}
    assert environment_of("nccl-ring", {"NCCL_PROTO": "LL"}) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    assert environment_of("nccl-ring", {"NCCL_ALGO": "Ring"}) == {"NCCL_ALGO": "Ring"}
    assert environment_of("mine", {"A": 1}) == {"A": 1}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_known_variant_cannot_be_made_another_and_takes_what_its_site_has(name):
    for key, own in VARIANTS[name].environment.items():
        other = next((value for value in CHOICES.get(key, LISTS.get(key, ("7",))) if value != own), "7")
        if key in OF_A_SITE:
            assert environment_of(name, {key: "7"})[key] == "7"
        else:
            with pytest.raises(
                BadInputError, match=rf"variants\.{name}\.{key}: '{other}' .* {own}, which is what {name}"
            ):
                environment_of(name, {key: other})
        assert environment_of(name, {key: own}) == VARIANTS[name].environment


def test_an_unknown_name_with_nothing_behind_it_is_refused_with_the_known_names():
    with pytest.raises(BadInputError, match=r"'nccl-rnig' .* variables behind it, or a known name: nccl-ring") as error:
        environment_of("nccl-rnig", None)
    assert "is not valid: did you mean nccl-ring? variables behind it, or" in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("NCCL_ALGO", "ring"), ("NCCL_ALGO", "^NVLS,tree"), ("NCCL_ALGO", "Ring;allreduce:tree,nvlstree;AllGather:^pat"),
     ("NCCL_PROTO", "ll128,SIMPLE"), ("NCCL_NVLS_ENABLE", 2), ("NCCL_NET_GDR_LEVEL", "PXB"), ("NCCL_IB_TC", "any")],
)  # fmt: skip
def test_what_nccl_takes_is_taken(name, value):
    check_values("here", {name: value})


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
def test_what_nccl_does_not_know_is_refused_with_what_it_knows(name, value, words):
    with pytest.raises(BadInputError, match=rf"variants\.mine\.{name}: .*{words}"):
        environment_of("mine", {name: value})


WORD = st.sampled_from(LISTS["NCCL_ALGO"]).flatmap(lambda word: st.sampled_from([word, word.lower(), word.upper()]))
PART = st.tuples(
    st.sampled_from(["", *(f"{name}:" for name in FUNCTIONS)]), st.sampled_from(["", "^"]), st.lists(WORD, min_size=1)
)


@given(st.lists(PART, min_size=1), st.data())
def test_every_list_by_the_grammar_is_taken_and_none_with_a_letter_more(parts, data):
    texts = [f"{function}{inverted}{','.join(words)}" for function, inverted, words in parts]
    check_values("here", {"NCCL_ALGO": ";".join(texts)})
    at = data.draw(st.integers(0, len(texts) - 1))
    texts[at] += "x"
    with pytest.raises(BadInputError, match="NCCL_ALGO"):
        check_values("here", {"NCCL_ALGO": ";".join(texts)})


def test_words_that_are_taken_are_those_that_are_understood():
    assert {word.lower() for word in LISTS["NCCL_ALGO"]} == ALGORITHMS.keys()
    assert {forced({"NCCL_ALGO": word}) for word in LISTS["NCCL_ALGO"]} == {(own,) for own in ALGORITHMS.values()}
    for variant in VARIANTS.values():
        check_values("here", variant.environment)


def test_every_variable_of_nccl_that_is_named_somewhere_is_known():
    named = {name for name in (*VARIABLES, *LISTS, *CHOICES) if name.startswith(PREFIX)}
    assert named <= {PREFIX + name for name in NAMES}
    assert not [*doubts(VARIABLES)]


def test_a_name_that_nobody_reads_is_doubted_and_the_nearest_named():
    (said,) = doubts({"NCCL_AGLO": "Ring", "UCX_TLS": "rc", "NCCL_IB_HCA": "mlx5"})
    assert said.startswith("NCCL_AGLO is no variable of NCCL")
    assert said.endswith("; did you mean NCCL_ALGO?")
    (said,) = doubts({"nccl_algo": "Ring"})
    assert said.endswith("; did you mean NCCL_ALGO?"), "names of variables are what they are in small letters, too"
    (said,) = doubts({"NCCL_QQQQ": "1"})
    assert "did you mean" not in said


def test_what_communicators_are_made_with_is_the_tables_with_more_added_and_examples_put_in():
    made_with = partial(communicator_of, key="--communicator")
    assert made_with("nccl-symmetric", {"max_ctas": 4}) == {"buffers": "symmetric", "max_ctas": 4}
    assert made_with("nccl-traffic-class-comm", {"traffic_class": 26}) == {"traffic_class": 26}
    assert made_with("nccl-ring", {}) == {}
    assert made_with(None, {"max_ctas": 4}) == {"max_ctas": 4}
    with pytest.raises(BadInputError, match=r"--communicator.buffers: 'allocated' .* what nccl-symmetric sets"):
        made_with("nccl-symmetric", {"buffers": "allocated"})
