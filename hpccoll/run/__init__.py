"""``hpccoll run``: what a rank executes. It imports what a rank needs and nothing else, for thousands do the same."""

from hpccoll.run.rank import main

__all__ = ["main"]
