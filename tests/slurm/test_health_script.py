"""The script of the health check, with stand-ins for hpccoll and scontrol: what it has Slurm do with the node."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "slurm" / "healthcheck.sh"

HPCCOLL = """\
#!/bin/sh
echo "$@" > {directory}/options
echo "{line}"
exit {code}
"""

SCONTROL = """\
#!/bin/sh
case $1 in
    show) echo "NodeName=n1 Arch=x86_64 State={state} ThreadsPerCore=1 Reason={reason} [root@now]" ;;
    update) shift; printf '%s\\n' "$@" > {directory}/update ;;
esac
"""

BAD, HEALTHY, UNKNOWN = "bad: memory copies", "healthy: memory copies", "cannot tell: busy"
OURS, THEIRS = "hpccoll: bad: old", "broken fan"
DRAIN = ["NodeName=n1", "State=DRAIN", f"Reason=hpccoll: {BAD}"]
RESUME = ["NodeName=n1", "State=RESUME"]


@pytest.fixture
def check(tmp_path, require):
    """Return a function that runs the script and returns its exit code and the update of the node."""
    require(shutil.which("flock"), "there is no flock")

    def check(code, line, state="IDLE", reason="none", **variables):
        about = {"directory": tmp_path, "line": line, "code": code, "state": state}
        for name, text in {"hpccoll": HPCCOLL, "scontrol": SCONTROL}.items():
            (tmp_path / name).write_text(text.format(**about, reason=reason))
            (tmp_path / name).chmod(0o755)
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURMD_NODENAME": "n1",
            "HPCCOLL": str(tmp_path / "hpccoll"),
            "HPCCOLL_REFERENCE": str(tmp_path / "node.json"),
            "RUNTIME_DIRECTORY": str(tmp_path),
            **variables,
        }
        ended = subprocess.run(
            [SCRIPT], env=environment, capture_output=True, text=True, check=False
        )
        update = tmp_path / "update"
        return ended.returncode, update.read_text().splitlines() if update.exists() else None

    return check


@pytest.mark.parametrize(
    ("code", "line", "state", "reason", "update"),
    [
        (3, BAD, "IDLE", "none", DRAIN),
        (3, BAD, "IDLE+DRAIN", OURS, DRAIN),
        (3, BAD, "IDLE+DRAIN", THEIRS, None),
        (0, HEALTHY, "IDLE", "none", None),
        (0, HEALTHY, "IDLE+DRAIN", OURS, RESUME),
        (0, HEALTHY, "IDLE+DRAIN", THEIRS, None),
        (0, UNKNOWN, "IDLE", "none", None),
        (0, UNKNOWN, "IDLE+DRAIN", OURS, None),
    ],
)
def test_only_a_bad_node_is_drained_and_only_a_healthy_one_that_we_drained_is_resumed(
    check, code, line, state, reason, update
):
    assert check(code, line, state, reason) == (0, update)


@pytest.mark.parametrize(
    ("code", "as_health_check", "as_prolog"), [(0, 0, 0), (3, 0, 1), (1, 1, 0), (127, 127, 0)]
)
def test_as_a_prolog_it_fails_on_a_bad_node_only(check, code, as_health_check, as_prolog):
    line = {0: HEALTHY, 3: BAD}.get(code, "")
    assert check(code, line)[0] == as_health_check
    assert check(code, line, SLURM_JOB_ID="7")[0] == as_prolog


def test_a_check_that_is_broken_changes_nothing(check):
    assert check(1, "")[1] is None


def test_the_reference_is_used_if_it_exists(check, tmp_path):
    check(0, HEALTHY)
    assert (tmp_path / "options").read_text() == "diagnose --here\n"
    (tmp_path / "node.json").touch()
    check(0, HEALTHY)
    assert (tmp_path / "options").read_text() == (
        f"diagnose --here --reference {tmp_path}/node.json\n"
    )


def test_shellcheck_finds_nothing_in_it(require):
    require(shutil.which("shellcheck"), "there is no shellcheck")
    result = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")
