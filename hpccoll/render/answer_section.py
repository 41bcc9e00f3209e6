"""The first screen of the page: what to use for each collective, how sure that is, and how noisy the machine was."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from hpccoll.analysis.noise_sentence import noise_sentence
from hpccoll.cases.algorithm_registry import WORKLOADS
from hpccoll.common.text import Finding
from hpccoll.common.units import format_count
from hpccoll.render.answers import AnswerLine, Answers, name_settings, unanswered
from hpccoll.render.definitions import with_tooltip
from hpccoll.render.step_answers import step_answers
from hpccoll.render.terminal_summary import case_counts
from hpccoll.store.rows import NOT_PLANNED, Results

MAX_LINES = 8
"""Lines of a table of answers that are shown; the others are folded."""


def answer_section(
    results: Results, answers: Answers, collectives: Sequence[str], unmeasured: Sequence[str] = ()
) -> str:
    """Return the answers: sentences, the table of a single collective, and a line on noise.

    Args:
        results: the results.
        answers: what to use.
        collectives: the collectives that have a part of the page.
        unmeasured: the other collectives that were planned.
    """
    answered = {name: answers.findings(name) for name in answers.by_collective}
    if steps := step_answers(results):
        answered |= dict.fromkeys(WORKLOADS, steps)
    parts = [_keep_units(_sentences(results, answered, collectives, unmeasured))]
    if len(collectives) == 1:
        parts.append(answer_table(answers, collectives[0]))
    notes = (_native_note(answers), noise_sentence(results), f"{_counts(results)}.")
    parts.append(f'<p class="noise">{escape(_keep_units(" ".join(filter(None, notes))))}</p>')
    return f'<div class="answers">{"".join(parts)}</div>'


NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]iB|B|[nmu]?s)\b|%|of \d)|(?<=\d of) (?=\d)")


def _keep_units(html: str) -> str:
    """Return text or HTML in which no line ends between a number and its unit, or in ``2 of 7``."""
    return NUMBER_AND_UNIT.sub("\N{NO-BREAK SPACE}", html)


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


def _sentences(
    results: Results, answered: Mapping[str, Sequence[Finding]], collectives: Sequence[str], unmeasured: Sequence[str]
) -> str:  # fmt: skip
    items = (
        f"<li>{_sentence(name, finding, linked=name in collectives and len(collectives) > 1)}</li>"
        for name in (*collectives, *unmeasured)
        for finding in answered.get(name) or [unanswered(results, name)]
    )
    return f'<ul class="sentences">{"".join(items)}</ul>'


def _sentence(name: str, finding: Finding, *, linked: bool) -> str:
    """Return a sentence as HTML: what it is about linked or bold, the names of choices as code."""
    pieces = enumerate(escape(finding.text).split("`"))
    text = "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in pieces)
    subject = escape(finding.title)
    subject = f'<a href="#{escape(name)}">{subject}</a>' if linked else f"<b>{subject}</b>"
    return f"{subject}: {text}" if finding.title else text


HEADINGS = ("on", "size", "choice", "speed-up over native", "how sure")


def answer_table(answers: Answers, name: str) -> str:
    """Return the table of a collective: a line for each setting and range of sizes.

    Further lines are folded, and so are those of ranks that shared cores if others did not.
    """
    lines = answers.table(name)
    shown = _shown_lines(lines)
    rest = lines[len(shown) :]
    folded = f"<details><summary>{escape(_summary(rest))}</summary>{_table(rest)}</details>" if rest else ""
    return (_table(shown) if shown else "") + folded


def _summary(folded: Sequence[AnswerLine]) -> str:
    """Return what folded lines are about: ``4 ranks; 3 ranks: 8 more lines``."""
    return f"{name_settings(line.where for line in folded)}: {format_count(len(folded), 'more line')}"


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


def _table(lines: Sequence[AnswerLine]) -> str:
    sized = any(line.sizes for line in lines)
    heads = "".join(f'<th scope="col">{with_tooltip(head)}</th>' for head in HEADINGS if sized or head != "size")
    body = []
    before = None
    for line in lines:
        setting = "" if line.setting == before else escape(line.where)
        before = line.setting
        cells = [setting, *([escape(_keep_units(line.sizes))] if sized else []), f"<code>{escape(line.choice)}</code>"]
        cells += [escape(line.gain), escape(_keep_units(line.certainty))]
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return f'<table class="answer"><thead><tr>{heads}</tr></thead><tbody>{"".join(body)}</tbody></table>'
