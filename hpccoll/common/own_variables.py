"""Environment variables of hpccoll itself that several rooms read or set."""

START_TIMEOUT_VARIABLE = "HPCCOLL_START_S"
"""Seconds that a rank waits for the others in MPI_Init and MPI_Finalize [300]; a sweep sets it."""

NODE_NAME_VARIABLE = "HPCCOLL_NODE_NAME"
"""The name of the node of a process. In a pod of Kubernetes, MPI only knows the name of the pod."""

ALLOCATION_VARIABLE = "HPCCOLL_ALLOCATION"
"""What identifies the nodes of a launch outside Slurm; manifests for Kubernetes set it to the UID of a pod."""

MPIEXEC_VARIABLE = "HPCCOLL_MPIEXEC"
"""The launcher of ranks on this machine, a name or a path [mpiexec, that of the environment first]."""
