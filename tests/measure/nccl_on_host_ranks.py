"""``hpccoll run`` or ``train`` over NCCL on the host: nccl_on_host_ranks.py DIRECTORY [train] [NAME=VALUE ...] WORDS.

The variables are set on all ranks, ``{}`` in a value being the process id; GPUS is how many GPUs
the host has, and FREE how many bytes each has, all of them free.
"""

import os
import sys
import tempfile
from itertools import takewhile
from pathlib import Path

import nccl_on_host

from hpccoll.cli.job_program import main

DIRECTORY, *ARGUMENTS = sys.argv[1:]
COMMAND = "run"
if ARGUMENTS[:1] == ["train"]:
    COMMAND = ARGUMENTS.pop(0)
VARIABLES = [*takewhile(lambda word: not word.startswith("-"), ARGUMENTS)]
os.environ.update(word.format(os.getpid()).split("=", 1) for word in VARIABLES)
tempfile.tempdir = os.environ.get("TMPDIR")  # without a look at other places
nccl_on_host.GPUS = int(os.environ.get("GPUS", nccl_on_host.GPUS))
if "FREE" in os.environ:
    nccl_on_host.HostGpu.free_bytes = nccl_on_host.HostGpu.total_bytes = int(os.environ["FREE"])
nccl_on_host.install(Path(DIRECTORY))
sys.exit(main(ARGUMENTS[len(VARIABLES) :], COMMAND))
