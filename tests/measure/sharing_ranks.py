"""``hpccoll run`` over NCCL on a host of few GPUs: sharing_ranks.py DIRECTORY GPUS VARIABLES ARGUMENTS.

VARIABLES are set for all ranks: JSON of values by name, in which ``{}`` is the process id.
"""

import json
import os
import sys
from pathlib import Path

import nccl_on_host

from hpccoll.cli.rank_program import main

DIRECTORY, GPUS, VARIABLES, *ARGUMENTS = sys.argv[1:]
os.environ.update({name: value.format(os.getpid()) for name, value in json.loads(VARIABLES).items()})
nccl_on_host.GPUS = int(GPUS)
nccl_on_host.install(Path(DIRECTORY))
sys.exit(main(ARGUMENTS))
