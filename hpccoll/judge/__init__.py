"""Holds rows against what is expected: an earlier run, a reference, published figures, a formula, a simulation."""
