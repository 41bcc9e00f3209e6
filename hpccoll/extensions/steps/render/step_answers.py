"""Training steps in words: for each workload the fastest algorithm, what the step takes, and how much of it is exposed.

``hpccoll run``, ``sweep`` and the report all print these.
"""

from collections import defaultdict
from collections.abc import Collection

from hpccoll.analysis.late_ranks import late_words
from hpccoll.analysis.setting import Choice
from hpccoll.analysis.strength import busy_runs
from hpccoll.common.text import Columns, join_words, table_of
from hpccoll.common.units import format_count, format_per_cent, format_seconds
from hpccoll.extensions.steps.analysis.step_comparison import (
    StepComparison,
    compare_steps,
    pipeline_stages,
)
from hpccoll.render.answer_lines import Answer, AnswerLine, as_fast_as_native, basis_of, untold
from hpccoll.store.call_key import call_arguments
from hpccoll.store.rows import Results, Row

MAX_SENTENCES = 4
"""Workloads of a model that have a sentence; the report has all of them."""


def step_answers(results: Results) -> list[Answer]:
    """Return what the fastest workloads of each model take, on the most ranks with cores of their own."""
    answers = []
    by_model: dict[str, list[StepComparison]] = defaultdict(list)
    machines = {run.run_id: run.machine for run in results.runs}
    for comparison in compare_steps(results.rows, machines):
        if comparison.rows[0].exchanges_data:
            by_model[comparison.workload["model"]].append(comparison)
    busy = busy_runs(results)
    for model, several in by_model.items():
        first = several[0].key.only("nodes", "ranks")
        foremost = [
            comparison for comparison in several if comparison.key.only("nodes", "ranks") == first
        ]
        fastest = sorted(foremost, key=lambda comparison: comparison.rows[0].median_s or 0.0)[
            :MAX_SENTENCES
        ]
        for comparison in fastest:
            line = _step_line(comparison, busy)
            answers.append(
                Answer(comparison.model, comparison.where, (line,), comparison.oversubscribed)
            )
        hidden = len(several) - len(fastest)
        if hidden:
            line = AnswerLine(
                None, f"the table of training steps has {format_count(hidden, 'more workload')}."
            )
            answers.append(Answer(model, "", (line,)))
    return answers


def _step_line(comparison: StepComparison, busy: Collection[str]) -> AnswerLine:
    best = comparison.rows[0]
    evidence = comparison.evidence(busy)
    name = f"`{Choice.of(best).name}`"
    took = f"the step takes {format_seconds(best.median_s or 0.0)}{exposed_words(best)}{waiting_words(best)}"
    if best.accuracy is not None:
        took += f"; accuracy {best.accuracy:.2%}"
    if not evidence.compared:
        if not comparison.has_collectives:
            took += "; ranks that only exchange messages between stages run no collective"
        return AnswerLine(None, f"with {name} {took}.")
    names = [f"`{Choice.of(row).name}`" for row in comparison.rows]
    why = untold(evidence, names)
    is_tie = evidence.strength == "none" and not why
    gain = ""
    if evidence.gain:
        gain = f": {as_fast_as_native(evidence.gain.factor)}"
    if evidence.strength == "none":
        advice = why or f"{join_words(names)} differ by less than the noise"
    elif evidence.strength == "weak":
        if gain:
            advice = f"{name} may be faster{gain}"
        else:
            advice = f"{name} may be the best choice"
    else:
        advice = f"use {name}{gain}"
    figures = table_of(_COLUMNS, comparison.rows)
    return AnswerLine(
        evidence.strength,
        f"{advice}; {took}",
        basis=basis_of(evidence),
        figures=figures,
        is_tie=is_tie,
    )


_COLUMNS: Columns[Row] = (
    ("algorithm", lambda row: Choice.of(row).name),
    ("step", lambda row: format_seconds(row.median_s or 0.0)),
    ("exposed", lambda row: "" if row.exposed_s is None else format_seconds(row.exposed_s)),
    ("transfer", lambda row: "" if row.transfer_s is None else format_seconds(row.transfer_s)),
    ("waiting", lambda row: "" if row.waiting_s is None else format_seconds(row.waiting_s)),
)


def exposed_parts(row: Row) -> str:
    """Return what null leaves out of a step: ``exposed communication and codecs``.

    The stages of a pipeline wait for each other's messages, and without communication they do not,
    nor encode.
    """
    parts = ["communication"]
    if row.codec_s:
        parts.append("codecs")
    if pipeline_stages(call_arguments(row)) > 1:
        parts.append("pipeline bubble")
    return f"exposed {join_words(parts)}"


def waiting_words(row: Row) -> str:
    """Return the next part of that sentence: ``; transfer 9 ms, waiting up to 5 ms, hidden or not, rank 2 is late``."""
    if row.transfer_s is None or row.waiting_s is None:
        return ""
    times = f"transfer {format_seconds(row.transfer_s)}, waiting up to {format_seconds(row.waiting_s)}, hidden or not"
    return f"; {', '.join(filter(None, (times, late_words(row))))}"


def exposed_words(row: Row) -> str:
    """Return the end of a sentence: ``, 9 ms (22 %) of it exposed communication``; empty if that is unknown."""
    parts = exposed_parts(row)
    if row.exposed_s is None or row.exposed_share is None:
        return ""
    if row.exposed_s <= 0:
        return f", no {parts}"
    noise = ""
    if row.exposed_low_s is not None and row.exposed_low_s <= 0:
        noise = " (within the noise)"
    return f", {format_seconds(row.exposed_s)} ({format_per_cent(row.exposed_share)}) of it {parts}{noise}"
