"""Measured and predicted training steps as text, tables and charts."""
