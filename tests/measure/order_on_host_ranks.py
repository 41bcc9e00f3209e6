"""``hpccoll order`` over NCCL on the host: order_on_host_ranks.py DIRECTORY WORDS."""

import sys
from pathlib import Path

import nccl_on_host

from hpccoll.cli.order import main

DIRECTORY, *ARGUMENTS = sys.argv[1:]
nccl_on_host.install(Path(DIRECTORY))
sys.exit(main(ARGUMENTS))
