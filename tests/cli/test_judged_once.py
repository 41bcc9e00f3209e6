"""What a judgement takes is computed once: rows of results, comparisons with a reference, verdicts of a diagnosis."""

from collections import Counter

import pytest
import raw_examples
from cli_runner import invoke
from predicted_machines import cluster
from recorded_diagnoses import recorded
from written_runs import write_run

from hpccoll.diagnosis import diagnosis_file, verdict
from hpccoll.diagnosis.diagnosis_file import write_diagnosis
from hpccoll.judge import reference, run_comparison, verdicts
from hpccoll.model import observations
from hpccoll.model.machine_file import write_machine
from hpccoll.render import diagnosis_page
from hpccoll.store import hdf5, load_results

CASES = 8


@pytest.fixture
def calls(monkeypatch):
    """Return a function that counts the calls of a function under the names by which some modules have it."""
    counts = Counter()

    def count(name, *modules):
        function = getattr(modules[0], name)

        def counted(*arguments, **options):
            counts[name] += 1
            return function(*arguments, **options)

        for module in modules:
            monkeypatch.setattr(module, name, counted)
        return counts

    return count


@pytest.fixture
def machine(tmp_path):
    """Return the file of a machine, and results of one of our algorithms and of the library's own call."""
    write_machine(cluster(), tmp_path / "paper.yaml")
    cases = raw_examples.case(), raw_examples.case(algorithm="native")
    hdf5.write_raw_file(raw_examples.raw(*map(raw_examples.outcome, cases)), tmp_path / "whole.h5")
    return tmp_path / "paper.yaml", tmp_path / "whole.h5"


def test_accept_makes_each_row_and_each_comparison_with_a_reference_once(calls, tmp_path):
    runs = [write_run(tmp_path / f"{seed}.h5", seed=seed) for seed in range(4)]
    assert invoke("compare", "--make-reference", *runs[:3], "--out", tmp_path / "F.json").code == 0
    calls("make_row", load_results, observations)
    counts = calls("compare_sides", run_comparison, reference, verdicts)
    invoke("accept", runs[3], "--reference", tmp_path / "F.json")
    assert counts == {"make_row": CASES, "compare_sides": 1}


@pytest.mark.parametrize(
    "words",
    [
        ("accept", "{results}", "--cluster", "{cluster}"),
        ("predict", "--cluster", "{cluster}", "--against", "{results}"),
    ],
)
def test_what_is_held_against_a_machine_is_made_a_row_once(words, calls, machine):
    described, results = machine
    counts = calls("make_row", load_results, observations)
    assert invoke(*(word.format(results=results, cluster=described) for word in words)).code in (
        0,
        3,
    )
    assert counts == {"make_row": 2}


def test_diagnose_judges_a_recorded_diagnosis_once_for_its_text_and_its_page(calls, tmp_path):
    write_diagnosis(recorded(8), tmp_path / "F.h5")
    counts = calls("verdict_of", verdict, diagnosis_page, diagnosis_file)
    assert invoke("diagnose", "--report", tmp_path / "F.h5", "--out", tmp_path / "F.html").code == 0
    assert counts == {"verdict_of": 1}
