"""The command line: up, run, fault, clear, status, down."""

import argparse
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import cluster
import fault_options
import faults
import head_command
import namespaces
from calibrate import calibrate, node_pairs, uplink_pairs, warnings
from cluster_shape import Shape, add_options, check_choice, parse_shape
from errors import BrokenError, RefusedError
from host import ENVIRONMENT, Host
from network import MTU, wire
from state_directory import StateDirectory
from status_text import describe_hosts, describe_wires, print_status

NEEDS = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sinfo": "slurm-wlm",
    "munged": "munge",
    "ip": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
}
"""Programs, and the packages of Debian that have them."""
PMIX = ["lib/*/libpmix.so", "lib*/libpmix.so"]
"""Where that library is, below /usr; srun --mpi=pmix loads it."""
NOT_UP = 3
"""The exit code of status where there is no whole testbed."""

EXAMPLES = """\
examples:
  testbed up --nodes 4 --rate 100mbit
  testbed up --nodes 8 --racks 2 --uplink 500mbit --aggregators 1
  testbed run srun -N 4 hostname
  testbed run bash                      # the head host, interactively
  testbed fault n3 --rate 50mbit --for 30s
  testbed clear
  testbed status
  testbed down
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RefusedError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="testbed",
        description="A small real Slurm cluster on this machine, with metered wires.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--name", default="hpccoll", help="name of the testbed [%(default)s]")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="up|run|fault|clear|status|down"
    )

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.add_argument("--name", default=argparse.SUPPRESS, help="name of the testbed")
        return command

    up = add("up", "Bring a testbed up.")
    add_options(up)
    up.epilog = "example: testbed up --nodes 8 --rate 100mbit --racks 2 --uplink 200mbit"
    run = add("run", "Run a command on the head host.")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="CMD...")
    fault = add("fault", "Have a host, a wire or a link do worse than it should.")
    fault_options.add_options(fault)
    fault.epilog = "example: testbed fault n3 --to n5 --send --rate 50mbit --for 30s"
    clear = add("clear", "End all faults, or those of a host or rack.")
    clear.add_argument("place", nargs="?", metavar="HOST|RACK")
    status = add("status", "Print the state of a testbed; exit with 3 if it is not up.")
    status.add_argument("--json", action="store_true", help="JSON output")
    add("down", "Take a testbed down, or what is left of it.")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked and return the exit code."""
    try:
        options = _parser().parse_args(arguments)
        testbed = _state_directory(options.name)
        command = {
            "up": _up,
            "run": _run,
            "fault": _fault,
            "clear": _clear,
            "status": _status,
            "down": _down,
        }
        code = command[options.command](testbed, options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has ended, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end
        return 1
    except (RefusedError, BrokenError, OSError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 2 if isinstance(error, RefusedError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _state_directory(name: str) -> StateDirectory:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", name):
        raise RefusedError(f"--name: {name!r} is not valid: choose up to 32 of a-z, 0-9 and -")
    if sys.platform != "linux" or os.geteuid() != 0 or not namespaces.may_make_hosts():
        raise RefusedError(
            "a testbed needs Linux and root, in a container with --privileged: it mounts and makes networks"
        )
    return StateDirectory(name)


def _up(testbed: StateDirectory, options: argparse.Namespace) -> int:
    shape = parse_shape(options)
    _check_installed()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    os.umask(0o022)  # munged insists
    begun = time.monotonic()
    with testbed.locked(create=True):
        survey = testbed.survey()
        if survey["state"] == "up":
            raise RefusedError(
                f"testbed {testbed.name!r} is up already: take it down first{_command_hint(testbed, 'down')}"
            )
        if survey["state"] == "damaged":
            print("cleaning up what is left of an earlier one", flush=True)
        testbed.clear()
        try:
            marker = _build(testbed, shape)
        except BaseException:
            testbed.clear()
            raise
    for text in warnings(marker):
        print(text)
    print(
        f"up in {time.monotonic() - begun:.1f} s; try{_command_hint(testbed, 'run', f'srun -N {shape.nodes} hostname')}"
    )
    return 0


def _build(testbed: StateDirectory, shape: Shape) -> dict[str, Any]:
    print(f"hosts: head and {describe_hosts(shape.facts)}", flush=True)
    testbed.create_directories()
    cluster.write_configuration(testbed, shape)
    names = ["fabric", "head", *shape.workers, *shape.helpers]
    fabric, *others = [Host(testbed, name) for name in names]
    for host in (fabric, *others):
        host.wait()
    hosts = {host.name: host for host in others}
    print(f"wires: {describe_wires(shape.facts)}, MTU {MTU}", flush=True)
    wire(fabric, hosts, shape)
    print("slurm", flush=True)
    cluster.start(fabric, others[0], others[1:])
    marker = {"name": testbed.name, **shape.facts, "mtu": MTU, **_calibration(shape, hosts)}
    for host in (fabric, *others):
        host.leave()
    testbed.marker_file.write_text(json.dumps(marker, indent=1) + "\n")
    return marker


def _calibration(shape: Shape, hosts: Mapping[str, Host]) -> dict[str, Any]:
    """Return what the marker says of the wire and of the uplink: None and empty where there is nothing to measure."""
    near, far = node_pairs(shape, hosts), uplink_pairs(shape, hosts)
    if near or far:
        print("calibration", flush=True)
    single = calibrate(near, shape.rate.bps) if near else []
    uplink = calibrate(far, shape.uplink.bps) if far and shape.uplink else []
    return {
        "wire_Bps": single[-1]["Bps"] if single and shape.rate.bps is not None else None,
        "calibration": single,
        "uplink_Bps": uplink[-1]["Bps"] if uplink else None,
        "uplink_calibration": uplink,
        "uplink_pairs": [[source.name, target.name] for source, target in far],
        "calibrated": datetime.now(UTC).isoformat(timespec="seconds") if single or uplink else None,
    }


def _run(testbed: StateDirectory, options: argparse.Namespace) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise RefusedError("run: the command is missing; do: testbed run CMD...")
    head = testbed.hosts().get("head")
    with suppress(ProcessLookupError):
        if head and testbed.marker():
            return head_command.run(head, words)
    raise _not_up(testbed)


def _not_up(testbed: StateDirectory) -> RefusedError:
    return RefusedError(
        f"testbed {testbed.name!r} is not up: bring it up{_command_hint(testbed, 'up')}"
    )


def _shape(testbed: StateDirectory) -> Shape:
    marker = testbed.marker()
    if marker is None:
        raise _not_up(testbed)
    return Shape.from_facts(marker)


def _fault(testbed: StateDirectory, options: argparse.Namespace) -> int:
    shape = _shape(testbed)
    new = fault_options.parse_faults(options, shape)
    faults.add(testbed, shape, new)
    print(*new, sep="\n")
    return 0


def _clear(testbed: StateDirectory, options: argparse.Namespace) -> int:
    shape = _shape(testbed)
    check_choice("clear", options.place, [*shape.workers, *shape.helpers, *shape.rack])
    for fault in (ended := faults.clear(testbed, shape, options.place)):
        print(f"cleared: {fault}")
    if not ended:
        print("there is no fault to clear")
    return 0


def _status(testbed: StateDirectory, options: argparse.Namespace) -> int:
    survey = testbed.survey()
    head = testbed.hosts().get("head")
    states: dict[str, str] = {}
    with suppress(ProcessLookupError):
        if head and survey["marker"]:
            with head.held() as pidfd:
                states = cluster.states(testbed, pidfd)
    for host, facts in survey["hosts"].items():
        facts["slurm"] = states.get(host)
    present = faults.load(testbed)
    survey["faults"] = [asdict(fault) for fault in present]
    if options.json:
        print(json.dumps(survey, indent=1))
    else:
        print_status(survey)
        for fault in present:
            print(f"fault: {fault}")
    return 0 if survey["state"] == "up" else NOT_UP


def _down(testbed: StateDirectory, _: argparse.Namespace) -> int:
    with testbed.locked(create=False) as there:
        if there:
            testbed.clear()
    print(f"testbed {testbed.name!r} is {'taken' if there else 'not up: nothing to take'} down")
    return 0


def _command_hint(testbed: StateDirectory, command: str, words: str = "") -> str:
    """Return how to call a command, for the end of a sentence."""
    name = [] if testbed.name == "hpccoll" else ["--name", testbed.name]
    return ": " + " ".join(filter(None, [sys.argv[0], command, *name, words]))


def _check_installed() -> None:
    lacking = {
        package
        for program, package in NEEDS.items()
        if not shutil.which(program, path=ENVIRONMENT["PATH"])
    }
    if not any(next(Path("/usr").glob(pattern), None) for pattern in PMIX):
        lacking.add("libpmix-dev")
    if lacking:
        names = " ".join(sorted(lacking))
        raise RefusedError(f"missing: {names}; apt-get install {names}")
