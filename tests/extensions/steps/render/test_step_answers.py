"""Training steps in words: what a step takes with each algorithm, and how much of it is exposed."""

from dataclasses import replace

import pytest
import raw_examples
from golden_page import assert_golden
from step_examples import step_rows, steps

from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.tune_table import build_table
from hpccoll.extensions.steps.analysis.step_comparison import compare_steps
from hpccoll.extensions.steps.render.step_answers import exposed_words, step_answers
from hpccoll.render.answer_lines import terminal_lines
from hpccoll.render.answers import Answers
from hpccoll.store.load_results import to_results
from hpccoll.store.raw_results import RawResults
from hpccoll.store.result_files import ResultFiles
from hpccoll.store.schema import HOST_LOAD as KEY

BOTH = {"ring": 12, "native": 60, "null": 0}
SCENARIOS = {
    "communication that costs nothing": [steps({"ring": 0, "null": 0})],
    "stages alone, without collectives": [steps(BOTH, [{"parallel": "pp=2"}])],
    "stages and data parallelism": [steps(BOTH, [{"parallel": "dp=2,pp=2"}], ranks=4)],
    "two workloads": [steps(BOTH, [{"overlap": 1}, {"overlap": 0}])],
    "many workloads, without null": [
        steps({"ring": 12}, [{"bucket": 4096 * n, "overlap": n % 2} for n in range(1, 10)])
    ],
    "ranks, of which the most have no cores of their own": [
        steps({"ring": 12}, ranks=n, path=f"{n}.h5", run_id=str(n), oversubscribed=n == 8)
        for n in (2, 4, 8)
    ],
    "auto, which chooses for each collective": [steps({"ring": 12, "auto": 6, "null": 0})],
    "too few iterations for an interval": [steps(BOTH, iterations=5)],
    "algorithms of different launches": [
        steps({name: takes}, path=f"{name}.h5", run_id=name)
        for name, takes in (("ring", 12), ("native", 60))
    ],
    "several machines": [
        steps({name: 12, "null": 0}, path=f"{name}.h5", run_id=name, machine=f"machine of {name}")
        for name in ("ring", "native")
    ],
}


def results(*raw_results):
    return to_results(ResultFiles(raw_results=list(raw_results)))


def test_the_answers_and_comparisons_of_training_steps():
    page = []
    for title, raws in SCENARIOS.items():
        found = results(*raws)
        page += [f"-- {title}", *terminal_lines(step_answers(found))]
        for each in compare_steps(found.rows, {run.run_id: run.machine for run in found.runs}):
            algorithms = " ".join(row.algorithm for row in each.rows)
            page.append(
                f"{each.shape}, {', '.join(each.details)}: {algorithms}{', ranked' * each.ranked}"
            )
    assert_golden("step_answers", page)


def test_what_is_exposed_of_a_compressed_step_is_said_to_have_its_codecs():
    row = step_rows(steps(BOTH))["ring"]
    assert exposed_words(row) == ", 4 ms (12 %) of it exposed communication"
    assert (
        exposed_words(replace(row, codec_s=1e-3))
        == ", 4 ms (12 %) of it exposed communication and codecs"
    )


def test_the_answer_on_a_training_has_its_accuracy():
    found = results(steps(BOTH))
    learned = replace(found, rows=tuple(replace(row, accuracy=0.9608) for row in found.rows))
    told = [
        "accuracy 96.08%" in "".join(terminal_lines(step_answers(each)))
        for each in (found, learned)
    ]
    assert told == [False, True]


@pytest.mark.parametrize(("other_cores", "strength"), [(0.0, "strong"), (1.25, "fair")])
def test_steps_of_a_busy_machine_are_no_strong_evidence(other_cores, strength):
    load = {"host": "n0", "other_cores": other_cores, "stolen": 0.0, "busiest": []}
    (answer,) = step_answers(results(steps(BOTH, rounds=5, provenance={KEY: [load]})))
    assert [line.strength for line in answer.lines] == [strength]


def test_answers_on_collectives_and_tables_of_choices_leave_steps_out():
    raw = steps({"ring": 12, "native": 9, "null": 0})
    attempt, outcomes = raw.attempts[0]
    ring = raw_examples.outcome(raw_examples.case(), times=raw_examples.times(8))
    job = raw_examples.job(*(each.case for each in outcomes), ring.case, effort=raw.job.effort)
    found = results(RawResults(path=raw.path, job=job, attempts=[(attempt, [*outcomes, ring])]))
    assert [*Answers(recommend(found)).by_collective] == ["all_reduce"]
    assert {entry.setting.collective for entry in build_table(found).entries} == {"all_reduce"}
