"""What a command cannot do takes one line, with the key, the value and the valid choices, and writes nothing."""

import shlex
from pathlib import Path

import pytest
from cli_runner import invoke
from golden_page import assert_golden

from hpccoll.cli.run_options import build_parser, job_from_args
from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.cli.train import TRAIN
from hpccoll.schedule import Layout

GOLDEN = Path(__file__).with_name("golden")
COMMANDS = [
    line for line in (GOLDEN / "refusals.txt").read_text().splitlines() if line.startswith("$ ")
]

MODEL = b"modules: [{name: body, tensors: {weight: 9000}, forward_flops: 2.4e+3}]"
FILES = {
    "sweep.yaml": b"algorithms: [ring]\n",
    "a.log": b"\x1f\x8b nothing of the kind\n",
    "resnet50.yaml": MODEL,
    "mine.yaml": MODEL.replace(b"forward_flops", b"flops"),
    "one/mine.yaml": MODEL,
    "two/mine.yaml": MODEL,
    "steps.yaml": b"scenarios: [{name: a, cluster: 8xh100-400g, model: gpt2, nodes: 2}]",
}


def refusal(command, *arguments):
    """Return the line that a command prints; the options of ``run`` and ``train`` are read without starting MPI."""
    parsers = {"run": build_parser, "train": TRAIN.build_parser}
    if command not in parsers:
        result = invoke(command, *arguments)
        assert result.is_bad_input()
        return result.err.rstrip("\n")
    with pytest.raises(BadInputError) as caught:
        job_from_args(parsers[command]().parse_args(arguments), Layout.of(2, 2))
    return f"hpccoll: {caught.value}"


def test_the_refusals_of_commands_are_the_golden_page(tmp_path, monkeypatch):
    """The page has the commands, each followed by its line."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(text)
    Path("empty").mkdir()
    lines = [line for command in COMMANDS for line in (command, refusal(*shlex.split(command)[2:]))]
    assert not [line for line in lines if "\n" in line]
    assert {*map(str, Path().rglob("*"))} == {*FILES, "empty", "one", "two"}
    assert_golden("refusals", lines, GOLDEN)


WITH_FAULTS = (
    "accept nowhere",
    "accept sweep.yaml --reference nowhere --ratios",
    "compare nowhere",
    "count nowhere -- true",
    "export nowhere --rule some",
    "fit sweep.yaml --declare nowhere",
    "import nowhere --out a.h5 --ranks 0",
    "plan nowhere --format none",
    "predict --against nowhere",
    "predict step --scenarios nowhere --nodes many",
    "report nowhere --size many",
    "status nowhere",
    "sweep nowhere --profile none",
    "trace sweep.yaml --against nowhere",
    "tune nowhere",
    "tune --lint nowhere --out a",
)
"""Command lines that name a file that does not exist, and have other faults."""


@pytest.mark.parametrize("command", WITH_FAULTS)
def test_a_file_that_does_not_exist_is_named_before_any_other_fault(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_bytes(FILES["sweep.yaml"])
    assert invoke(*command.split()).is_bad_input("'nowhere' cannot be read: No such file")


def test_a_raw_file_that_is_being_measured_and_has_only_its_journal_exists(tmp_path):
    (tmp_path / "a.h5.journal").touch()
    assert "No such file" not in invoke("status", tmp_path / "a.h5").err
