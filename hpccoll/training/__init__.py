"""Training steps: models as gradient tensors, buckets, parallelism, and when what is exposed. Nothing runs here."""
