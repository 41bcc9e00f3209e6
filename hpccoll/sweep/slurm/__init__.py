"""Slurm: its commands, its queue and partitions, its controller, and the jobs of a sweep in it."""
