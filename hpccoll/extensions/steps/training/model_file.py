"""A user's own model: a config.json of Hugging Face, or the modules of a file, as JSON or YAML has them.

    dtype: float32
    modules:
      - {name: conv, tensors: {weight: 9408}, forward_flops: 2.4e+8}
      - {name: fc, tensors: {weight: 2048000, bias: 1000}}

Modules are in forward order. FLOPs are those of the forward pass of a sample; without any, each
module takes as many as its parameters, twice.
"""

import math
import os.path
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta

from hpccoll.common.errors import BadInputError, UnusableError
from hpccoll.common.limits import Name
from hpccoll.common.records import from_builtins
from hpccoll.extensions.steps.training.model_shape import (
    ELEMENTS,
    MAX_MODULES,
    ModelShape,
    Module,
    Tensor,
    check_elements,
)
from hpccoll.extensions.steps.training.models import MODEL_FILES, MODELS
from hpccoll.extensions.steps.training.models.hugging_face import is_config, model_of_config
from hpccoll.schedule import DTYPE

MAX_FLOPS = 1e24
MAX_TENSORS = 100_000


@dataclass(frozen=True, slots=True)
class ModuleRecord:
    """A module of a file; its FLOPs may be a text, because YAML takes 2.4e8 for one."""

    name: Name
    tensors: Annotated[dict[Name, Annotated[int, ELEMENTS.meta]], Meta(max_length=MAX_TENSORS)] = (
        field(default_factory=dict)
    )
    forward_flops: int | float | str = 0


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The content of a file."""

    modules: Annotated[list[ModuleRecord], Meta(min_length=1, max_length=MAX_MODULES)]
    dtype: str = "float32"
    sample: Name = "a sample"


MISTRAL_KEYS = {"dim", "n_layers", "n_heads"}
"""Keys of the params.json beside weights of Mistral and of Meta's Llama."""


def model_from_json(name: str, content: object) -> ModelShape:
    """Return the model of a file.

    Raises:
        BadInputError: names the first key that is wrong, with its value and what is valid.
    """
    if is_config(content):
        return model_of_config(name, content)
    if isinstance(content, Mapping) and content.keys() >= MISTRAL_KEYS:
        why = "it is a params.json, which lies beside weights of Mistral and Llama; do: give the config.json"
        raise UnusableError("model", f"{why} of the same model on Hugging Face")
    return _of_modules(name, content)


def _of_modules(name: str, content: object) -> ModelShape:
    """Return the model of a file that lists modules."""
    record = from_builtins(content, ModelRecord)
    dtype = DTYPE.read("dtype", record.dtype)
    modules = [_module(number, module) for number, module in enumerate(record.modules)]
    names = Counter(module.name for module in modules)
    repeated = [name for name, count in names.items() if count > 1]
    if repeated:
        raise BadInputError("modules", repeated[0], "a name that no other module has")
    if not any(module.forward_flops for module in modules):
        modules = [_with_flops_of_parameters(module) for module in modules]
    model = ModelShape(name, tuple(modules), dtype, record.sample, "a file of the user")
    check_elements(model, "modules")
    return model


def _module(number: int, record: ModuleRecord) -> Module:
    """Return the module of a record, which is the ``number``-th of its file, from 0."""
    try:
        flops = float(record.forward_flops)
    except (ValueError, OverflowError):
        flops = math.nan
    if not 0 <= flops <= MAX_FLOPS:
        key = f"modules.{number}.forward_flops"
        raise BadInputError(key, record.forward_flops, f"a number from 0 to {MAX_FLOPS:g}")
    tensors = tuple(Tensor(name, elements) for name, elements in record.tensors.items())
    return Module(record.name, tensors, flops)


def _with_flops_of_parameters(module: Module) -> Module:
    """Return a module that multiplies and adds each of its parameters once for a sample."""
    return replace(module, forward_flops=2.0 * sum(tensor.elements for tensor in module.tensors))


def models_from_json(contents: Mapping[str, object]) -> dict[str, ModelShape]:
    """Return models by name; BadInputError as ``model_from_json``."""
    return {name: model_from_json(name, content) for name, content in contents.items()}


def model_file(name: str) -> Path | None:
    """Return the file of a user's own model, by its suffix; None for another name."""
    if name not in MODELS and Path(name).suffix in MODEL_FILES:
        return Path(name)
    return None


def _model_name(file: Path, content: object) -> str:
    """Return the name of the model of a file: its stem; of a config.json, the name of its repository or folder.

    A config.json in a folder with the name of a model of hpccoll, such as ``gpt2``, is another
    model: ``gpt2-config``.
    """
    if file.stem != "config" or not is_config(content):
        return file.stem
    folders = [folder.name for folder in Path(os.path.abspath(file)).parents]  # noqa: PTH100  links of the cache stay
    # of Hugging Face's cache
    cached = (name.rpartition("--")[2] for name in folders if name.startswith("models--"))
    name = next(cached, folders[0]) or file.stem
    return f"{name}-config" if name in MODELS else name


class OwnModels(NamedTuple):
    """The user's own models of some files."""

    contents: dict[str, object]  # the content of each file, by the name of its model
    names: dict[str, str]  # the name of the model of each file

    def name_of(self, model: str) -> str:
        """Return the name of a model, which may be one of the files."""
        return self.names.get(model, model)


def load_models(names: Iterable[str], key: str, load: Callable[[Path, str], object]) -> OwnModels:
    """Return the models of those of ``names`` that are files of models.

    Raises:
        BadInputError: if a file cannot be read or is not a model, or two models would have the same
            name.
    """
    own = OwnModels({}, {})
    files: dict[str, Path] = {}
    for name_or_path in dict.fromkeys(names):
        path = model_file(name_or_path)
        if path is None:
            continue
        content = load(path, key)
        name = own.names[name_or_path] = _model_name(path, content)
        try:
            model_from_json(name, content)
        except BadInputError as error:
            raise error.with_key(f"{path}: {error.key}") from None
        renamed = f"a {'file' if name == path.stem else 'folder'} with another name"
        if name in MODELS:
            raise BadInputError(key, str(path), f"{renamed}: {name} is a model of hpccoll")
        if name in files:
            raise BadInputError(
                key, str(path), f"{renamed}: the model {name} is that of {files[name]}"
            )
        own.contents[name], files[name] = content, path
    return own
