"""Contributions: rows of a run as rows of the published table, and nothing else of the run."""

import csv
from dataclasses import replace

import pytest
from published_outputs import Call, imported, log_of, printed

from hpccoll.common.errors import BadInputError
from hpccoll.evidence.log_set import read_logs
from hpccoll.judge.contribution import ContributorForm, contribution_of
from hpccoll.judge.verdicts import judge_rows
from hpccoll.model.machine_file import read_machine
from hpccoll.model.published_table import table_text
from hpccoll.store.load_results import to_results

GIB, GB = 1 << 30, 1e9
H100 = read_machine("8xh100-400g", "--cluster")
CALLS = Call(GIB, 450), Call(GIB, 451, in_place=True)
SECRETS = "secret-host", "alice", "/home/alice/run"
UNNAMED = "NVIDIA Graphics Device"


def contribute(path, text, machine=H100, log=None, form=None, **given):
    files = imported(path / "out.txt", text, **given)
    results = to_results(files)
    judged = judge_rows(files, results, machine, log)
    return contribution_of(judged, results.runs, machine, form or ContributorForm(), log)


def figures(contribution):
    return [figure for _, figure in contribution.figures]


def test_each_row_has_its_class_call_rate_gpu_and_version(tmp_path):
    contribution = contribute(tmp_path, printed(CALLS))
    assert [fabric for fabric, _ in contribution.figures] == ["nvlink4"] * 2
    assert [figure.in_place for figure in figures(contribution)] == [False, True]
    figure, _ = figures(contribution)
    place = figure.network, figure.gpus_per_node, figure.nodes, figure.collective, figure.nbytes
    assert place == ("400g", 8, 2, "all_reduce", GIB)
    assert figure.rate == pytest.approx(450 * GB, rel=1e-3)
    assert (figure.gpu, figure.library, figure.dtype) == ("H100", "2.27.7", "float32")
    assert (figure.algorithm, figure.forced) == ("", False)
    assert (figure.run, figure.operator, figure.source) == ("", "", "")
    assert contribution.left_out == {}


def test_ranks_of_one_fabric_have_no_network(tmp_path):
    figure, _ = figures(contribute(tmp_path, printed(CALLS, nodes=1)))
    assert figure.network is None


def test_the_form_fills_what_no_result_says(tmp_path):
    form = ContributorForm(machine="pod 1", operator="Example", source="Lab, 2026-11", gpu="H200")
    figure, _ = figures(contribute(tmp_path, printed(CALLS), form=form))
    said = figure.run, figure.operator, figure.source, figure.gpu
    assert said == ("pod 1", "Example", "Lab, 2026-11", "H200")


def test_an_algorithm_is_written_if_a_log_proves_it(tmp_path):
    log = read_logs({"nccl.log": log_of(CALLS, "NVLS_TREE")})
    figure, _ = figures(contribute(tmp_path, printed(CALLS), log=log))
    assert (figure.algorithm, figure.forced) == ("NVLSTree", False)


@pytest.mark.parametrize("field", ["machine", "operator", "source", "gpu"])
@pytest.mark.parametrize("text", ["on node-1", "see /home/alice/run", "~/run"])
def test_a_text_of_the_form_with_a_host_or_a_path_is_refused(tmp_path, field, text):
    any_gpu = H100.model_copy(
        update={"machine_class": H100.machine_class.model_copy(update={"gpus": []})}
    )
    with pytest.raises(BadInputError, match="without a"):
        contribute(tmp_path, printed(CALLS), any_gpu, form=ContributorForm(**{field: text}))


def test_a_source_may_be_an_address(tmp_path):
    form = ContributorForm(source="https://example.org/runs/1, example/repository@1 README.md")
    assert figures(contribute(tmp_path, printed(CALLS), form=form))[0].source == form.source


def test_no_host_user_or_path_of_the_results_is_written(tmp_path):
    """Every text of the run holds all of them, also where a program would not print it."""
    files = imported(tmp_path / "out.txt", printed(CALLS))
    results = to_results(files)
    secret = " ".join(SECRETS)
    (run,) = results.runs
    hosts = ["secret-host", "secret-host.example"]
    texts = {name: secret for name in run.provenance if isinstance(run.provenance[name], str)}
    run = replace(
        run, job=secret, machine=secret, path=secret, created=secret, environment={"USER": secret},
        provenance={**run.provenance, **texts, "hosts": hosts, "variables": {"HOME": secret},
                    "device_names": [f"{secret} NVIDIA H100 80GB"], "nccl": {"version": secret}},
    )  # fmt: skip
    judged = [
        replace(
            judgement,
            library=f"NCCL 2.27.7 {secret}",
            reason=secret,
            row=replace(
                judgement.row,
                **dict.fromkeys(("job", "case_id", "variant", "reason", "evidence"), secret),
                executed=f"ring {secret}",
            ),
        )
        for judgement in judge_rows(files, results, H100)
    ]
    contribution = contribution_of(judged, [run], H100, ContributorForm())
    assert len(contribution.figures) == 2
    text = table_text(contribution.figures)
    words = {word for secret in SECRETS for word in (secret, secret.strip("/").split("/")[0])}
    assert not [word for word in words if word in text]
    assert {row["algorithm"] for row in csv.DictReader(text.splitlines())} == {"ring"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (printed((Call(GIB, 180),)), "fails"),
        (printed(CALLS, gpu=UNNAMED), "--gpu H100 or H200"),
        (printed(CALLS, gpu="NVIDIA A100"), "A100"),
        (printed(CALLS, warmup=0), "warm-up"),
    ],
)
def test_rows_that_the_table_cannot_have_are_left_out_with_what_to_do(tmp_path, text, words):
    contribution = contribute(tmp_path, text)
    assert contribution.figures == []
    (reason,) = contribution.left_out
    assert words in reason


def test_a_gpu_that_results_do_not_name_is_that_of_a_class_of_one_gpu(tmp_path):
    h100_only = H100.model_copy(
        update={"machine_class": H100.machine_class.model_copy(update={"gpus": ["H100"]})}
    )
    figure, _ = figures(contribute(tmp_path, printed(CALLS, gpu=UNNAMED), h100_only))
    assert figure.gpu == "H100"


def test_a_cluster_without_a_class_or_a_network_says_which_option_helps(tmp_path):
    no_class = H100.model_copy(update={"machine_class": None})
    with pytest.raises(BadInputError, match="--cluster"):
        contribute(tmp_path, printed(CALLS), no_class)
    unknown = H100.machine_class.model_copy(update={"network": None})
    contribution = contribute(
        tmp_path, printed(CALLS), H100.model_copy(update={"machine_class": unknown})
    )
    assert ["--cluster" in reason for reason in contribution.left_out] == [True]


def test_the_gpu_of_the_form_is_one_of_the_class(tmp_path):
    with pytest.raises(BadInputError, match="H200"):
        contribute(tmp_path, printed(CALLS), form=ContributorForm(gpu="A100"))


def test_calls_of_other_libraries_are_left_out(tmp_path):
    contribution = contribute(tmp_path, printed(CALLS), read_machine("8xmi300x-400g", "--cluster"))
    assert [reason.split(":")[0] for reason in contribution.left_out] == ["8xmi300x-400g has RCCL"]
