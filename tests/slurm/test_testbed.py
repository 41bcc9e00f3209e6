"""The testbed is what it says: real Slurm, hosts that are strangers to each other, metered wires, nothing left over."""

import ast
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cli_runner import ENVIRONMENT
from patience import LONG_S, wait

pytestmark = pytest.mark.slurm

ROOT = Path("/run/hpccoll-testbed")


def processes(word):
    """Return the processes that have a word in their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in words and place.name != str(os.getpid()):
            found.append(int(place.name))
    return found


RANK = """
import os, socket, time
from pathlib import Path
from mpi4py import MPI
world, size = MPI.COMM_WORLD, 1 << 20
host, device = socket.gethostname(), Path("/sys/class/net/eth0")
Path("/dev/shm", host).touch()
world.Barrier()
facts = {
    "host": host,
    "boot": Path("/proc/sys/kernel/random/boot_id").read_text(),
    "shm": sorted(file for file in os.listdir("/dev/shm") if file in {"n1", "n2", "n3", "n4"}),
    "devices": sorted(os.listdir("/sys/class/net")),
    "hardware": (device / "address").read_text(),
    "mtu": int((device / "mtu").read_text()),
    "marker": Path("/etc/slurm/hpccoll-testbed.json").read_text(),
    "munged": [place.name for place in Path("/proc").glob("[0-9]*") if (place / "comm").read_text() == "munged\\n"],
}
received = lambda: int((device / "statistics/rx_bytes").read_text())
before, times = received(), []
for _ in range(3):
    world.Barrier()
    time.sleep(0.1)  # a bucket that fills while the wire is idle would be full
    begun = time.monotonic()
    if world.rank == 0:
        world.Send(bytes(size), 1)
    if world.rank == 1:
        world.Recv(bytearray(size), 0)
    times.append((begun, time.monotonic()))
facts |= {"times": times, "received": received() - before, "library": MPI.get_vendor()[0]}
if rows := world.gather(facts):
    print(rows)
