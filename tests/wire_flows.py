"""TCP connections between hosts of a testbed, several at once."""

import json
import sys
import tempfile

EACH = ("--ntasks-per-node=1", "--partition=all", "--exclusive")
"""The options of srun for a process on each of several hosts, aggregators among them."""

FLOWS = """
import json, socket, sys, threading, time
from pathlib import Path
place, size, flows = Path(sys.argv[1]), int(sys.argv[2]), [word.split(":") for word in sys.argv[3:]]

def wait(word, end):
    (place / f"{word}-{end}").touch()
    until = time.monotonic() + 120
    while len(list(place.glob(f"{word}-*"))) < 2 * len(flows):
        assert time.monotonic() < until, word
        time.sleep(0.002)

def receive(flow):
    listening = socket.create_server(("", 9000 + flow))
    wait("listens", f"{flow}-target")
    receiver, _ = listening.accept()
    wait("connected", f"{flow}-target")
    missing = size
    while missing:
        missing -= len(receiver.recv(1 << 20))
    sys.stdout.write(json.dumps([f"{flow} ended", time.monotonic()]) + "\\n")

def send(flow):
    wait("listens", f"{flow}-source")
    sender = socket.create_connection((flows[flow][1], 9000 + flow))
    wait("connected", f"{flow}-source")
    time.sleep(0.05)  # a bucket that fills while the wire is idle would be full
    sys.stdout.write(json.dumps([f"{flow} begun", time.monotonic()]) + "\\n")
    sender.sendall(bytes(size))

for flow, hosts in enumerate(flows):
    for does, host in zip((send, receive), hosts):
        if socket.gethostname() == host.split("-")[0]:
            threading.Thread(target=does, args=[flow]).start()
"""


def send_flows(testbed, place, size, *pairs):
    """Send bytes from host to host; return when each pair began and ended, in seconds of one clock.

    Args:
        testbed: the testbed, with a partition ``all``.
        place: a directory.
        size: the bytes that each pair sends.
        pairs: the hosts, as in n1:n2 and, on the second rail, n1:n2-r2.
    """
    meeting = tempfile.mkdtemp(dir=place)
    hosts = {host.split("-")[0] for pair in pairs for host in pair.split(":")}
    step = ("srun", *EACH, "--nodes", len(hosts), "--nodelist", ",".join(sorted(hosts)))
    output = testbed.slurm(*step, sys.executable, "-c", FLOWS, meeting, size, *pairs)
    at = dict(json.loads(line) for line in output.splitlines())
    assert len(at) == 2 * len(pairs)
    return [(at[f"{flow} begun"], at[f"{flow} ended"]) for flow in range(len(pairs))]
