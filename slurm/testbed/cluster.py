"""The cluster: Slurm's configuration, its daemons, and the state of its nodes."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import namespaces
from cluster_shape import Shape
from errors import BrokenError
from host import ENVIRONMENT, Host, log_tail
from network import SPINE, address, cables
from state_directory import StateDirectory

PORT = 6817
"""Of slurmctld."""
TIMEOUT_S = 120
"""How long daemons have for coming up."""
POLL_S = 0.03
AGGREGATORS = "aggregators"
"""The switch that Slurm is told aggregators are below, where there are racks."""

CONF = """\
# Written by the testbed; what is not here is Slurm's default.
ClusterName={testbed.name}
SlurmctldHost=head({head})
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
StateSaveLocation={directory}/spool/head
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/spool/head/slurmctld.pid
SlurmdPidFile={directory}/spool/%n/slurmd.pid
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdLogFile={directory}/log/slurmd-%n.log
# PMIx makes directories there, of the same names on every node.
TmpFS={directory}/tmp/%n
MailProg=/bin/true

MpiDefault=pmi2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0
# More cores than the machine has are fine.
SlurmdParameters=config_overrides
KillOnBadExit=1
JobRequeue=0
ReturnToService=2
# A lost node shows in seconds; a finished job is seen for minutes.
SlurmdTimeout=10
KillWait=5
MinJobAge=300

{topology}
{gpus}
{nodes}
"""


def write_configuration(testbed: StateDirectory, shape: Shape) -> None:
    """Write slurm.conf and what belongs to it, /etc/hosts, the secret, and the directories of daemons."""
    topology = _topology(shape)
    (testbed.etc / "slurm.conf").write_text(
        CONF.format(
            testbed=testbed,
            directory=testbed.directory,
            head=address("head"),
            port=PORT,
            nodes="\n".join(_nodes(shape)),
            topology="TopologyPlugin=topology/tree" if topology else "",
            gpus="GresTypes=gpu" if shape.gpus else "",
        )
    )
    if shape.gpus:
        (testbed.etc / "gres.conf").write_text(_gpus(testbed, shape))
    if topology:
        (testbed.etc / "topology.conf").write_text("\n".join(topology) + "\n")
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    version = (
        "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n" if unified else "CgroupPlugin=cgroup/v1\n"
    )
    (testbed.etc / "cgroup.conf").write_text(f"{version}CgroupAutomount=no\n")
    known = [f"{address(cable.host, cable.rail)} {cable.port}" for cable in cables(shape)]
    (testbed.directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", *known]) + "\n")
    for name in ("head", *shape.workers, *shape.helpers):
        (testbed.directory / "spool" / name).mkdir()
        (testbed.directory / "tmp" / name).mkdir(mode=0o777)
        (testbed.directory / "tmp" / name).chmod(0o1777)
    key = testbed.directory / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))


def _nodes(shape: Shape) -> Iterator[str]:
    """Yield the lines of slurm.conf that say which nodes there are, and where jobs may ask for them."""
    gpus = f" Gres=gpu:{shape.gpus}" if shape.gpus else ""
    for feature, names, more in (
        ("worker", shape.workers, gpus),
        ("aggregator", shape.helpers, ""),
    ):
        for name in names:
            yield f"NodeName={name} NodeAddr={address(name)} CPUs={shape.cpus} Feature={feature}{more}"
    yield f"PartitionName=work Nodes={','.join(shape.workers)} Default=YES MaxTime=INFINITE State=UP"
    if shape.helpers:
        yield "PartitionName=all Nodes=ALL MaxTime=INFINITE State=UP"


def _gpus(testbed: StateDirectory, shape: Shape) -> str:
    """Return the line of gres.conf of the workers' GPUs, and make the files that Slurm takes for their devices."""
    devices = testbed.directory / "gpu"
    devices.mkdir()
    for number in range(shape.gpus):
        (devices / str(number)).touch()
    return f"NodeName={','.join(shape.workers)} Name=gpu File={devices}/[0-{shape.gpus - 1}]\n"


def _topology(shape: Shape) -> list[str]:
    """Return the lines of topology.conf, none where there are no racks.

    A switch of Slurm's has either nodes or switches. The ports of the spine that aggregators are on
    count as a switch.
    """
    if not shape.rack:
        return []
    leaves = shape.rack | ({AGGREGATORS: shape.helpers} if shape.helpers else {})
    lines = [f"SwitchName={leaf} Nodes={','.join(nodes)}" for leaf, nodes in leaves.items()]
    return [*lines, f"SwitchName={SPINE} Switches={','.join(leaves)}"]


def start(fabric: Host, head: Host, nodes: list[Host]) -> None:
    """Start the daemons, and wait until every node is idle."""
    munge = fabric.testbed.directory / "munge"
    fabric.start(
        "munged",
        "--foreground",
        "--num-threads=2",
        f"--key-file={munge}/key",
        f"--socket={munge}/socket",
        f"--pid-file={munge}/pid",
        f"--log-file={munge}/log",
        f"--seed-file={munge}/seed",
    )
    _wait(fabric, "munged", (munge / "socket").exists)
    head.start("slurmctld", "-D")
    _wait(head, "slurmctld", lambda: _listens(head))
    for node in nodes:
        node.start("slurmd", "-D", "-N", node.name)
    _wait(head, "a slurmd", lambda: set(states(head.testbed, head.pidfd).values()) == {"idle"})


def states(testbed: StateDirectory, head: int) -> dict[str, str]:
    """Return what Slurm says about each node, asked on the head host; nothing where Slurm does not answer."""
    command = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    environment = {**ENVIRONMENT, "SLURM_CONF": str(testbed.etc / "slurm.conf")}
    with namespaces.network(head):
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return dict(line.split() for line in said.stdout.splitlines())


def _listens(head: Host) -> bool:
    with (
        suppress(OSError),
        namespaces.network(head.pidfd),
        socket.create_connection((address("head"), PORT), 1),
    ):
        return True
    return False


def _wait(host: Host, what: str, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not ready():
        if time.monotonic() > until or not host.process.alive:
            logs = host.testbed.directory / "log"
            seen = "; ".join(
                f"{log.name}: {log_tail(log)}"
                for log in sorted(logs.iterdir())
                if log.stat().st_size
            )
            raise BrokenError(f"{what} does not come up ({seen})")
        time.sleep(POLL_S)
