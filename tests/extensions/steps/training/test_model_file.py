"""A user's own model: what a file may say, and which key is named where it is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.model_file import load_models, model_from_json

CONV = {"name": "conv", "tensors": {"weight": 9408}, "forward_flops": 2.4e8}
FC = {"name": "fc", "tensors": {"weight": 2_048_000, "bias": 1000}}


def test_modules_become_tensors_in_the_order_of_the_file():
    model = model_from_json("mine", {"dtype": "float16", "modules": [CONV, FC]})
    assert [(tensor.name, tensor.elements) for tensor in model.tensors] == [
        ("conv.weight", 9408), ("fc.weight", 2_048_000), ("fc.bias", 1000),
    ]  # fmt: skip
    assert (model.name, model.dtype, model.forward_flops) == ("mine", "float16", 2.4e8)
    # two for each parameter
    assert model_from_json("mine", {"modules": [FC]}).forward_flops == 2 * 2_049_000


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (None, "content"),
        ({"modules": []}, "modules"),
        ({"modules": [FC, FC]}, "modules"),
        ({"modules": [FC], "layers": 3}, "key"),
        ({"modules": [FC], "dtype": "float8"}, "dtype"),
        ({"modules": [CONV, {"tensors": {}}]}, "modules.1.name"),
        ({"modules": [{"name": "a\nb"}]}, "modules.0.name"),
        ({"modules": [{**FC, "forward_flops": -1}]}, "modules.0.forward_flops"),
        ({"modules": [{**FC, "forward_flops": "many"}]}, "modules.0.forward_flops"),
        ({"modules": [{**FC, "forward_flops": 10**400}]}, "modules.0.forward_flops"),
        ({"modules": [{"name": "fc", "tensors": {"weight": 0}}]}, "modules.0.tensors.weight"),
        ({"modules": [{"name": "relu"}]}, "modules"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(content, key):
    with pytest.raises(BadInputError) as error:
        model_from_json("mine", content)
    assert error.value.key == key


def test_a_params_json_of_mistral_is_named_as_such():
    content = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 32000}
    with pytest.raises(BadInputError, match=r"params\.json.* config\.json"):
        model_from_json("params", content)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inside)
    ),
    max_leaves=8,
)


@given(
    values
    | st.fixed_dictionaries(
        {"modules": st.lists(st.fixed_dictionaries({"name": values, "tensors": values}))}
    )
)
def test_any_content_is_a_model_or_one_line(content):
    try:
        model_from_json("mine", content)
    except BadInputError as error:
        assert "\n" not in str(error)  # noqa: PT017  either outcome is right


@pytest.mark.parametrize(
    ("names", "words"),
    [(["a/mine.yaml", "b/mine.yaml"], "that of a/mine.yaml"), (["gpt2.yaml"], "of hpccoll")],
)
def test_two_models_of_one_name_are_refused_and_a_file_that_is_named_twice_is_one(names, words):
    def load(path, _key):
        return {"modules": [{**FC, "name": path.parent.name or "fc"}]}

    with pytest.raises(BadInputError, match=words):
        load_models(names, "model", load)
    assert load_models(["a/mine.yaml"] * 2, "model", load).contents.keys() == {"mine"}
