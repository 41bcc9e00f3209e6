"""Training steps in words: what a step takes with each algorithm, and how much of it is exposed."""

import raw_examples
from step_examples import steps

from hpccoll.analysis.build_table import build_table
from hpccoll.analysis.recommendations import recommend
from hpccoll.analysis.step_comparison import compare_steps
from hpccoll.render.answers import Answers, answer_lines
from hpccoll.render.step_answers import MAX_SENTENCES, step_answers
from hpccoll.store.load_results import to_results
from hpccoll.store.raw_results import RawResults
from hpccoll.store.result_files import ResultFiles


def results(*raw_results):
    return to_results(ResultFiles(raw_results=list(raw_results)))


def step_lines(found):
    return [*map(str, step_answers(found))]


def compared(*raw_results):
    found = results(*raw_results)
    return compare_steps(found.rows, {run.run_id: run.machine for run in found.runs})


def test_communication_that_costs_nothing_is_not_exposed():
    (line,) = step_lines(results(steps({"ring": 0, "null": 0})))
    assert "no exposed communication" in line


def test_a_step_of_stages_alone_has_no_collective_and_no_advice():
    several = {"ring": 12, "native": 60, "null": 0}
    (line,) = step_lines(results(steps(several, [{"parallel": "pp=2"}])))
    assert line.endswith("no advice: ranks that only exchange messages between stages run no collective.")
    assert "exposed communication and pipeline bubble" in line
    (alone,) = compared(steps(several, [{"parallel": "pp=2"}]))
    (both,) = compared(steps(several, [{"parallel": "dp=2,pp=2"}], ranks=4))
    assert (alone.ranked, both.ranked) == (False, True)
    (line,) = step_lines(results(steps(several, [{"parallel": "dp=2,pp=2"}], ranks=4)))
    assert "no advice" not in line


def test_algorithms_are_compared_within_a_workload():
    of = compared(steps({"ring": 12, "native": 9, "null": 0}, [{"overlap": 1}, {"overlap": 0}]))
    assert [each.workload["overlap"] for each in of] == [1, 0]
    assert [[row.algorithm for row in each.rows] for each in of] == [["native", "ring"]] * 2
    assert [each.null.params["overlap"] for each in of] == [1, 0]
    assert len({each.details for each in of}) == 2


def test_the_most_ranks_with_cores_of_their_own_are_foremost():
    two, four, eight = (
        steps({"ring": 12}, ranks=n, path=f"{n}.h5", run_id=str(n), oversubscribed=n == 8) for n in (2, 4, 8)
    )
    lines = step_lines(results(two, four, eight))
    assert lines[0].startswith("resnet50 on 4 nodes: ")
    assert [each.shape for each in compared(two, four, eight)] == ["4 nodes", "2 nodes", "8 nodes"]
    assert lines[1:] == ["resnet50: the report has 2 more workloads."]


def test_a_few_of_many_workloads_have_a_sentence_the_fastest_first():
    workloads = [{"bucket": 4096 * n, "overlap": n % 2} for n in range(1, 10)]
    lines = step_lines(results(steps({"ring": 12}, workloads)))
    assert len(lines) == MAX_SENTENCES + 1
    assert "34 ms" in lines[0]


def mixed():
    """Return steps and an all-reduce of one job."""
    raw = steps({"ring": 12, "native": 9, "null": 0})
    attempt, outcomes = raw.attempts[0]
    ring = raw_examples.outcome(raw_examples.case(), times=raw_examples.times(8))
    job = raw_examples.job(*(each.case for each in outcomes), ring.case, effort=raw.job.effort)
    return RawResults(path=raw.path, job=job, attempts=[(attempt, [*outcomes, ring])])


def test_answers_on_collectives_and_tables_of_choices_leave_steps_out():
    found = results(mixed())
    assert [line.split()[0] for line in answer_lines(Answers(recommend(found)))] == ["all_reduce"]
    assert {entry.setting.collective for entry in build_table(found).entries} == {"all_reduce"}


def test_auto_is_an_algorithm_of_its_own_because_it_chooses_for_each_collective():
    (each,) = compared(steps({"ring": 12, "auto": 6, "null": 0}))
    assert [row.algorithm for row in each.rows] == ["auto", "ring"]


def test_steps_of_several_machines_are_not_compared():
    raws = (
        steps({name: 12, "null": 0}, path=f"{name}.h5", run_id=name, machine=f"machine of {name}")
        for name in ("ring", "native")
    )
    of = compared(*raws)
    assert sorted(row.algorithm for each in of for row in each.rows) == ["native", "ring"]
    assert {each.details for each in of} == {("machine of ring",), ("machine of native",)}
