"""The two ways in which a command does not do what it was asked."""


class RefusedError(Exception):
    """What was asked for cannot be done; one line says why, and the exit code is 2."""


class BrokenError(Exception):
    """It should have worked; the message says what was seen, and the exit code is 1."""
