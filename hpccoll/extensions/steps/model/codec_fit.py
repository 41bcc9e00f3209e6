"""The rates of codecs in measured training steps with compressed gradients: the section ``codecs`` of a machine.

A rate is the bytes that the codecs of a kind go through in a step, over the seconds that they take
together on the slowest rank, the median over all steps; its interval holds 90 % of them. Steps
count where no more ranks than CPUs run. The rate at which topk selects is that of the parts that
were kept: more of them take longer.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from hpccoll.extensions.steps.results.step_times import StepTimes
from hpccoll.extensions.steps.training.compression import DENSE, Compression
from hpccoll.extensions.steps.training.step_program import CODEC
from hpccoll.model.machine_sections import Quantity, RateSection
from hpccoll.store.raw_results import RawResults

PERCENTILES = 5, 50, 95


def fitted_sections(raw_results: Iterable[RawResults]) -> dict[str, Any]:
    """Return the section ``codecs`` of a machine file."""
    return {"codecs": measured_codecs(raw_results)}


def measured_codecs(raw_results: Iterable[RawResults]) -> dict[str, dict[str, RateSection]]:
    """Return the sections of rates of each compression and codec; none without steps with compressed gradients."""
    rates: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for raw in raw_results:
        for history in raw.histories():
            attempt, outcome = history.attempt, history.outcome
            params = outcome.case.params
            is_usable = outcome.status == "ok" and not outcome.floor
            if not is_usable or attempt.oversubscribed or params.get("compress", DENSE) == DENSE:
                continue
            compression = Compression.parse(
                str(params["compress"]), feedback=bool(params.get("feedback"))
            )
            workers = attempt.ranks - attempt.aggregators
            times = outcome.times and StepTimes.of(outcome.times, outcome.program, workers)
            if not times:
                continue
            for work, bytes_per_s in _rates(times).items():
                rates[compression.codec, work] += bytes_per_s
    sections: defaultdict[str, dict[str, RateSection]] = defaultdict(dict)
    for (codec, work), measured_rates in rates.items():
        low, value, high = map(float, np.percentile(measured_rates, PERCENTILES))
        sections[codec][work] = RateSection(bytes_per_s=Quantity(value=value, low=low, high=high))
    return dict(sections)


def _rates(times: StepTimes) -> dict[str, list[float]]:
    """Return the bytes a second of each codec in each iteration, on its slowest rank."""
    by_rank: defaultdict[str, list[Any]] = defaultdict(list)
    for position in range(len(times.ranks)):
        seconds = np.diff(times.operations(position)[..., 1:])[..., 0]  # by iteration and operation
        places: defaultdict[str, list[int]] = defaultdict(list)
        operations = times.program(position).operations
        for place, operation in enumerate(operations):
            if operation["collective"] == CODEC:
                work = operation["label"].split()[-1]
                places[work].append(place)
        for work, chosen in places.items():
            nbytes = sum(operations[place]["bytes"] for place in chosen)
            by_rank[work].append(nbytes / seconds[:, chosen].sum(axis=1))
    return {work: np.min(rates, axis=0).tolist() for work, rates in by_rank.items()}
