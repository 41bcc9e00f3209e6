"""Schedules over the memory of peers: one kernel for a whole operation."""
