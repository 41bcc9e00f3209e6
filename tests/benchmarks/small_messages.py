"""Recursive doubling against the library's own, 1 KiB on 2 ranks of one node: at most 1.5 times slower.

Run by hand on an idle machine: python tests/benchmarks/small_messages.py
"""

import sys

from ratio import compare

sys.exit(
    compare(2, "-a ring,recursive_doubling,native,null -b 8 -e 1K", "recursive_doubling", 1 << 10, at_least=1 / 1.5)
)
