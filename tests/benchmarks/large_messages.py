"""Ring against the library's own, 64 MiB of float32 on 2 ranks of one node: at least 1.8 times faster.

Run by hand on an idle machine: python tests/benchmarks/large_messages.py
"""

import sys

from ratio import compare

sys.exit(compare(2, "-a ring,native -b 64M -e 64M -d float32", "ring", 64 << 20, at_least=1.8))
