"""Run a command as a rank does, and write at its end what its process has imported and opened: DIRECTORY ARGUMENTS."""

import atexit
import json
import sys
from pathlib import Path

opened = []


def count(event, arguments):
    if event == "open":
        opened.append(str(arguments[0]))


def write_counts(directory, rank):
    counts = {"modules": sorted(sys.modules), "opens": len(opened)}
    Path(directory, f"{rank}.json").write_text(json.dumps(counts))


if __name__ == "__main__":
    sys.addaudithook(count)
    from hpccoll.__main__ import main
    from hpccoll.measure.mpi_startup import launcher_rank

    atexit.register(write_counts, sys.argv[1], launcher_rank())
    sys.argv[1:] = sys.argv[2:]
    main()
