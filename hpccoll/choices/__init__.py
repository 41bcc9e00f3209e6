"""Choices: a tune table as ranks read it, and the concrete case that an ``auto`` case comes to by it."""
