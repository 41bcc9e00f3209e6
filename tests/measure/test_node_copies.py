"""The rates of copies that programs of the health check of a node print."""

import json
import os

import pytest
from queued_memory import QueuedMemory

from hpccoll.common.errors import GpuFailedError
from hpccoll.measure.diagnose import gpu_copies, node_copies
from hpccoll.transports import gpu


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(node_copies, "BEYOND_CACHES", 1 << 16)
    monkeypatch.setattr(gpu_copies, "NBYTES", 1 << 16)


@pytest.mark.usefixtures("small")
def test_all_cpus_copy_and_the_threads_leave_this_process_where_it_was(capsys):
    before = os.sched_getaffinity(0)
    node_copies.print_copy_rate()
    answer = json.loads(capsys.readouterr().out)
    assert (answer["cpus"], os.sched_getaffinity(0)) == (len(before), before)
    assert answer["rate"] > 0


class Gpu(QueuedMemory):
    """A Gpu that is the host."""

    free_bytes = 1 << 20


@pytest.mark.usefixtures("small")
def test_a_gpu_copies_from_the_host_and_to_it_and_in_its_memory(tmp_path):
    mine = Gpu(tmp_path)
    rates = gpu_copies.gpu_copy_rates(mine)
    assert [*rates] == ["from the host", "to the host", "in its memory"]
    assert min(rates.values()) > 0
    assert mine.waits == len(rates) * (1 + gpu_copies.REPETITIONS)


@pytest.mark.usefixtures("small")
def test_a_gpu_that_fails_is_named_and_the_others_are_measured(tmp_path, monkeypatch, capsys):
    def start(number):
        if number == 1:
            raise GpuFailedError("an illegal\naddress")
        return Gpu(tmp_path)

    monkeypatch.setattr(gpu, "Gpu", start)
    monkeypatch.setattr(gpu, "missing_for_gpu", lambda _transport: None)
    monkeypatch.setattr(gpu, "device_count", lambda: 3)
    monkeypatch.setattr(gpu, "device_bus", lambda number: f"0000:0{number}:00.0")
    gpu_copies.print_gpu_copy_rates()
    answer = json.loads(capsys.readouterr().out)
    assert [*answer["rates"]] == ["0000:00:00.0", "0000:02:00.0"]
    assert answer["failed"] == {"0000:01:00.0": "an illegal address"}


def test_without_cupy_the_copies_of_gpus_are_skipped_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "missing_for_gpu", lambda _transport: "cupy is not installed")
    gpu_copies.print_gpu_copy_rates()
    assert json.loads(capsys.readouterr().out) == {"skipped": "cupy is not installed"}
