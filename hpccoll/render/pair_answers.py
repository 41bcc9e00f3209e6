"""Many pairs of ranks in words: an answer for each tier, which says what slow pairs have in common."""

from dataclasses import replace

from hpccoll.analysis.rank_pairs import foremost_pair_findings
from hpccoll.common.text import Finding
from hpccoll.render.answer_lines import Answer, AnswerLine
from hpccoll.store.rows import Results


def pair_answers(results: Results) -> dict[str, list[Answer]]:
    """Return the answers for the collectives whose pairs of ranks were measured in large numbers, by collective."""
    answers = {}
    for name, findings in foremost_pair_findings(results).items():
        answers[name] = [_answer(name, finding) for finding in findings]
    return answers


def _answer(collective: str, finding: Finding) -> Answer:
    where = f"{finding.values['shape']}, {finding.values['series']}"
    line = AnswerLine(None, replace(finding, title="").with_remedy)
    return Answer(collective, where, (line,))
