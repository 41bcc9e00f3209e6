"""Training steps in words: for each workload the fastest algorithm, what the step takes, and how much of it is exposed.

``hpccoll run``, ``sweep`` and the report all print these.
"""

from collections import defaultdict
from collections.abc import Collection

from hpccoll.analysis.setting import Choice
from hpccoll.analysis.step_comparison import (
    StepComparison,
    compare_steps,
    late_words,
    pipeline_stages,
)
from hpccoll.analysis.strength import busy_runs
from hpccoll.common.text import Columns, join_words, table_of
from hpccoll.common.units import format_count, format_per_cent, format_seconds
from hpccoll.render.answer_lines import Answer, AnswerLine, as_fast_as_native, basis_of, untold
from hpccoll.store.call_key import call_arguments
from hpccoll.store.rows import Results, Row

MAX_SENTENCES = 4
"""Workloads of a model that have a sentence; the report has all of them."""


def step_answers(results: Results) -> list[Answer]:
    """Return what the fastest workloads of each model take, on the most ranks with cores of their own."""
    found = []
    by_model: dict[str, list[StepComparison]] = defaultdict(list)
    for each in compare_steps(results.rows, {run.run_id: run.machine for run in results.runs}):
        if each.rows[0].exchanges_data:
            by_model[each.workload["model"]].append(each)
    busy = busy_runs(results)
    for model, several in by_model.items():
        first = several[0].key.only("nodes", "ranks")
        foremost = [each for each in several if each.key.only("nodes", "ranks") == first]
        fastest = sorted(foremost, key=lambda each: each.rows[0].median_s or 0.0)[:MAX_SENTENCES]
        found += [Answer(each.model, each.where, (_step_line(each, busy),), each.oversubscribed) for each in fastest]
        if others := len(several) - len(fastest):
            more = AnswerLine(None, f"the table of training steps has {format_count(others, 'more workload')}.")
            found.append(Answer(model, "", (more,)))
    return found


def _step_line(each: StepComparison, busy: Collection[str]) -> AnswerLine:
    best, evidence, name = each.rows[0], each.evidence(busy), f"`{Choice.of(each.rows[0]).name}`"
    took = f"the step takes {format_seconds(best.median_s or 0.0)}{exposed_words(best)}{waiting_words(best)}"
    took += "" if best.accuracy is None else f"; accuracy {best.accuracy:.2%}"
    if not evidence.compared:
        alone = "" if each.has_collectives else "; ranks that only exchange messages between stages run no collective"
        return AnswerLine(None, f"with {name} {took}{alone}.")
    gain = f": {as_fast_as_native(evidence.gain.factor)}" if evidence.gain else ""
    several = [f"`{Choice.of(row).name}`" for row in each.rows]
    why = untold(evidence, several)
    advice = {
        "none": why or f"{join_words(several)} differ by less than the noise",
        "weak": f"{name} may be {'faster' if gain else 'the best choice'}{gain}",
    }.get(evidence.strength, f"use {name}{gain}")
    figures = table_of(_COLUMNS, each.rows)
    is_tie, text = evidence.strength == "none" and not why, f"{advice}; {took}"
    return AnswerLine(evidence.strength, text, basis=basis_of(evidence), figures=figures, is_tie=is_tie)


_COLUMNS: Columns[Row] = (
    ("algorithm", lambda row: Choice.of(row).name),
    ("step", lambda row: format_seconds(row.median_s or 0.0)),
    ("exposed", lambda row: "" if row.exposed_s is None else format_seconds(row.exposed_s)),
    ("transfer", lambda row: "" if row.transfer_s is None else format_seconds(row.transfer_s)),
    ("waiting", lambda row: "" if row.waiting_s is None else format_seconds(row.waiting_s)),
)


def exposed_parts(row: Row) -> str:
    """Return what null leaves out of a step: ``exposed communication and codecs``.

    The stages of a pipeline wait for each other's messages, and without communication they do not, nor encode.
    """
    bubble = ["pipeline bubble"] if pipeline_stages(call_arguments(row)) > 1 else []
    return f"exposed {join_words(['communication', *['codecs'] * bool(row.codec_s), *bubble])}"


def waiting_words(row: Row) -> str:
    """Return the next part of that sentence: ``; transfer 9 ms, waiting up to 5 ms, hidden or not, rank 2 is late``."""
    if row.transfer_s is None or row.waiting_s is None:
        return ""
    times = f"transfer {format_seconds(row.transfer_s)}, waiting up to {format_seconds(row.waiting_s)}, hidden or not"
    return f"; {', '.join(filter(None, (times, late_words(row))))}"


def exposed_words(row: Row) -> str:
    """Return the end of a sentence: ``, 9 ms (22 %) of it exposed communication``; empty if that is unknown."""
    what = exposed_parts(row)
    if row.exposed_s is None or row.exposed_share is None:
        return ""
    if row.exposed_s <= 0:
        return f", no {what}"
    noise = " (within the noise)" if row.exposed_low_s is not None and row.exposed_low_s <= 0 else ""
    return f", {format_seconds(row.exposed_s)} ({format_per_cent(row.exposed_share)}) of it {what}{noise}"
