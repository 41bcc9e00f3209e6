"""The times within a measured training step, and what rows have of them."""
