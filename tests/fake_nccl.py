"""A fake of CuPy's binding of NCCL: communicators that record how they ended."""

import os


class FakeGpu:
    """A GPU that threads may select."""

    def select(self):
        """It is the only one."""


class FakeCommunicator:
    def __init__(self, size, unique, rank):
        self.size, self.unique, self.rank, self.said = size, unique, rank, []

    def abort(self):
        self.said.append("aborted")

    def destroy(self):
        self.said.append("destroyed")

    def commSplit(self, color, key):  # noqa: N802
        return None if color < 0 else FakeCommunicator(0, self.unique, key)


class Library:
    made = 0
    NcclCommunicator = FakeCommunicator

    @classmethod
    def get_unique_id(cls):
        cls.made += 1
        return b"%3d" % cls.made + os.urandom(125)