"""


@pytest.fixture(scope="module")
def ranks(testbed, mpiexec):  # noqa: ARG001 - there is an MPI library
    result = testbed.run(
        "srun", "--mpi=pmi2", "-N4", "--ntasks-per-node=1", sys.executable, "-c", RANK
    )
    assert (result.code, result.err) == (0, ""), f"{result.code}\n{result.out}\n{result.err}"
    return ast.literal_eval(result.out)


def test_four_ranks_are_on_four_hosts_that_share_nothing(ranks, require):
    require(ranks[0]["library"] == "MPICH", "the MPI library is not MPICH")
    assert [row["host"] for row in ranks] == ["n1", "n2", "n3", "n4"]
    assert len({row["boot"] for row in ranks}) == 4
    assert [row["shm"] for row in ranks] == [["n1"], ["n2"], ["n3"], ["n4"]]
    assert [row["devices"] for row in ranks] == [["eth0", "lo"]] * 4
    assert len({row["hardware"] for row in ranks}) == 4
    assert [row["mtu"] for row in ranks] == [9000] * 4
    assert [row["munged"] for row in ranks] == [[]] * 4


def test_ranks_find_each_other_whatever_lies_in_memory_behind_the_address_that_mpich_sends(
    testbed,
    mpiexec,  # noqa: ARG001
):
    program = Path(__file__).with_name("crammed_ranks.py")
    result = testbed.run(
        "srun", "--mpi=pmi2", "-N2", "--ntasks-per-node=1", sys.executable, program
    )
    assert (result.code, result.err, sorted(result.out.splitlines())) == (
        0,
        "",
        ["0 of 2", "1 of 2"],
    )


def test_a_pause_does_not_beat_the_wire(ranks):
    for (begun, _), (_, ended) in zip(ranks[0]["times"], ranks[1]["times"], strict=True):
        assert (1 << 20) / (ended - begun) < 1.06 * 125e6
    assert 3 << 20 < ranks[1]["received"] < 3.3 * (1 << 20)  # it went over the wire


def test_the_wire_is_calibrated_and_every_host_knows(testbed, ranks):
    status = testbed.status()
    marker = status["marker"]
    assert [json.loads(row["marker"]) for row in ranks] == [marker] * 4
    assert (marker["name"], marker["nodes"], marker["cpus"]) == (testbed.name, 4, 2)
    assert (marker["rate"], marker["rate_bps"], marker["mtu"]) == ("1gbit", 1_000_000_000, 9000)
    assert [row["bytes"] for row in marker["calibration"]] == [
        size << 10 for size in (64, 256, 1024, 4096, 16384)
    ]
    # How much less than its rate a wire carries is the processors' affair; more is a hole in the
    # meter.
    assert 0 < marker["wire_Bps"] == marker["calibration"][-1]["Bps"] < 125e6
    assert all(0 < row["Bps"] < 1.1 * 125e6 for row in marker["calibration"][1:])


def test_slurm_allocates_the_gpus_that_it_counts_and_no_more(testbed):
    allocated = testbed.slurm(
        "srun", "-N2", "--gpus-per-node=3", "bash", "-c", "echo $SLURM_GPUS_ON_NODE"
    )
    assert allocated.split() == ["3", "3"]
    refused = testbed.run("srun", "--gpus-per-node=9", "true")
    assert refused.code
    assert "Requested node configuration is not available" in refused.err
    assert "4 x 2 cpus and 8 gpus" in testbed.command("status").out


WARN = "import json, sys; from calibrate import warnings; print(*warnings(json.load(sys.stdin)), sep='\\n')"


def test_a_wire_calibrated_on_a_busy_machine_is_reported(testbed):
    marker = testbed.status()["marker"] | {"wire_Bps": 98_296_939}
    result = subprocess.run(
        [sys.executable, "-c", WARN],
        cwd=testbed.program.parent,
        input=json.dumps(marker),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == (
        "warning: the wire carries 79.2% of what TCP should get of 1gbit: reports will print no share of that rate; "
        "take the testbed down, and bring it up while the machine is idle, or with a lower --rate\n"
    )


def all_idle(status):
    """Return whether no worker is still clearing away a job that has ended."""
    return {facts["slurm"] for host, facts in status["hosts"].items() if host.startswith("n")} == {
        "idle"
    }


def test_status_names_the_hosts_and_their_processes(testbed):
    wait(lambda: all_idle(testbed.status()), "a node does not become idle")
    status = testbed.status()
    assert status["state"] == "up"
    assert list(status["hosts"]) == ["fabric", "head", "n1", "n2", "n3", "n4"]
    assert [status["hosts"][f"n{i}"]["slurm"] for i in range(1, 5)] == ["idle"] * 4
    for host, facts in status["hosts"].items():
        service = {"fabric": "munged", "head": "slurmctld"}.get(host, "slurmd")
        assert Path(f"/proc/{facts[service]}/comm").read_text().strip() == service
        assert f"PPid:\t{facts['init']}\n" in Path(f"/proc/{facts[service]}/status").read_text()
    result = testbed.command("status")
    assert (result.code, result.out.splitlines()[0]) == (0, f"testbed {testbed.name}: up")


def test_an_up_testbed_is_not_brought_up_again(testbed):
    result = testbed.command("up")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "take it down first" in result.err
    assert testbed.status()["state"] == "up"


def test_run_keeps_directory_environment_streams_and_exit_code(testbed, tmp_path):
    script = 'read word; hostname; pwd; echo "$word $WORD"; echo oops >&2; exit 7'
    result = testbed.run("bash", "-c", script, cwd=tmp_path, stdin="hello\n", WORD="two  words")
    assert (result.code, result.out, result.err) == (
        7,
        f"head\n{tmp_path}\nhello two  words\n",
        "oops\n",
    )
    assert testbed.run("sh", "-c", "kill -9 $$").code == 128 + signal.SIGKILL
    nothing = testbed.run("no-such-command")
    assert (nothing.code, nothing.err.count("\n")) == (127, 1)
    variables = {"PATH": ENVIRONMENT["PATH"], "ONLY": "this"}
    command = [testbed.program, "run", "--name", testbed.name, "env", "-0"]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert dict(line.split("=", 1) for line in ended.stdout.split("\0")[:-1]) == variables


COUNT = """
import os, signal, sys, time
seen = []
def say(words):  # print() in a handler fails if the signal comes during another one
    os.write(1, (" ".join(words) + "\\n").encode())
