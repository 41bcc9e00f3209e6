"""The algorithms, one textbook page each. This list is the table of contents: to name a page here is to register it."""

from hpccoll.algorithms import null, recursive_doubling, ring

__all__ = ["null", "recursive_doubling", "ring"]
