"""Plans of other programs: those of MSCCL++ are proven, run and written; GOAL for LogGOPSim is written."""

from hpccoll.common.extensions import Extension

EXTENSION = Extension(name="plans")
