"""Descriptions and drawings of schedules: steps in text, the state of the buffers as a table, and pictures."""
