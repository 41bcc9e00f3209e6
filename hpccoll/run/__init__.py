"""``hpccoll run``: the rank program. It imports only what a rank needs: thousands of ranks import it at once."""

from hpccoll.run.rank import main

__all__ = ["main"]
