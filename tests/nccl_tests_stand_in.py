"""Prints what sendrecv_perf of nccl-tests printed on two hosts, with times that faults of the machine stretch.

It runs as the program does: a process on each of two hosts, the first of which prints. PAIR has the
hosts, or Slurm's variables have them; FAULTS is JSON with ``slow`` (factors by host), ``broken``,
``wrong`` and ``silent`` (hosts).
"""

import json
import os
import random
import re
import sys
import time
from pathlib import Path

RECORDED = Path(__file__).parent / "inputs" / "nccl-plain-for-comparison.txt"


def installed(directory):
    """Return the path of the program ``sendrecv_perf`` in a directory."""
    program = directory / "sendrecv_perf"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -S {__file__}\n")
    program.chmod(0o755)
    return program


def hosts_of_step():
    names = os.environ["SLURM_STEP_NODELIST"]  # n[1,3], n[1-2] or n1,n12
    if not (ranges := re.fullmatch(r"(\w+)\[(.*)\]", names)):
        return names.split(",")
    ends = [each.split("-") for each in ranges[2].split(",")]
    return [
        f"{ranges[1]}{number}" for each in ends for number in range(int(each[0]), int(each[-1]) + 1)
    ]


def main():
    hosts = os.environ["PAIR"].split(",") if "PAIR" in os.environ else hosts_of_step()
    if os.environ.get("SLURM_PROCID", "0") != "0" and "PAIR" not in os.environ:
        return 0
    faults = json.loads(os.environ.get("FAULTS", "{}"))
    if "STARTED" in os.environ:  # a directory: who runs at the same time
        Path(os.environ["STARTED"], "-".join(hosts)).write_text(f"{time.time()}")
    if {*hosts} & {*faults.get("silent", ())}:
        time.sleep(600)
    if "LEAVES" in os.environ and os.fork() == 0:
        time.sleep(600)
    if broken := {*hosts} & {*faults.get("broken", ())}:
        print(f"{min(broken)}: Test NCCL failure common.cu:1279 'unhandled system error'")
        return 3
    time.sleep(float(os.environ.get("LASTS", "0")))
    slow = max(faults.get("slow", {}).get(host, 1) for host in hosts) * random.gauss(1, 0.01)
    text = RECORDED.read_text().replace("all_reduce_perf", "sendrecv_perf")
    lines = [line for line in text.splitlines(keepends=True) if not re.match("#  Rank  [13]", line)]
    for rank, host in enumerate(hosts):
        lines = [
            re.sub(rf"Rank  {2 * rank}(.*) node{rank} ", rf"Rank  {rank}\1 {host} ", line)
            for line in lines
        ]
    rows = [number for number, line in enumerate(lines) if line.lstrip()[:1].isdigit()]
    for number in rows:
        cells = lines[number].split()
        for column in (5, 9):
            cells[column] = f"{float(cells[column]) * slow:.2f}"
        if {*hosts} & {*faults.get("wrong", ())}:
            cells[8] = "7"
        lines[number] = " ".join(cells) + "\n"
    sys.stdout.write("".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
