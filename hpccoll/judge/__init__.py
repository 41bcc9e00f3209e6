"""Holds measurements against what is expected: of an earlier run, a reference, published figures, a model, a curve."""
