"""``hpccoll run`` over NCCL on the host: timed_ranks.py DIRECTORY ARGUMENTS."""

import sys
from pathlib import Path

import nccl_on_host

from hpccoll.cli.rank_program import main

DIRECTORY, *ARGUMENTS = sys.argv[1:]
nccl_on_host.install(Path(DIRECTORY))
sys.exit(main(ARGUMENTS))
