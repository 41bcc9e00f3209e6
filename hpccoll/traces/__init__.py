"""Recorded jobs of others: readers of what their libraries wrote, and what follows: who waits, and for whom."""
