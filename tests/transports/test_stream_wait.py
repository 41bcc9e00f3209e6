"""Waits for queued work: they end on completion, on an error, or at a limit."""

import pytest

from hpccoll.common.errors import StalledError
from hpccoll.transports.stream_wait import poll_until


def test_a_wait_ends_on_completion_error_or_timeout():
    looks = iter([False, False, True])
    poll_until(lambda: next(looks), lambda: "an error that comes too late", 60)
    with pytest.raises(StalledError, match="an error of NCCL"):
        poll_until(lambda: False, lambda: "an error of NCCL", 60)
    with pytest.raises(StalledError, match=r"0\.01 s"):
        poll_until(lambda: False, lambda: None, 0.01)
