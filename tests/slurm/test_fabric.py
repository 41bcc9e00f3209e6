"""Racks, rails and aggregators of the testbed: bytes take the requested wires, and Slurm knows the topology."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from wire_flows import EACH, send_flows

from hpccoll.store import hdf5
from hpccoll.store.load_results import read_results

pytestmark = pytest.mark.slurm

WIRE = 12.5e6
"""Bytes per second of the wires and uplinks here: slow ones, so that the processors are not what limits them."""
SOME = 2 << 20
"""Bytes: a sixth of a second on a wire."""


@pytest.fixture
def flow(fabric, tmp_path):
    """Send bytes from host to host, several pairs at once; return the bytes per second of all from begin to end.

    It has no lower bound: processors may be busy. But what shares a wire is never faster than the
    wire.
    """

    def flow(*pairs):
        times = send_flows(fabric, tmp_path, SOME, *pairs)
        begun, ended = zip(*times, strict=True)
        return len(pairs) * SOME / (max(ended) - min(begun))

    return flow


@pytest.fixture
def carried(fabric):
    """Return the bytes that the devices of a host, or of the fabric, have sent."""

    def carried(host):
        init = fabric.status()["hosts"][host]["init"]
        lines = Path(f"/proc/{init}/net/dev").read_text().splitlines()[2:]
        return {
            name.strip(): int(facts.split()[8])
            for name, _, facts in (line.partition(":") for line in lines)
        }

    return carried


def test_pairs_across_the_uplink_share_it_and_pairs_inside_racks_do_not(flow, carried):
    for pairs, shared in (
        (("n1:n2", "n3:n4"), {"rack1-up": 0, "rack2-up": 0}),
        (("n1:n3", "n2:n4"), {"rack1-up": 2, "rack2-up": 0}),
        (("n1:a1", "n2:a2"), {"rack1-up": 2, "rack2-up": 0}),
        (("a1:n1", "a2:n2"), {"rack1-down": 2, "rack2-down": 0}),
    ):
        before = carried("fabric")
        rate = flow(*pairs)
        after = carried("fabric")
        assert {port: round((after[port] - before[port]) / SOME) for port in shared} == shared
        if any(shared.values()):
            assert rate < 1.06 * WIRE


@pytest.mark.usefixtures("mpiexec")  # which sees that there is an MPI library
def test_an_uplink_carries_what_is_counted_between_racks_whichever_way_ranks_are_numbered(
    fabric, carried, tmp_path
):
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
        # six steps, in each a quarter from every rank
        assert outcome.rack_bytes_predicted == 6 * crossing * SOME / 4
        operations = 1 + outcome.counters["operations"]  # timed, and those whose bytes are counted
        assert 1 <= 2 * sent / operations / outcome.rack_bytes_predicted < 1.1


def inside(fabric, host, *command):
    """Return the output of a command in the network of a host."""
    init = fabric.status()["hosts"][host]["init"]
    nsenter = ["nsenter", f"--target={init}", "--net", *command]
    return subprocess.run(nsenter, capture_output=True, text=True, check=True).stdout


def test_an_aggregator_has_no_meter_but_its_workers_do(fabric, flow):
    for host in ("n1", "n2", "n3", "n4", "a1", "a2"):
        seen = inside(fabric, host, "tc", "qdisc", "show")
        metered = [
            device
            for device in ("eth0", "rail2")
            if re.search(rf"tbf .* dev {device} root .*rate 100Mbit", seen)
        ]
        assert metered == (["eth0", "rail2"] if host.startswith("n") else []), seen
    # each pair alone could fill its way but for n1's own wire
    for pairs in (("n1:n2", "n1:a1"), ("n2:n1", "a1:n1")):
        assert flow(*pairs) < 1.06 * WIRE


def test_no_packet_is_lost_where_several_hosts_send_to_one(fabric, flow):
    assert flow("n2:n1", "n3:n1", "n4:n1") < 1.06 * WIRE
    dropped = re.findall(r"dropped (\d+)", inside(fabric, "fabric", "tc", "-s", "qdisc", "show"))
    assert set(dropped) == {"0"}


def test_every_rail_has_the_congestion_control_of_linux_whatever_the_machine_has(fabric):
    for host, rails in (("head", 1), ("n1", 2), ("a1", 2)):
        routes = inside(fabric, host, "ip", "route", "show").splitlines()
        assert len(routes) == rails
        assert all("congctl cubic" in route for route in routes), routes


def test_the_second_wire_carries_and_counts_what_is_sent_to_its_name(fabric, flow):
    read = (
        "from hpccoll.host.network_ports import SENT, find_ports, read_counters; "
        "print({p: v for (p, n), v in read_counters(find_ports()).items() if n == SENT})"
    )

    def sent():
        return eval(fabric.slurm("srun", "--nodelist=n1", sys.executable, "-c", read))  # noqa: S307 - our own words

    before = sent()
    rate = flow("n1:n2-r2")
    after = sent()
    assert set(before) == {"eth0", "rail2"}
    assert SOME < after["rail2"] - before["rail2"] < 1.05 * SOME
    assert after["eth0"] - before["eth0"] < SOME / 8  # what Slurm has to say
    assert rate < 1.06 * WIRE


def test_a_step_has_the_topology_address_of_every_node(fabric):
    script = "echo $(hostname) $SLURM_TOPOLOGY_ADDR $SLURM_TOPOLOGY_ADDR_PATTERN"
    topology = dict(
        line.split(" ", 1)
        for line in fabric.slurm(
            "srun", *EACH, "-N5", "-wn[1-4],a1", "sh", "-c", script
        ).splitlines()
    )
    racks = {"n1": "rack1", "n2": "rack1", "n3": "rack2", "n4": "rack2", "a1": "aggregators"}
    assert topology == {
        host: f"spine.{rack}.{host} switch.switch.node" for host, rack in racks.items()
    }


def test_aggregators_have_a_feature_and_are_in_a_partition_that_a_job_must_ask_for(fabric):
    seen = fabric.slurm("sinfo", "--noheader", "--Node", "--format=%P %N %f").splitlines()
    workers = [f"n{i} worker" for i in range(1, 5)]
    assert {line for line in seen if line.startswith("work*")} == {
        f"work* {line}" for line in workers
    }
    helpers = [f"a{i} aggregator" for i in (1, 2)]
    assert {line for line in seen if line.startswith("all")} == {
        f"all {line}" for line in (*workers, *helpers)
    }
    requested = fabric.slurm(
        "srun", *EACH, "-N5", "--constraint=[worker*4&aggregator*1]", "hostname"
    ).split()
    assert sorted(requested) == ["a1", "n1", "n2", "n3", "n4"]


def test_the_last_ranks_are_on_the_aggregators_where_the_list_says_so(fabric):
    hosts = "n1,n1,n2,n2,n3,n3,n4,n4,a1"
    inner = ("srun", "-n9", "--mpi=pmi2", "--distribution=arbitrary", f"--nodelist={hosts}")
    job = (
        "salloc",
        "--quiet",
        "--partition=all",
        "--exclusive",
        "-N5",
        "--constraint=[worker*4&aggregator*1]",
    )
    ranks = fabric.slurm(*job, *inner, "sh", "-c", "echo $PMI_RANK $(hostname)").splitlines()
    assert sorted(ranks) == [f"{rank} {host}" for rank, host in enumerate(hosts.split(","))]


@pytest.mark.sweep
def test_a_sweep_with_aggregators_puts_them_on_hosts_of_their_own_at_every_size(
    fabric,
    tmp_path,
    mpiexec,  # noqa: ARG001
):
    (tmp_path / "beside.yaml").write_text(
        "algorithms: [ring, sharp_emulated]\nbytes: 64K\nin_place: true\nnodes: [2, 4]\nranks_per_node: 1\n"
        "aggregators: 2\nrounds: 1\neffort: {warmup: 0, min_iterations: 2, max_iterations: 2}\n"
    )
    options = ("--profile", "testbed", "--out", tmp_path / "out")
    result = fabric.run(
        sys.executable, "-m", "hpccoll", "sweep", tmp_path / "beside.yaml", *options, timeout=600
    )
    assert result.code == 0, result.out + result.err
    rows = read_results([tmp_path / "out"]).rows
    seen = {(row.nodes, row.ranks, row.aggregators, row.algorithm, row.status) for row in rows}
    assert seen == {(n, n, 2, name, "ok") for n in (2, 4) for name in ("ring", "sharp_emulated")}
    assert {tuple(row.port_sent) for row in rows} == {("eth0", "rail2")}
    by_count = {
        (row.worker_sent_predicted, row.worker_received_predicted)
        for row in rows
        if row.algorithm != "ring"
    }
    assert by_count == {(65536, 65536)}  # a vector up and one down
    (raw,) = (tmp_path / "out" / "raw").glob("*.h5")
    for attempt, _ in hdf5.read_raw_file(raw).attempts:
        workers = [f"n{1 + me}" for me in range(attempt.nodes)]
        assert [place.host for place in attempt.places] == [*workers, "a1", "a2"]


def test_the_script_recognises_hosts_of_aggregators_by_their_feature(fabric, tmp_path, mpiexec):  # noqa: ARG001 - there is an MPI library
    script = Path(__file__).parents[2] / "slurm" / "in-network.sbatch"
    requested = (
        "--partition=all",
        "-N5",
        "--ntasks-per-node=2",
        "--constraint=[worker*4&aggregator*1]",
    )
    result = fabric.run(
        "sbatch", "--parsable", *requested, script, "-b", "4K", "-e", "4K", "-n", 2, cwd=tmp_path
    )
    assert fabric.end_of(result.out.strip()) == 0, result.err + "".join(
        log.read_text() for log in tmp_path.glob("*.log")
    )
    rows = read_results([tmp_path / "results" / "in-network" / "4x2+1.h5"]).rows
    names = ("ring", "sharp_emulated", "native")
    assert {(row.algorithm, row.nodes, row.ranks, row.aggregators) for row in rows} == {
        (n, 4, 8, 1) for n in names
    }


def test_what_each_rail_carried_is_counted_by_itself(fabric, tmp_path, mpiexec):  # noqa: ARG001 - there is an MPI library
    options = ("-a", "ring", "-b", "4M", "-e", "4M", "-n", 1, "-w", 0, "--in-place")
    for rails in ("eth0", "eth0,rail2"):
        out = tmp_path / f"{rails}.h5"
        step = (
            "srun",
            "--mpi=pmi2",
            "-N2",
            "-n2",
            sys.executable,
            "-m",
            "hpccoll",
            "run",
            *options,
            "--out",
            out,
        )
        result = fabric.run(*step, UCX_NET_DEVICES=rails, timeout=600)
        assert result.code == 0, result.out + result.err
        (row,) = read_results([out]).rows
        carried = {port: sent / row.worker_sent_measured for port, sent in row.port_sent.items()}
        second = 0.5 if "rail2" in rails else 0
        assert carried == pytest.approx({"eth0": 1 - second, "rail2": second}, abs=0.1)


def test_status_prints_racks_rails_aggregators_and_the_rate_of_the_uplink(fabric):
    marker = fabric.status()["marker"]
    assert (marker["aggregators"], marker["rails"]) == (2, 2)
    assert marker["racks"] == {"rack1": ["n1", "n2"], "rack2": ["n3", "n4"]}
    assert (marker["uplink"], marker["uplink_bps"]) == ("100mbit", 100_000_000)
    assert 0 < marker["uplink_Bps"] == marker["uplink_calibration"][-1]["Bps"] < 1.02 * WIRE
    assert marker["uplink_pairs"] == [["n1", "n3"]]
    status = fabric.command("status").out
    assert (
        "4 x 2 cpus in 2 racks and 2 aggregators, wires 100mbit on 2 rails, uplinks 100mbit"
        in status
    )
    assert [
        line
        for line in ("  rack2   n3 n4\n", "  a2      idle\n", "over the uplink, n1 to n3")
        if line not in status
    ] == []


def test_unequal_racks_go_when_the_fabric_has_crashed_and_leave_nothing(new_testbed):
    devices, testbed = sorted(Path("/sys/class/net").iterdir()), new_testbed("racks")
    result = testbed.up("--nodes", 3, "--rate", "100mbit", "--racks", 2, "--uplink", "200mbit")
    assert "warning: the uplink is not calibrated" in result.out  # rack 2 has one worker
    status = testbed.status()
    assert status["marker"]["racks"] == {"rack1": ["n1", "n2"], "rack2": ["n3"]}
    assert (status["marker"]["uplink"], status["marker"]["uplink_Bps"]) == ("200mbit", None)
    os.kill(status["hosts"]["fabric"]["init"], signal.SIGKILL)
    assert testbed.command("down").code == 0
    assert testbed.status()["state"] == "down"
    assert not Path(status["directory"]).exists()
    assert sorted(Path("/sys/class/net").iterdir()) == devices


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--aggregators", "17"], ["--aggregators", "'17'", "0 to 16"]),
        (["--rails", "0"], ["--rails", "'0'", "1 to 4"]),
        (["--racks", "two", "--uplink", "none"], ["--racks", "'two'"]),
        (["--racks", "1", "--uplink", "100mbit"], ["--racks", "'1'", "2 up to"]),
        (["--nodes", "3", "--racks", "4", "--uplink", "100mbit"], ["--racks", "'4'", "is 3"]),
        (["--racks", "2"], ["--racks", "add --uplink"]),
        (["--uplink", "1gbit"], ["--uplink", "add --racks"]),
        (["--racks", "2", "--uplink", "fast"], ["--uplink", "'fast'", "10mbit to 10gbit"]),
    ],
)
def test_a_shape_that_cannot_be_is_refused_in_one_line(fabric, options, words):
    result = fabric.command("up", *options)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert [word for word in words if word not in result.err] == []
