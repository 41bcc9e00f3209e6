"""Facts about this machine: its CPUs, memory, GPUs, network ports, MPI library and environment."""
