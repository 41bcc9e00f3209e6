import os

import pytest

from hpccoll.evidence.log_settings import (
    INTERRUPTED_FILE,
    LOG_VARIABLES,
    copy_nccl_settings,
    enable_logging,
    remove_old_logs,
)
from hpccoll.evidence.probe_result import ProbeResult


@pytest.fixture
def environment(monkeypatch):
    """The environment, as a rank may change it."""
    mine = {name: value for name, value in os.environ.items() if name != "NCCL_CONF_FILE"}
    monkeypatch.setattr(os, "environ", mine)
    return mine


def test_libraries_log_into_the_directory(tmp_path, environment):
    enable_logging(tmp_path / "logs")
    assert environment["NCCL_DEBUG_FILE"] == f"{tmp_path}/logs/nccl.%h.%p.log"
    assert environment.keys() >= LOG_VARIABLES.keys()


def test_configuration_files_of_nccl_are_in_the_record_and_one_that_is_named_replaces_that_at_home(
    tmp_path, environment
):
    environment["HOME"], logs = str(tmp_path), tmp_path / "logs"
    (tmp_path / ".nccl.conf").write_text("NCCL_IB_HCA=mlx5\nSECRET=1\n# NCCL_ALGO=Tree\n")
    logs.mkdir()
    copy_nccl_settings(logs)
    (logs / "a.log").write_text("n1:9:9 [0] NCCL INFO Using network IB\n")
    record = ProbeResult.from_logs(logs).record
    assert (record.settings["NCCL_IB_HCA"], record.files[0].endswith(".1-own.conf")) == (
        "mlx5",
        True,
    )
    assert "SECRET" not in next(logs.glob("*.conf")).read_text()
    environment["NCCL_CONF_FILE"] = str(tmp_path / "other")
    (tmp_path / "other").write_text("NCCL_ALGO=Ring\n")
    copy_nccl_settings(logs)
    assert [path.read_text() for path in logs.glob("*own.conf")] == ["NCCL_ALGO=Ring\n"]


def test_logs_of_an_earlier_launch_are_removed(tmp_path):
    for name in ("nccl.n1.7.log", "n1.2-etc.conf", "topology.xml", INTERRUPTED_FILE, "launch.log"):
        (tmp_path / name).write_text("n1:9:9 [0] NCCL INFO Using network IB\n")
    remove_old_logs(tmp_path)
    # which the launcher writes anew
    assert [path.name for path in tmp_path.iterdir()] == ["launch.log"]
