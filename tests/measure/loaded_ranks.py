"""``hpccoll run``; then each rank prints the CPU seconds of all its threads but the one that calls MPI."""

import sys
import time

from hpccoll.cli.job_program import main

code = main(sys.argv[1:])
print(f"other threads: {time.process_time() - time.thread_time()}", file=sys.stderr, flush=True)
sys.exit(code)
