"""The models whose gradients can be synchronised, by name, each generated from its architecture parameters."""

from collections.abc import Callable, Mapping

from hpccoll.common.errors import BadInputError, format_choices
from hpccoll.extensions.steps.training.model_shape import ModelShape
from hpccoll.extensions.steps.training.models.convolutional import resnet50, vgg16
from hpccoll.extensions.steps.training.models.decoders import llama, mixtral_8x7b
from hpccoll.extensions.steps.training.models.digits import DIGITS, digits
from hpccoll.extensions.steps.training.models.dlrm import dlrm
from hpccoll.extensions.steps.training.models.transformers import bert_large, gpt2, gpt3_175b

MODELS: Mapping[str, Callable[[], ModelShape]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "bert-large": bert_large,
    "gpt2": lambda: gpt2("gpt2", blocks=12, hidden=768),
    "gpt2-xl": lambda: gpt2("gpt2-xl", blocks=48, hidden=1600),
    "gpt3-175b": gpt3_175b,
    "llama2-7b": lambda: llama("llama2-7b", 32, 4096, 11008, 32000),
    "llama2-70b": lambda: llama("llama2-70b", 80, 8192, 28672, 32000, key_value=1024),
    "llama3-8b": lambda: llama("llama3-8b", 32, 4096, 14336, 128256, key_value=1024, sequence=8192),
    "llama3-70b": lambda: llama(
        "llama3-70b", 80, 8192, 28672, 128256, key_value=1024, sequence=8192
    ),
    "llama3-405b": lambda: llama(
        "llama3-405b", 126, 16384, 53248, 128256, key_value=1024, sequence=8192
    ),
    "mixtral-8x7b": mixtral_8x7b,
    "dlrm": dlrm,
    DIGITS: digits,
}


MODEL_FILES = (".yaml", ".yml", ".json")
"""The suffixes of the files of a user's own models."""


def check_model(name: str) -> None:
    """Check that a model has this name; BadInputError, which says what else is a model, if none has."""
    if name not in MODELS:
        files = f"; a config.json of Hugging Face; or a file of modules ({', '.join(MODEL_FILES)})"
        raise BadInputError("model", name, format_choices(name, sorted(MODELS)) + files)


def model_of(name: str) -> ModelShape:
    """Return the model of this name; BadInputError if there is none."""
    check_model(name)
    return MODELS[name]()
