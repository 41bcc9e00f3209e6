"""Tables of choices in words: the choices of ``tune``, and the judgement of a table."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from hpccoll.analysis.judge_table import SizeRegret, TableJudgement
from hpccoll.common.units import format_count, format_seconds, format_size
from hpccoll.render.answer_lines import terminal_lines
from hpccoll.render.answers import Answers, not_measured_line
from hpccoll.store.rows import Results


def choice_table_lines(results: Results, answers: Answers) -> Iterator[str]:
    """Yield for a terminal the answers for all settings of all collectives, and what was not measured."""
    for name in answers.by_collective:
        yield from terminal_lines(chain(*answers.split(name)), with_entries=True)
    yield from not_measured_line(results, answers)


def judgement_lines(judgement: TableJudgement) -> Iterator[str]:
    """Yield the regret of the table's choice at each size, by setting, and what could not be judged."""
    yield "regret: time of the table's choice over that of the best choice in these results; 1 if it is the best"
    for setting, regrets, mean, held_out in judgement.by_setting():
        yield setting.label
        yield from map(_size_line, regrets)
        yield f"{'mean':>12}  {_regret(mean, held_out)}"
        if setting in judgement.single_choices:
            choice, single = judgement.single_choices[setting]
            yield f"{'one for all':>12}  {single:.3f}  {choice.label}, the best single choice for these sizes"
    for sentence in judgement.unjudged:
        yield f"not judged: {sentence}"
    yield from judgement.other_conditions
    all_sizes = _regret(judgement.mean, judgement.held_out)
    yield f"geometric mean of the regret at {len(judgement.regrets)} sizes: {all_sizes}"
    yield f"the table's choice: {_spread([regret.regret for regret in judgement.regrets])}"
    library_regrets = judgement.regrets_of_default()
    if library_regrets:
        yield f"the library's own: {_spread(library_regrets)}"


def _size_line(r: SizeRegret) -> str:
    notes = ""
    if r.choice != r.best:
        notes = f"; best {r.best.label}: {format_seconds(r.best_seconds)}"
    if r.unpaired:
        notes += ", in another launch"
    if notes and not r.is_significant:
        notes += f", but not clearly: noise may change the regret by {100 * r.noise:.0f} %"
    if r.chosen_for_nodes:
        notes += f"; the choice of the table for {format_count(r.chosen_for_nodes, 'node')}"
    if r.extrapolated:
        notes += "; outside the measured sizes of the table"
    return f"{format_size(r.nbytes):>12}  {r.regret:.3f}  {r.choice.label}: {format_seconds(r.seconds)}{notes}"


def _spread(regrets: Sequence[float]) -> str:
    """Return the median and the worst decile of regrets."""
    middle, worst = np.quantile(regrets, (0.5, 0.9))
    return f"median {middle:.3f}, one in ten at least {worst:.3f}, at {format_count(len(regrets), 'size')}"


def _regret(mean: float, held_out: float) -> str:
    """Return a regret with its lower estimate, unless both are equal to three decimals."""
    most, least = f"{mean:.3f}", f"{held_out:.3f}"
    if least == most:
        return most
    return f"{most} at most, {least} at least, because of noise"