for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, _: (seen.append(signal.Signals(number).name), say(seen)))
say(["ready"])
while "SIGTERM" not in seen:
    time.sleep(0.02)
time.sleep(0.2)
sys.exit(5)
"""


def test_a_signal_to_run_or_to_its_group_arrives_once(testbed):
    run = testbed.start(sys.executable, "-c", COUNT)
    assert run.stdout.readline() == "ready\n"
    os.kill(run.pid, signal.SIGUSR1)
    assert run.stdout.readline() == "SIGUSR1\n"
    os.killpg(run.pid, signal.SIGINT)
    assert run.stdout.readline() == "SIGUSR1 SIGINT\n"
    os.kill(run.pid, signal.SIGTERM)
    out, err = run.communicate(timeout=LONG_S)
    assert (run.returncode, out, err) == (5, "SIGUSR1 SIGINT SIGTERM\n", "")


def test_a_terminal_is_the_commands_while_it_runs(testbed):
    ours, its = pty.openpty()
    command = [
        "setsid",
        "--ctty",
        testbed.program,
        "run",
        "--name",
        testbed.name,
        sys.executable,
        "-c",
    ]
    run = subprocess.Popen(
        [*command, "print('got', input(), flush=True)\n" + COUNT], stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        terminal.write(b"hello\n")
        seen = b""
        for wanted, then in (
            (b"got hello\r\nready\r\n", b"\x03"),
            (b"SIGINT\r\n", b"\x03"),
            (b"SIGINT SIGINT\r\n", b""),
        ):
            while not seen.endswith(wanted):
                seen += terminal.read(100)
            terminal.write(then)
        run.terminate()
        assert run.wait(LONG_S) == 5
        assert seen.count(b"SIGINT SIGINT SIGINT") == 0


def test_what_run_runs_is_killed_with_it(testbed):
    seconds = str(10_000 + os.getpid() / 1_000_000_000)
    run = testbed.start("sleep", seconds)
    wait(lambda: len(processes(seconds)) == 2, "sleep does not start")
    run.kill()
    run.communicate()
    wait(lambda: not processes(seconds), "sleep goes on without run")


def namespaces():
    """Return every namespace that a process is in, and those that are mounted."""
    command = ["lsns", "--noheadings", "--raw", "--output", "NS"]
    for _ in range(20):
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:  # it fails where a process ends while it looks
            return set(result.stdout.split())
    raise AssertionError(result.stderr)


def of_other_testbeds(testbed):
    """Return the namespaces that hosts of other testbeds are in: a new one has the number of one that has gone."""
    found = set()
    for pid in set(processes(f"{ROOT}/")) - set(processes(f"{ROOT}/{testbed.name}")):
        with suppress(OSError):  # it has ended
            found |= {
                link.readlink().name.split("[")[1][:-1]
                for link in Path(f"/proc/{pid}/ns").iterdir()
            }
    return found


def surroundings():
    """Return what a testbed must leave as it was: mounts, devices, and the places where its daemons like to write.

    Other tests may run meanwhile, and mount something where their files are.
    """
    places = [
        f"{top}/*{word}*"
        for top in ("run", "run/netns", "var/spool", "var/log", "var/run")
        for word in "sm"
    ]
    files = [path for pattern in places for path in Path("/").glob(pattern) if path != ROOT]
    groups = list(Path("/sys/fs/cgroup").glob("**/*slurm*/"))
    mounts = [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if "/pytest-of-" not in line
    ]
    return mounts, sorted(Path("/sys/class/net").iterdir()), files, groups


def test_it_comes_up_after_every_crash_next_to_another_testbed_and_leaves_nothing(
    testbed, new_testbed
):
    around, small = surroundings(), new_testbed("small")
    assert small.command("status").code == 3
    assert small.command("run", "true").code == 2

    command = [small.program, "up", "--name", small.name, "--nodes", "2"]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while up.stdout.readline() != "slurm\n":
        assert up.poll() is None, "it does not come as far as Slurm"
    up.kill()
    up.communicate()
    wait(
        lambda: not processes(f"{ROOT}/{small.name}"), "hosts live on without the one who made them"
    )
    assert small.status()["state"] == "damaged"

    small.up("--nodes", 1, "--rate", "none")
    status = small.status()
    marker = status["marker"]
    assert (status["state"], marker["rate_bps"], marker["wire_Bps"], marker["calibration"]) == (
        "up",
        None,
        None,
        [],
    )
    sleeping = small.start("srun", "sleep", "1000")
    wait(
        lambda: "R" in small.slurm("squeue", "--noheader", "--format=%t"), "the job does not start"
    )
    os.kill(status["hosts"]["n1"]["init"], signal.SIGKILL)
    wait(
        lambda: not Path(f"/proc/{status['hosts']['n1']['slurmd']}").exists(),
        "slurmd survives its host",
    )
    wait(
        lambda: "  n1      gone\n" in small.command("status").out,
        "a host survives its first process",
    )
    assert small.command("status").code == 3
    assert small.run("true").code == 0  # the head host is there

    assert "cleaning up" in small.up("--nodes", 1).out
    # killed with the head, unless srun had missed its node before
    assert sleeping.wait(LONG_S) != 0
    sleeping.communicate()
    again = small.status()
    assert small.slurm("srun", "hostname") == "n1\n"
    own = {
        Path(f"/proc/{facts['init']}/ns/{kind}").readlink().name.split("[")[1][:-1]
        for facts in again["hosts"].values()
        for kind in ("net", "uts", "mnt", "pid", "ipc")
    }
    assert len(own) == 15
    assert own < namespaces()
    assert len(of_other_testbeds(small) - own) >= 5 * 6  # of the other testbed

    assert [small.command("down").code for _ in range(2)] == [0, 0]
    # Each goes when init has buried its first process.
    wait(lambda: not (own & namespaces()) - of_other_testbeds(small), "namespaces are left")
    assert not processes(f"{ROOT}/{small.name}")
    assert not (ROOT / small.name).exists()
    assert surroundings() == around
    assert testbed.status()["state"] == "up"
    assert sorted(testbed.slurm("srun", "-N4", "hostname").split()) == ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--nodes", "0"], ["--nodes", "'0'", "1 to 64"]),
        (["--rate", "fast"], ["--rate", "'fast'", "none", "100mbit"]),
        (["--rate", "1mbit"], ["--rate", "'1mbit'", "10mbit to 10gbit"]),
        (["--cpus", "two"], ["--cpus", "'two'", "1 to 256"]),
        (["--gpus", "17"], ["--gpus", "'17'", "0 to 16"]),
        (["--name", "a/b"], ["--name", "'a/b'"]),
    ],
)
def test_a_bad_option_takes_one_line_of_an_error(testbed, options, words):
    result = testbed.command("up", *options)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert [word for word in words if word not in result.err] == []


def test_a_reader_that_has_ended_ends_it_without_a_message():
    program = Path(__file__).parents[2] / "slurm" / "testbed" / "testbed"
    reader, writer = os.pipe()
    os.close(reader)
    words = [program, "--name", "absent", "status"]
    ended = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")
