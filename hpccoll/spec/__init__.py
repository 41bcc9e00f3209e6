"""What can be asked for: cases, jobs and plans, and what of it makes sense. It starts no MPI and imports no CuPy."""
