"""A user's own model: the modules of a file, as JSON or YAML has them.

    dtype: float32
    modules:
      - {name: conv, tensors: {weight: 9408}, forward_flops: 2.4e+8}
      - {name: fc, tensors: {weight: 2048000, bias: 1000}}

Modules are in forward order. FLOPs are those of the forward pass of a sample; without any, each module takes as many as
its parameters, twice.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from hpccoll.common.errors import BadInputError, format_choices
from hpccoll.common.limits import NAME, IntegerRange, Name, OneOfWords, PositiveNumber
from hpccoll.common.records import from_builtins
from hpccoll.schedule import BFLOAT16, DTYPES
from hpccoll.training.model_shape import ModelShape, Module, Tensor
from hpccoll.training.models import MODELS

ELEMENTS = IntegerRange(1, 1 << 40)
FLOPS = PositiveNumber(1e24)
MAX_MODULES = MAX_TENSORS = 100_000
DTYPE = OneOfWords((*DTYPES, BFLOAT16))
_Tensors = Annotated[dict[Name, Annotated[int, ELEMENTS.meta]], Meta(max_length=MAX_TENSORS)]
MODULE_KEYS = ("name", "tensors", "forward_flops")
KEYS = ("dtype", "sample", "modules")


def model_from_json(name: str, content: object) -> ModelShape:
    """Return the model of a file.

    Raises:
        BadInputError: names the first key that is wrong, with its value and what is valid.
    """
    whole = _mapping("model", content, KEYS)
    listed = whole.get("modules")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_MODULES:
        raise BadInputError("modules", listed, f"a list of 1 to {MAX_MODULES} modules, each {{name: , tensors: }}")
    modules = [_module(f"modules.{number}", each) for number, each in enumerate(listed)]
    names = Counter(module.name for module in modules)
    if repeated := [name for name, number in names.items() if number > 1]:
        raise BadInputError("modules", repeated[0], "a name that no other module has")
    if not 0 < sum(tensor.elements for module in modules for tensor in module.tensors) <= ELEMENTS.maximum:
        raise BadInputError("modules", list(names), f"modules that have 1 to {ELEMENTS.maximum} elements together")
    if not any(module.forward_flops for module in modules):
        modules = [
            Module(module.name, module.tensors, 2.0 * sum(tensor.elements for tensor in module.tensors))
            for module in modules
        ]
    dtype, sample = whole.get("dtype", "float32"), whole.get("sample", "a sample")
    DTYPE.check("dtype", dtype)
    NAME.check("sample", sample)
    return ModelShape(name, tuple(modules), dtype, sample, "a file of the user")


def models_from_json(contents: Mapping[str, object]) -> dict[str, ModelShape]:
    """Return models by name.

    Raises:
        BadInputError: as ``model_from_json``.
    """
    return {name: model_from_json(name, content) for name, content in contents.items()}


def model_file(name: str) -> Path | None:
    """Return the file of a user's own model, which has a suffix; None if ``name`` is that of a model of hpccoll."""
    return Path(name) if name not in MODELS and Path(name).suffix else None


def model_name(name: str) -> str:
    """Return the name of a model: of a file, its stem."""
    file = model_file(name)
    return file.stem if file else name


def load_models(names: Iterable[str], key: str, load: Callable[[Path, str], object]) -> dict[str, object]:
    """Return the contents of those of ``names`` that are files of models, by the names of the models.

    Raises:
        BadInputError: if a file cannot be read or is no model, or two models would have the same name.
    """
    contents: dict[str, object] = {}
    files: dict[str, Path] = {}
    for path in filter(None, map(model_file, dict.fromkeys(names))):
        content = load(path, key)
        try:
            model_from_json(path.stem, content)
        except BadInputError as error:
            raise error.with_key(f"{path}: {error.key}") from None
        if path.stem in MODELS:
            raise BadInputError(key, str(path), f"a file with another name: {path.stem} is a model of hpccoll")
        if path.stem in files:
            other = files[path.stem]
            raise BadInputError(key, str(path), f"a file with another name: the model {path.stem} is that of {other}")
        contents[path.stem], files[path.stem] = content, path
    return contents


def _module(key: str, content: object) -> Module:
    module = _mapping(key, content, MODULE_KEYS)
    name, tensors = module.get("name"), module.get("tensors", {})
    NAME.check(f"{key}.name", name)
    flops = _flops(f"{key}.forward_flops", module.get("forward_flops", 0))
    sizes = from_builtins(tensors, _Tensors, f"{key}.tensors")
    return Module(str(name), tuple(Tensor(each, elements) for each, elements in sizes.items()), flops)


def _flops(key: str, value: object) -> float:
    """Return a number of at least 0; a file has 2.4e+8 as text."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # refused just below
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= FLOPS.maximum:
        raise BadInputError(key, value, f"a number from 0 to {FLOPS.maximum:g}")
    return number


def _mapping(key: str, content: object, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise BadInputError(key, content, f"a mapping with {', '.join(known)}")
    for name in content:
        if name not in known:
            raise BadInputError(f"{key}.{name}", content[name], f"no such key, {format_choices(name, known)}")
    return content
