"""The section ``workloads`` of a sweep file: training steps as cases of a sweep."""

import pytest

from hpccoll.common.errors import BadInputError
from hpccoll.sweep.case_product import count_cases, expand_cases
from hpccoll.sweep.sweep_file import load_sweep

STEP = "algorithms: [ring, native]\nranks: [2]\n"


@pytest.fixture
def sweep(tmp_path):
    def sweep(workloads, rest=STEP):
        path = tmp_path / "a.yaml"
        path.write_text(f"workloads: {workloads}\n{rest}")
        return load_sweep(path)

    return sweep


def cases(sweep):
    return list(expand_cases(sweep, 2))


def test_every_combination_of_every_section_is_a_case_of_each_algorithm(sweep):
    made = sweep("[{bucket: [5M, 25M], overlap: [true, false]}, {model: gpt2, scale: 64}]")
    found = {(case.algorithm, *sorted(case.params.items())) for case in cases(made)}
    assert len(found) == len(cases(made)) == 2 * (2 * 2 + 1)
    assert count_cases(made, 2) >= len(found)
    assert {case.collective for case in cases(made)} == {"training_step"}


def test_flags_and_sizes_are_read_as_people_write_them(sweep):
    (case, _) = cases(sweep("[{overlap: false, bucket: 5M, first_bucket: 1M, sequence: 0}]"))
    assert case.params == {"model": "resnet50", "overlap": 0, "bucket": 5 << 20, "first_bucket": 1 << 20}
    assert case.bytes == 102_228_128


def test_collectives_are_measured_besides_only_if_the_file_names_them(sweep):
    both = sweep("[{scale: 64}]", STEP + "collectives: [all_reduce]\nbytes: 8\nin_place: true\n")
    assert {case.collective for case in cases(both)} == {"training_step", "all_reduce"}


def test_a_model_file_is_part_of_the_plan(sweep, tmp_path):
    (tmp_path / "mine.yaml").write_text("modules: [{name: fc, tensors: {weight: 100}, forward_flops: 2e+3}]")
    made = sweep(f"[{{model: {tmp_path / 'mine.yaml'}}}]")
    assert {(case.params["model"], case.bytes) for case in cases(made)} == {("mine", 400)}
    assert made.models["mine"]["modules"][0]["name"] == "fc"


@pytest.mark.parametrize(
    ("workloads", "words"),
    [
        ("[{model: resnet51}]", ["model", "'resnet51'", "resnet50"]),
        ("[{modle: resnet50}]", ["modle"]),
        ("[{bucket: 0}]", ["bucket", "0"]),
        ("[{overlap: maybe}]", ["overlap", "maybe"]),
        ("[{buckets: dpp}]", ["buckets", "'dpp'", "ddp"]),
        ("[{scale: 0}]", ["scale", "0"]),
        ("[{model: none.yaml}]", ["none.yaml"]),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_its_name(sweep, workloads, words):
    with pytest.raises(BadInputError) as caught:
        sweep(workloads)
    assert not [word for word in words if word not in str(caught.value)]
