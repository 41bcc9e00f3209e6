"""Transports over MPI: schedules as persistent requests, shared-memory windows, and the library's own calls."""
