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
