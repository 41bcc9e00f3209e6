"""Holds rows against what is expected: an earlier run, a reference, published figures, formulas, simulations, curves."""
