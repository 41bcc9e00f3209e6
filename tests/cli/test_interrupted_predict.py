"""Ctrl-C on a prediction that takes long: what is complete is printed, and a line names the rest."""

import json
import signal
import subprocess
import sys

import pytest
from cli_runner import ENVIRONMENT
from predicted_machines import cluster

from hpccoll.common.interruption import INTERRUPTED
from hpccoll.model.machine_file import write_machine

LONG_S = 240
"""What takes seconds has this long: processors may be busy."""

SIZES = "-b", "1K", "-e", "1K"


@pytest.fixture
def interrupted(tmp_path):
    """Interrupt ``hpccoll`` by a signal once its progress says that one prediction is complete."""
    write_machine(cluster(), tmp_path / "c.yaml")

    def run(number, *arguments):
        command = [sys.executable, "-m", "hpccoll", *arguments, "--cluster", tmp_path / "c.yaml"]
        with subprocess.Popen(
            command,
            env=ENVIRONMENT,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            lines = []
            for line in child.stderr:
                lines.append(line)
                if line.startswith("1 of 2"):
                    child.send_signal(number)
                    break
            printed, complaints = child.communicate(timeout=LONG_S)
        assert "Traceback" not in complaints
        return child.returncode, printed, "".join(lines) + complaints

    return run


def test_the_cheap_prediction_is_complete_and_the_long_one_is_left_out(interrupted):
    # the tree pairs its ranks one by one, which takes a minute
    code, printed, complaints = interrupted(
        signal.SIGINT,
        "predict",
        "-a",
        "double_binary_tree,recursive_doubling",
        "--nodes",
        "65536",
        *SIZES,
    )
    assert code == INTERRUPTED
    assert "1 of 2 predictions" in complaints
    assert "double_binary_tree on 65,536 ranks, 1 KiB" in complaints
    assert "recursive_doubling" in printed
    assert printed.splitlines()[-1] == (
        "left out on 65536 nodes: interrupted before 1 prediction of double_binary_tree"
    )


def test_rows_and_a_picture_are_of_what_is_complete_after_sigterm(interrupted, tmp_path):
    code, printed, complaints = interrupted(
        signal.SIGTERM,
        "predict",
        "-a",
        "double_binary_tree,recursive_doubling",
        "--nodes",
        "65536",
        *SIZES,
        "--json",
        "--out",
        "F.svg",
    )
    assert code == INTERRUPTED
    assert [row["algorithm"] for row in json.loads(printed)] == ["recursive_doubling"]
    assert complaints.splitlines()[-1].startswith("hpccoll: left out on 65536 nodes: interrupted")
    assert "recursive_doubling" in (tmp_path / "F.svg").read_text()
