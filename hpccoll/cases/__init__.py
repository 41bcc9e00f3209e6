"""What can be requested: cases, jobs, plans, transports, and the checks of their values. It imports no MPI, no CuPy."""
