"""Training steps in sweep files."""
