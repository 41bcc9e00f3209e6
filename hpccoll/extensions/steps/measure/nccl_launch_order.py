"""Makes kernels of different NCCL communicators begin on a GPU in the order in which the host launches them.

NCCL 2.26 and newer do so if NCCL_LAUNCH_ORDER_IMPLICIT is 1. With CUDA 12.3 or newer a kernel
then begins when the one that was launched before it has begun, so that they run side by side. Older
versions need operations that follow one another on the device: each begins when the one before it
has ended (NCCL's user guide, "Using multiple NCCL communicators concurrently"; getImplicitOrder in
src/enqueue.cc of 2.28.9).
"""

import os
from collections.abc import Iterable

from hpccoll.cases.case import Case
from hpccoll.host.gpu_stack import nccl_settings
from hpccoll.schedule import is_workload
from hpccoll.transports.gpu import loaded_nccl_version

VARIABLE = "NCCL_LAUNCH_ORDER_IMPLICIT"

FIRST_NCCL_WITH_ORDER = (2, 26)
"""The first version of NCCL that has the variable."""


def keep_launch_order(cases: Iterable[Case]) -> None:
    """Set NCCL_LAUNCH_ORDER_IMPLICIT if a step has several communicators, unless the user has set it.

    To be called before NCCL's first operation, because NCCL reads the variable once. Other jobs are
    left alone: the order takes events for every launch.
    """
    if not any(map(has_several_communicators, cases)):
        return
    if user_setting() is None:
        os.environ[VARIABLE] = "1"


def user_setting() -> str | None:
    """Return the value of NCCL_LAUNCH_ORDER_IMPLICIT in the environment or NCCL's files; None without one."""
    for _, name, value in nccl_settings():
        if name == VARIABLE:
            return value
    return None


def has_several_communicators(case: Case) -> bool:
    """Whether a case is a training step over NCCL whose mesh has an axis beside the data-parallel one."""
    if case.transport != "nccl" or not is_workload(case.collective):
        return False
    from hpccoll.extensions.steps.training.parallelism import Mesh  # few ranks run training steps
    from hpccoll.extensions.steps.training.training_step import TrainingStep

    axes = Mesh.axes(TrainingStep.of(case.params).parallel)
    return any(size > 1 for axis, size in axes.items() if axis != "dp")


def launches_in_turns() -> bool:
    """Whether the loaded NCCL keeps no order of launches, so that an operation must wait for the one before it.

    It is too old, or the user has turned the order off.
    """
    version = loaded_nccl_version()
    if version is None:
        return False
    return version < FIRST_NCCL_WITH_ORDER or user_setting() == "0"
