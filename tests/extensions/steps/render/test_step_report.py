"""Predicted steps in words: which share to quote, where the wall is, and what makes a number too good or too bad."""

import re
from pathlib import Path

import pytest

from hpccoll.extensions.steps.model.group_costs import UnmodelledWork
from hpccoll.extensions.steps.model.step_prediction import StepRequest, predict_steps
from hpccoll.extensions.steps.model.step_scenarios import predict_scenarios, step_request
from hpccoll.extensions.steps.render import step_report
from hpccoll.model.machine_file import read_machine

PUBLISHED = Path(__file__).parents[4] / "results" / "golden" / "published_steps.md"
LLAMA = {"model": "llama3-8b", "mfu": 0.4, "gpu": "h100"}
MIXED = """
common: {model: llama3-8b, cluster: 8xh100-400g, nodes: 8, mfu: 0.4, gpu: h100}
scenarios:
  - {name: sharded, sharding: fsdp}
  - {name: FSDP by hand, sharding: fsdp, overlap: false}
  - {name: stages, parallel: "tp=8,pp=4"}
  - {name: busy stages, parallel: "tp=8,pp=4", micro_batches: 4}
"""


def predicted(nodes, **keys):
    request: StepRequest = step_request(LLAMA | keys, nodes, None)
    return predict_steps(read_machine("8xh100-400g", "--cluster"), request)


def text(found):
    """Return all words of the lines, a space between two."""
    return " ".join(" ".join(step_report.step_lines(found)).split())


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenarios") / "mixed.yaml"
    path.write_text(MIXED)
    return predict_scenarios(path).predictions


def test_scenarios_have_both_shares_the_sharding_and_the_best_case(mixed):
    lines = list(step_report.scenario_lines(mixed))
    head, sharded = lines[0].split(), lines[1]
    assert head[-2:] == ["share", "all"]
    step = mixed[0].prediction
    shares = f"{step.step.share:.1%}", f"{step.communication_share:.0%}"
    assert tuple(sharded.split()[-2:]) == shares
    assert [scenario.label for scenario in mixed] == [
        "sharded, fsdp",
        "FSDP by hand",
        "stages",
        "busy stages",
    ]
    (answer,) = (line for line in lines if line.startswith("sharded, fsdp: quote"))
    assert shares[1] in answer
    assert any("best case" in note for note in step_report.scenario_notes(mixed))
    titles = step_report.scenario_titles(mixed)
    assert [", fsdp" in title.partition("dp=64")[2] for title in titles[:2]] == [True, True]


def test_scenarios_that_differ_in_the_sharding_alone_are_not_one_line(mixed):
    alike = [mixed[0], mixed[0]]
    assert len(step_report.scenario_titles(alike)) == 1
    assert ", fsdp" in step_report.scenario_titles(alike)[0]
    assert len(step_report.scenario_titles(mixed[:2])) > 1


def test_scenarios_of_different_numbers_of_samples_are_no_times_to_compare(mixed):
    samples = {scenario.prediction.samples for scenario in mixed}
    assert len(samples) > 1
    (warning,) = (note for note in step_report.scenario_notes(mixed) if "samples" in note)
    assert f"{min(samples)} to {max(samples)}" in warning
    assert not any("samples" in note for note in step_report.scenario_notes(mixed[:2]))


def test_the_best_case_has_the_errors_of_the_golden_page():
    ratios = []
    for gpus in (768, 1536):
        (row,) = (line for line in PUBLISHED.read_text().splitlines() if f"| {gpus} GPUs |" in line)
        published_s, predicted_s = (float(cell) for cell in re.findall(r"\| ([\d.]+) s", row)[:2])
        ratios.append(f"{published_s / predicted_s:.1f}")
    assert " and ".join(ratios) in step_report.PUBLISHED_ZERO3


def test_a_bubble_of_too_few_micro_batches_is_marked_beside_the_number(mixed):
    lines = list(step_report.scenario_lines(mixed))
    stages, busy = mixed[2].prediction, mixed[3].prediction
    assert f"({stages.bubble_share:.0%}!)" in lines[3]
    assert f"({busy.bubble_share:.0%})" in lines[4]
    assert lines[5].lstrip().startswith("! bubble")  # right below the table
    assert any("micro_batches: 32" in line for line in lines)
    assert step_report.idle_stages_sentences([(mixed[3].request, busy)]) == []


def test_a_batch_that_is_too_small_on_more_nodes_is_found_on_these():
    found = predicted([4, 32], parallel="tp=8,pp=4", batch=8)
    assert [step.has_idle_stages for step in found.predictions] == [False, True]
    requested = [(found.request, step) for step in found.predictions]
    (sentence,) = step_report.idle_stages_sentences(requested)
    assert "--batch 256" in sentence  # 32 micro-batches on 8 data-parallel ranks


@pytest.mark.parametrize(("keys", "links"), [({"sharding": "fsdp"}, 8), ({"parallel": "tp=8"}, 1)])
def test_links_have_one_rate_in_both_units_and_their_number(keys, links):
    found = predicted([2], **keys)
    step = found.predictions[0]
    assert (step.links, step.link) == (links, 48.5e9)
    words = text(found)
    assert f"{step.busbw / 1e9:.3g} of {links} x 48.5 GB/s" in words
    assert "each has 388 Gbit/s (48.5 GB/s)" in words
    assert "388 GB/s" not in words


def test_the_answer_quotes_all_communication_where_the_exposed_share_is_a_best_case():
    found = predicted([2, 64], sharding="fsdp")
    first, last = (f"{step.communication_share:.0%}" for step in found.predictions)
    answer = text(found).partition("answer: ")[2]
    assert answer.startswith(f"quote {first} to {last} ")
    exposed = predicted([2, 64], sharding="fsdp", overlap=False)
    first, last = (f"{step.step.share:.1%}" for step in exposed.predictions)
    assert text(exposed).partition("answer: ")[2].startswith(f"quote {first} to {last} ")
    assert "best case" not in text(exposed)


def test_the_answer_says_between_which_nodes_the_wall_is():
    keys = {"parallel": "tp=8,pp=4", "sequence_length": 512}
    between = predicted([4, 64], **keys)
    assert between.wall == (4, 64)
    assert "between 4 and 64 nodes" in text(between)
    beyond = predicted([64], **keys)
    assert beyond.wall == (None, 64)
    assert "64 nodes or fewer" in text(beyond)
    below = predicted([2, 4], sharding="fsdp")
    assert below.wall == (4, None)
    assert "no wall up to 4 nodes" in text(below)


@pytest.mark.parametrize(
    ("over_published", "meaning"),
    [
        ((1.3, 1.34), "too high"),
        ((0.4, 0.6), "too low"),
        ((0.97, 1.02), "about right"),
        ((0.6, 1.3), "too low or too high"),
        (None, "too long or too short"),
    ],
)
def test_what_stands_in_for_an_algorithm_of_nccl_says_which_way_the_number_is_off(
    over_published, meaning
):
    found = predicted([1], parallel="tp=8")
    (step,) = found.predictions
    (call,) = step.unmodelled
    assert isinstance(call, UnmodelledWork)
    assert step.algorithms[call.work] in text(found)
    sentence = step_report.unmodelled_sentence(
        call._replace(over_published=over_published), step.algorithms[call.work]
    )
    assert sentence.endswith(meaning)
