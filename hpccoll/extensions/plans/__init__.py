"""Plans of other programs: those of MSCCL++ are proven, run and written; GOAL for LogGOPSim is written."""

from hpccoll.common.extensions import Extension

EXTENSION = Extension(
    name="plans",
    algorithm_formats=["hpccoll.extensions.plans.mscclpp_reader:PLAN_FORMAT"],
    schedule_formats=[
        "hpccoll.extensions.plans.written_formats:GOAL",
        "hpccoll.extensions.plans.written_formats:MSCCLPP",
    ],
)
