"""``hpccoll run`` over NCCL on the host, with variables: probed_ranks.py DIRECTORY NAME=VALUE.. -- ARGUMENTS."""

import os
import sys
import tempfile
from pathlib import Path

from nccl_on_host import install

from hpccoll.cli.rank_program import main

DIRECTORY, *ARGUMENTS = sys.argv[1:]
END = ARGUMENTS.index("--")
os.environ.update(assignment.split("=", 1) for assignment in ARGUMENTS[:END])
tempfile.tempdir = os.environ["TMPDIR"]  # without a look at other places
install(Path(DIRECTORY))
sys.exit(main(ARGUMENTS[END + 1 :]))
