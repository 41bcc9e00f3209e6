"""Many pairs of ranks in words: an answer for each tier, which says what slow pairs have in common."""

from dataclasses import replace

from hpccoll.analysis.rank_pairs import foremost_pair_findings
from hpccoll.common.text import Finding
from hpccoll.render.answer_lines import Answer, AnswerLine
from hpccoll.store.rows import Results


def pair_answers(results: Results) -> dict[str, list[Answer]]:
    """Return the answers for the collectives of which many pairs of ranks were measured, by collective."""
    return {name: [_answer(name, each) for each in found] for name, found in foremost_pair_findings(results).items()}


def _answer(collective: str, finding: Finding) -> Answer:
    line = AnswerLine(None, replace(finding, title="").with_remedy)
    return Answer(collective, f"{finding.values['shape']}, {finding.values['series']}", (line,))
