"""Training steps: models as gradient tensors, buckets, parallelism, and when what is exposed. Nothing runs here."""

TRAINING_STEP = "training_step"
"""The name of the workload that a training step is, beside the names of collectives."""
