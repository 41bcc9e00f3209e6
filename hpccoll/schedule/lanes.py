"""Lanes: the pieces of a buffer that run a schedule each, and the sequences in which they run.

An algorithm has a schedule for each of its slices; most have one. A buffer is cut into channels,
and each channel into the slices: slices x channels lanes. Lane i is slice ``i % slices`` of channel
``i // slices``. ``window`` channels are in flight at once, so executors run a sequence for each
lane of a window: its lanes, one after another. Sequences advance independently. With 2 slices, 4
channels and a window of 2 there are 8 lanes in 4 sequences:

======== ========= ========= ========= =========
sequence channel 0 channel 1 channel 2 channel 3
======== ========= ========= ========= =========
0        lane 0              lane 4
1        lane 1              lane 5
2                  lane 2              lane 6
3                  lane 3              lane 7
======== ========= ========= ========= =========
"""


def lane_sequences(slices: int, lanes: int, window: int) -> list[range]:
    """Return the lanes of each sequence, in the order in which they run.

    Args:
        slices: the number of slices.
        lanes: the number of lanes, a multiple of ``slices``.
        window: the number of channels in flight at once; at most all of them are.
    """
    count = max(1, min(window * slices, lanes))
    return [range(number, lanes, count) for number in range(count)]
