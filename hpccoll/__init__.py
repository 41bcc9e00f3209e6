"""hpccoll measures how fast a cluster's collectives are, and reports why and what to change."""

__version__ = "0.1.0"
