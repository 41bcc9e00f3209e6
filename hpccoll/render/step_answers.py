"""Training steps in words: for each workload the fastest algorithm, what the step takes, and how much of it is exposed.

``hpccoll run``, ``sweep`` and the report all print these.
"""

from collections import defaultdict

from hpccoll.analysis.setting import Choice
from hpccoll.analysis.step_comparison import (
    StepComparison,
    compare_steps,
    pipeline_stages,
)
from hpccoll.common.text import Finding, info
from hpccoll.common.units import format_count, format_per_cent, format_seconds
from hpccoll.store.call_key import call_arguments
from hpccoll.store.rows import Results, Row

MAX_SENTENCES = 4
"""Workloads of a model that have a sentence; the report has all of them."""


def step_answers(results: Results) -> list[Finding]:
    """Return what the fastest workloads of each model take, on the most ranks with cores of their own."""
    found = []
    by_model: dict[str, list[StepComparison]] = defaultdict(list)
    for each in compare_steps(results.rows, {run.run_id: run.machine for run in results.runs}):
        if each.rows[0].exchanges_data:
            by_model[each.workload["model"]].append(each)
    for model, several in by_model.items():
        first = several[0].key.only("nodes", "ranks")
        foremost = [each for each in several if each.key.only("nodes", "ranks") == first]
        fastest = sorted(foremost, key=lambda each: each.rows[0].median_s or 0.0)[:MAX_SENTENCES]
        found += [info("step", f"{_step_sentence(each)}.", each.title) for each in fastest]
        if others := len(several) - len(fastest):
            found.append(info("more_steps", f"the report has {format_count(others, 'more workload')}.", model))
    return found


def _step_sentence(each: StepComparison) -> str:
    best, *others = each.rows
    rest = "".join(f"; {Choice.of(other).name} {format_seconds(other.median_s or 0.0)}" for other in others)
    tie = " (a tie)" if others and not each.clear else ""
    if not each.has_collectives:
        tie = "; no advice: ranks that only exchange messages between stages run no collective"
    fastest = f"{format_seconds(best.median_s or 0.0)} with {Choice.of(best).name}{exposed_words(best)}"
    return f"the step takes {fastest}{rest}{tie}"


def exposed_words(row: Row) -> str:
    """Return the end of a sentence: ``, 9 ms (22 %) of it exposed communication``; empty if that is unknown.

    The stages of a pipeline wait for each other's messages, and without communication they do not.
    """
    bubble = " and pipeline bubble" if pipeline_stages(call_arguments(row)) > 1 else ""
    what = f"exposed communication{bubble}"
    if row.exposed_s is None or row.exposed_share is None:
        return ""
    if row.exposed_s <= 0:
        return f", no {what}"
    noise = " (within the noise)" if row.exposed_low_s is not None and row.exposed_low_s <= 0 else ""
    return f", {format_seconds(row.exposed_s)} ({format_per_cent(row.exposed_share)}) of it {what}{noise}"
