"""What a node does alone, as a rank measures it, and as rates of nodes."""

import json
from pathlib import Path

import numpy as np
import pytest
from queued_memory import QueuedMemory

from hpccoll.diagnosis.nodes_alone import DOES, HOSTS_SHARE_A_MACHINE, MEMORY, PRODUCT
from hpccoll.measure.diagnose import own_rates
from hpccoll.measure.diagnose.own_rates import REPETITIONS, own_seconds, seconds_of_nodes
from hpccoll.transports import gpu
from hpccoll.transports.nccl import fold


def test_a_rank_measures_every_rate_on_its_host():
    found = own_seconds(1)
    assert [*found] == [*DOES]
    assert all(each.shape == (REPETITIONS,) and (each > 0).all() for each in found.values())


def test_a_node_is_as_fast_as_the_slowest_of_its_ranks_in_what_all_of_them_measured():
    ranks = [
        {MEMORY: np.array([1.0, 5.0])},
        {MEMORY: np.array([2.0, 3.0])},
        {MEMORY: np.array([4.0, 4.0])},
    ]
    ranks[0]["product"] = np.array([1.0, 1.0])
    found = seconds_of_nodes(ranks, [0, 0, 1])
    assert {name: seconds.tolist() for name, seconds in found.items()} == {MEMORY: [[2, 4], [5, 4]]}


class Gpu(QueuedMemory):
    """A Gpu that is the host, and counts its products."""

    free_bytes = 1 << 20

    def __init__(self, directory):
        super().__init__(directory)
        self.products_of_rows = []

    def products(self, _most_rows):
        return lambda rows, number: self.products_of_rows.extend([rows] * number)


@pytest.mark.parametrize("missing", [None, "no cuBLAS"])
def test_a_rank_with_a_gpu_measures_its_copies_folds_and_products(monkeypatch, tmp_path, missing):
    folds, mine = [], Gpu(tmp_path)
    monkeypatch.setattr(fold, "_function", lambda *_: lambda grid, *_, **__: folds.append(grid))
    monkeypatch.setattr(gpu, "missing_cublas", lambda: missing)
    found = own_seconds(1, mine)
    calls = (1 + REPETITIONS) * own_rates.ON_GPU_TIMES
    assert [*found] == [name for name in DOES if name != PRODUCT or missing is None]
    assert mine.products_of_rows == [] if missing else [own_rates.ON_GPU_ROWS] * calls
    assert len(folds) == calls
    assert mine.waits == (1 + REPETITIONS) * len(found)


@pytest.mark.mpi
@pytest.mark.parametrize("machines", [True, False])
def test_a_diagnosis_has_the_rates_of_its_nodes_unless_these_share_a_machine(
    mpiexec, tmp_path, machines
):
    options = {"nodes": ["n1", "n2", "n3", "n1", "n2", "n3"], "machines": machines, "slot_s": 0.001}
    program = Path(__file__).with_name("diagnosis_ranks.py")
    ended = mpiexec(6, program, tmp_path / "out.json", json.dumps(options))
    assert ended.returncode == 0, ended.stderr
    recorded = json.loads((tmp_path / "out.json").read_text())
    shapes = {name: np.shape(seconds) for name, seconds in recorded["rates"].items()}
    assert shapes == (dict.fromkeys(DOES, (REPETITIONS, 3)) if machines else {})
    assert recorded["provenance"][HOSTS_SHARE_A_MACHINE] is not machines
