"""Transports over NCCL: schedules as grouped sends and receives on a stream, and NCCL's own calls."""
