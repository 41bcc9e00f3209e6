"""The training step as a workload: what cases, plans and skips ask of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from hpccoll.cases.workload import WorkloadCall
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.compression import DENSE
from hpccoll.extensions.steps.training.model_file import models_from_json
from hpccoll.extensions.steps.training.model_shape import ModelShape
from hpccoll.extensions.steps.training.models import MODELS
from hpccoll.extensions.steps.training.step_keys import WORKLOAD
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.schedule import Collective, Layout, Parameter, all_reduce

if TYPE_CHECKING:
    from hpccoll.cases.case import Case


class StepWorkload:
    """Training steps as cases; each method does what that of ``cases.workload.TrainingStep`` says.

    The files of the user are models.
    """

    def __init__(self) -> None:
        defaults = {name: key.default for name, key in WORKLOAD.items()}
        # It has the algorithms of all-reduce.
        self.row: Collective = replace(
            all_reduce, name=TRAINING_STEP, busbw=None, out_of_place=False, arguments=defaults
        )

    @property
    def help(self) -> Mapping[str, str]:
        return {name: key.help for name, key in WORKLOAD.items()}

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        return {"models": [_listed(name, make()) for name, make in MODELS.items()]}

    def table_lines(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
        for row in tables["models"]:
            yield f"model {row['name']} ({row['parameters']:,} parameters in {row['tensors']} tensors)"

    def calls(
        self,
        requests: Sequence[Mapping[str, Sequence[Parameter]]],
        dtypes: Sequence[str],
        algorithm: str,
        files: Mapping[str, Any],
    ) -> list[WorkloadCall]:
        models = _models_of(files)
        calls = []
        for dtype, step in self._steps(requests, dtypes, algorithm, models):
            calls.append(WorkloadCall(step.params, dtype, step.gradient_bytes(dtype, models)))
        return calls

    def _steps(
        self,
        requests: Sequence[Mapping[str, Sequence[Parameter]]],
        dtypes: Sequence[str],
        algorithm: str,
        models: Mapping[str, ModelShape],
    ) -> list[tuple[str, TrainingStep]]:
        """Return the steps that differ, with the types of gradients; without collectives nothing is compressed."""
        steps = distinct_steps(requests, dtypes, models)
        is_floor = algorithm in self.row.algorithms and self.row.algorithms[algorithm].floor
        if not is_floor:
            return steps
        dense = [(dtype, replace(step, compress=DENSE, feedback=0)) for dtype, step in steps]
        return list(dict.fromkeys(dense))

    def check_files(self, files: Mapping[str, Any]) -> None:
        models_from_json(files)

    def check(self, case: "Case") -> None:
        TrainingStep.of(case.params)

    def check_layout(self, case: "Case", layout: Layout) -> None:
        TrainingStep.of(case.params).check_ranks(layout.workers, case.dtype, case.op, case.device)

    def moved_dtypes(self, case: "Case", workers: int) -> tuple[str, ...]:
        return TrainingStep.of(case.params).moved_dtypes(workers, case.dtype)

    def buffer_bytes(self, case: "Case", workers: int, files: Mapping[str, Any]) -> int:
        programs = TrainingStep.of(case.params).programs(workers, case.dtype, _models_of(files))
        return max(program.buffer_bytes for program in programs)


def _listed(name: str, model: ModelShape) -> dict[str, Any]:
    return {
        "name": name,
        "parameters": model.parameters,
        "tensors": len(model.tensors),
        "dtype": model.dtype,
        "forward_flops": model.forward_flops,
        "sample": model.sample,
        "source": model.source,
    }


def distinct_steps(
    requests: Sequence[Mapping[str, Sequence[Parameter]]],
    dtypes: Sequence[str],
    models: Mapping[str, ModelShape],
) -> list[tuple[str, TrainingStep]]:
    """Return the training steps of requests, each once, with the types of their gradients.

    ``models`` are the user's own by name.

    Raises:
        BadInputError: if a value is invalid.
    """
    steps = []
    for lists in requests:
        for values in product(*lists.values()):
            options = dict(zip(lists, values, strict=True))
            steps.append(TrainingStep.of(options))
    distinct: dict[tuple[str, TrainingStep], None] = {}
    for dtype in dtypes:
        distinct |= dict.fromkeys(step.canonical(dtype, models) for step in steps)
    return list(distinct)


def _models_of(files: Mapping[str, Any]) -> Mapping[str, ModelShape]:
    """Return the user's own models; many cases name the same ones."""
    if not files:
        return {}
    return _models_of_text(json.dumps(files, sort_keys=True))


@lru_cache(maxsize=4)
def _models_of_text(text: str) -> Mapping[str, ModelShape]:
    return models_from_json(json.loads(text))


STEP_WORKLOAD = StepWorkload()
