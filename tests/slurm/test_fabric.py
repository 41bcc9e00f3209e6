"""Racks, rails and aggregators of the testbed: bytes take the requested wires, and Slurm knows the topology."""

import sys
from pathlib import Path

import pytest

from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results

pytestmark = pytest.mark.slurm

WIRE = 12.5e6
"""Bytes per second of the wires and uplinks here: slow ones, so that the processors are not what limits them."""
SOME = 2 << 20
"""Bytes: a sixth of a second on a wire."""
SHAPE = ("--nodes", 4, "--rate", "100mbit", "--racks", 2, "--uplink", "100mbit", "--aggregators", 2, "--rails", 2)
EACH = ("--ntasks-per-node=1", "--partition=all", "--exclusive")


@pytest.fixture(scope="module")
def fabric(new_testbed):
    """Have four workers in two racks, two aggregators, and two rails."""
    testbed = new_testbed("fabric")
    testbed.up(*SHAPE)
    return testbed


@pytest.fixture
def carried(fabric):
    """Return the bytes that the devices of a host, or of the fabric, have sent."""

    def carried(host):
        init = fabric.status()["hosts"][host]["init"]
        lines = Path(f"/proc/{init}/net/dev").read_text().splitlines()[2:]
        return {name.strip(): int(facts.split()[8]) for name, _, facts in (line.partition(":") for line in lines)}

    return carried


@pytest.mark.usefixtures("mpiexec")  # which sees that there is an MPI library
def test_an_uplink_carries_what_is_counted_between_racks_whichever_way_ranks_are_numbered(fabric, carried, tmp_path):
    options = ["-a", "ring", "-b", SOME, "-e", SOME, "-n1", "-w0", "--rounds=1", "--in-place"]
    hpccoll = (sys.executable, "-m", "hpccoll", "run", *options)
    for mapping, racks in (("block", (0, 0, 1, 1)), ("cyclic", (0, 1, 0, 1))):
        step = ("env", "UCX_NET_DEVICES=eth0", "srun", "--mpi=pmi2", *EACH, "-N4", "-wn[1-4]")
        before = carried("fabric")["rack1-up"]
        fabric.slurm(*step, *hpccoll, "--mapping", mapping, "--out", tmp_path / f"{mapping}.h5")
        sent = carried("fabric")["rack1-up"] - before
        ((attempt, (outcome,)),) = hdf5.read_raw_file(tmp_path / f"{mapping}.h5").attempts
        assert attempt.layout.rack == (0, 0, 1, 1)
        crossing = sum(a != b for a, b in zip(racks, (*racks[1:], racks[0]), strict=True))
        assert outcome.rack_bytes_predicted == 6 * crossing * SOME / 4  # six steps, in each a quarter from every rank
        operations = 1 + outcome.counters["operations"]  # timed, and those whose bytes are counted
        assert 1 <= 2 * sent / operations / outcome.rack_bytes_predicted < 1.1


@pytest.mark.sweep
def test_a_sweep_with_aggregators_puts_them_on_hosts_of_their_own_at_every_size(fabric, tmp_path, mpiexec):  # noqa: ARG001 - there is an MPI library
    (tmp_path / "beside.yaml").write_text(
        "algorithms: [ring, sharp_emulated]\nbytes: 64K\nin_place: true\nnodes: [2, 4]\nranks_per_node: 1\n"
        "aggregators: 2\nrounds: 1\neffort: {warmup: 0, min_iterations: 2, max_iterations: 2}\n"
    )
    options = ("--profile", "testbed", "--out", tmp_path / "out")
    result = fabric.run(sys.executable, "-m", "hpccoll", "sweep", tmp_path / "beside.yaml", *options, timeout=600)
    assert result.code == 0, result.out + result.err
    rows = read_results([tmp_path / "out"]).rows
    seen = {(row.nodes, row.ranks, row.aggregators, row.algorithm, row.status) for row in rows}
    assert seen == {(n, n, 2, name, "ok") for n in (2, 4) for name in ("ring", "sharp_emulated")}
    assert {tuple(row.port_sent) for row in rows} == {("eth0", "rail2")}
    by_count = {(row.worker_sent_predicted, row.worker_received_predicted) for row in rows if row.algorithm != "ring"}
    assert by_count == {(65536, 65536)}  # a vector up and one down
    (raw,) = (tmp_path / "out" / "raw").glob("*.h5")
    for attempt, _ in hdf5.read_raw_file(raw).attempts:
        workers = [f"n{1 + me}" for me in range(attempt.nodes)]
        assert [place.host for place in attempt.places] == [*workers, "a1", "a2"]


def test_the_script_recognises_hosts_of_aggregators_by_their_feature(fabric, tmp_path, mpiexec):  # noqa: ARG001 - there is an MPI library
    script = Path(__file__).parents[2] / "slurm" / "in-network.sbatch"
    requested = ("--partition=all", "-N5", "--ntasks-per-node=2", "--constraint=[worker*4&aggregator*1]")
    result = fabric.run("sbatch", "--parsable", *requested, script, "-b", "4K", "-e", "4K", "-n", 2, cwd=tmp_path)
    assert fabric.end_of(result.out.strip()) == 0, result.err + "".join(
        log.read_text() for log in tmp_path.glob("*.log")
    )
    rows = read_results([tmp_path / "results" / "in-network" / "4x2+1.h5"]).rows
    names = ("ring", "sharp_emulated", "native")
    assert {(row.algorithm, row.nodes, row.ranks, row.aggregators) for row in rows} == {(n, 4, 8, 1) for n in names}


def test_what_each_rail_carried_is_counted_by_itself(fabric, tmp_path, mpiexec):  # noqa: ARG001 - there is an MPI library
    options = ("-a", "ring", "-b", "4M", "-e", "4M", "-n", 1, "-w", 0, "--in-place")
    for rails in ("eth0", "eth0,rail2"):
        out = tmp_path / f"{rails}.h5"
        step = ("srun", "--mpi=pmi2", "-N2", "-n2", sys.executable, "-m", "hpccoll", "run", *options, "--out", out)
        result = fabric.run(*step, UCX_NET_DEVICES=rails, timeout=600)
        assert result.code == 0, result.out + result.err
        (row,) = read_results([out]).rows
        carried = {port: sent / row.worker_sent_measured for port, sent in row.port_sent.items()}
        second = 0.5 if "rail2" in rails else 0
        assert carried == pytest.approx({"eth0": 1 - second, "rail2": second}, abs=0.1)


def test_status_prints_racks_rails_aggregators_and_the_rate_of_the_uplink(fabric):
    marker = fabric.status()["marker"]
    assert marker["racks"] == {"rack1": ["n1", "n2"], "rack2": ["n3", "n4"]}
    assert 0 < marker["uplink_Bps"] == marker["uplink_calibration"][-1]["Bps"] < 1.02 * WIRE
    status = fabric.command("status").out
    assert "4 x 2 cpus in 2 racks and 2 aggregators, wires 100mbit on 2 rails, uplinks 100mbit" in status
    lines = ("  rack2   n3 n4\n", "  a2      idle\n", "over the uplink, n1 to n3")
    assert not [line for line in lines if line not in status]
