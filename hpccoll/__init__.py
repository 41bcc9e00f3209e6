"""hpccoll: how fast a cluster's collectives are, why, and what to do about it."""

__version__ = "0.1.0"
