"""Descriptions and drawings of schedules: rounds in text, the state of the buffers as a table, and pictures."""
