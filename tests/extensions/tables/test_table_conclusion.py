"""What a table changes, and why it leaves calls to the library, from what is measured to be faster and not used."""

from dataclasses import replace

import pytest
from library_results import library_results

from hpccoll.extensions.tables.library_choices import library_choices
from hpccoll.extensions.tables.table_conclusion import TableConclusion, conclusion_findings
from hpccoll.extensions.tables.unused_gains import UnusedGain

SMALL, LARGE = 1024, 65536


def noise(algorithm, *sizes):
    return UnusedGain(algorithm, "noise", dict.fromkeys(sizes, 1.3))


def choices_with(*unused, faster_at=()):
    """Return the choices of two sizes, at some of them a ring is faster, with what is not used."""
    default = {SMALL: 10, LARGE: 10}
    ring = {size: 5 if size in faster_at else 20 for size in default}
    results = library_results("openmpi", {"default": default, "openmpi-ring": ring})
    choices = library_choices(results, "openmpi", "", by_nodes=False, has_default=True)
    return replace(choices, unused={choices.ranges[0].ranks_of_call: unused})


def only_finding(choices):
    (finding,) = conclusion_findings(choices)
    return finding


def test_a_size_at_which_two_algorithms_may_be_faster_is_noisy_once():
    conclusion = TableConclusion.of(choices_with(noise("tree", SMALL), noise("linear", SMALL)))
    assert (conclusion.sizes, conclusion.noisy_sizes) == (2, 1)


def test_a_table_that_is_noisy_at_all_sizes_does_not_say_that_nothing_is_faster():
    text = only_finding(choices_with(noise("tree", SMALL, LARGE))).text
    assert "2 of 2 sizes" in text
    assert "clearly faster" not in text


def test_what_is_left_out_is_the_reason_also_beside_noise_at_all_other_sizes():
    noisy = choices_with(noise("tree", SMALL, LARGE))
    faster = choices_with(faster_at=(SMALL, LARGE)).ranges
    text = only_finding(replace(noisy, inexpressible=faster)).text
    assert "left out" in text
    assert "2 of 2 sizes" in text


@pytest.mark.parametrize(("reason", "is_said"), [("range", True), ("other calls", False)])
def test_an_algorithm_that_is_faster_at_a_size_only_is_not_denied(reason, is_said):
    text = only_finding(choices_with(UnusedGain("tree", reason, {SMALL: 1.3}))).text
    assert ("over a range of sizes" in text) == is_said


def test_a_table_that_changes_calls_warns_where_noise_leaves_others_open():
    changed = choices_with(noise("tree", SMALL), faster_at=(LARGE,))
    finding = only_finding(changed)
    assert (finding.kind, finding.severity) == ("too_noisy", "warning")
    assert finding.values == {"sizes": 2, "noisy_sizes": 1}
    assert not list(conclusion_findings(choices_with(faster_at=(SMALL, LARGE))))
