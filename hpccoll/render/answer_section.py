"""The first screen of the page: what to use for each collective, how sure that is, and how noisy the machine was."""

from collections.abc import Sequence
from itertools import groupby

from hpccoll.analysis.measurement_quality import noise_sentence
from hpccoll.cases.algorithm_registry import WORKLOADS
from hpccoll.common.text import Finding
from hpccoll.common.units import format_count
from hpccoll.render.answers import AnswerLine, Answers, name_settings, unanswered
from hpccoll.render.page_frame import render
from hpccoll.render.step_answers import step_answers
from hpccoll.render.terminal_summary import case_counts
from hpccoll.store.rows import NOT_PLANNED, Results

MAX_LINES = 8
"""Lines of a table of answers that are shown; the others are folded."""


def answer_section(
    results: Results, answers: Answers, collectives: Sequence[str], unmeasured: Sequence[str] = ()
) -> str:
    """Return the answers: sentences, the table of a single collective, and a line on noise.

    The ``collectives`` have a part of the page each; the ``unmeasured`` ones were planned, too.
    """
    answered = {name: answers.findings(name) for name in answers.by_collective}
    if steps := step_answers(results):
        answered |= dict.fromkeys(WORKLOADS, steps)
    linked = collectives if len(collectives) > 1 else ()
    sentences = [
        _sentence(finding, name if name in linked else "")
        for name in (*collectives, *unmeasured)
        for finding in answered.get(name) or [unanswered(results, name)]
    ]
    notes = (_native_note(answers), noise_sentence(results), f"{_counts(results)}.")
    table = answer_table(answers, collectives[0]) if len(collectives) == 1 else ""
    return render("answers.html", {"sentences": sentences, "table": table, "notes": " ".join(filter(None, notes))})


def _native_note(answers: Answers) -> str:
    """Return that no speed-up is known; empty if a call of the library was measured, or nothing was compared."""
    compared = [each for several in answers.by_collective.values() for each in several if each.is_compared]
    measured = any(choice.is_native for each in compared for choice in each.choices)
    return "The library's own calls were not measured." if compared and not measured else ""


def _counts(results: Results) -> str:
    others = any(not row.ours for row in results.rows)
    not_planned = sum(gap.status == NOT_PLANNED for gap in results.skipped)
    if results.done != (results.planned, 0) or len(results.skipped) > not_planned or others:
        return case_counts(results)
    all_have = f"All {results.planned} cases have" if results.planned > 1 else "The only case has"
    return f"{all_have} a result" + (f"; {not_planned} more left out of the plan" if not_planned else "")


def _sentence(finding: Finding, link: str) -> dict[str, object]:
    """Return a sentence in parts: its subject and the part of the page it links to, and its words, choices marked."""
    words = [(words, number % 2 == 1) for number, words in enumerate(finding.text.split("`"))]
    return {"subject": finding.title, "link": link, "words": words}


def answer_table(answers: Answers, name: str) -> str:
    """Return the table of a collective: a line for each setting and range of sizes.

    Further lines are folded, and so are those of ranks that shared cores if others did not.
    """
    lines = answers.table(name)
    shown = _shown_lines(lines)
    rest = lines[len(shown) :]
    summary = f"{name_settings(line.where for line in rest)}: {format_count(len(rest), 'more line')}"
    return render("answer_table.html", {"shown": shown, "folded": rest, "summary": summary})


def _shown_lines(lines: Sequence[AnswerLine]) -> list[AnswerLine]:
    """Return the lines of the first setting, and of further ones as far as they fit."""
    shown: list[AnswerLine] = []
    for _, members in groupby(lines, key=lambda line: line.setting):
        of_setting = list(members)
        crowded = of_setting[0].oversubscribed and not lines[0].oversubscribed
        if shown and (crowded or len(shown) + len(of_setting) > MAX_LINES):
            break
        shown += of_setting
    return shown
