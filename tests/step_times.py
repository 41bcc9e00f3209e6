"""The times of a training step that a rank has printed: of its operations, by stream, and then of its computations."""

from itertools import pairwise

from hpccoll.extensions.steps.measure.step_computations import BEGIN, END, READY


def operations(step):
    """Return ready, begin and end of every operation."""
    return [step["events"][3 * number : 3 * number + 3] for number in range(len(step["streams"]))]


def computations(step):
    """Return begin and end of every computation."""
    times = step["events"][3 * len(step["streams"]) :]
    return [*zip(times[::2], times[1::2], strict=True)]


def are_in_order(step):
    """Return whether operations begin when they are ready, and those of a stream one after the other."""
    ran = operations(step)
    follow = all(
        before[END] <= after[BEGIN]
        for stream in set(step["streams"])
        for before, after in pairwise(
            each for each, name in zip(ran, step["streams"], strict=True) if name == stream
        )
    )
    return follow and all(each[READY] <= each[BEGIN] <= each[END] for each in ran)
