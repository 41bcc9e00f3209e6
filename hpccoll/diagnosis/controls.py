"""Healthy pairs in the slots of a test, and what others take beyond them."""

import math

import numpy as np

from hpccoll.diagnosis.robust_statistics import (
    MEDIAN_ERROR,
    QUARTILE,
    median,
    median_of_others,
    quantile,
    robust_deviation,
)
from hpccoll.diagnosis.slot_records import Floats, Integers
from hpccoll.diagnosis.transfers import Transfers


class Controls:
    """The pairs of slots whose nodes are both not tested.

    Args:
        measured: the slots, less what is expected.
        tested: the nodes that are not controls.
    """

    def __init__(self, measured: Transfers, tested: Integers) -> None:
        nodes = np.arange(measured.partners.shape[1])
        is_tested = np.isin(nodes, tested)
        valid = np.isfinite(measured.both)
        present = valid & ~is_tested & ~is_tested[measured.partners]
        both = np.where(present, measured.both, np.nan)
        # what a control takes beside a tested node says nothing about the control
        self._counted = present | is_tested
        others_median = median_of_others(both, measured.partners)
        # left out beside tested nodes: their reference is of as many pairs
        first = np.argmax(present, axis=1)[:, None]
        has_others = np.isfinite(others_median)
        reference = np.where(has_others, others_median, both)
        tested_reference = np.take_along_axis(reference, first, 1)
        self._reference = np.where(present, others_median, tested_reference)
        self._beyond = both - self._reference
        self.slots = len(present)
        self.pairs = max(present.sum(1).min() / 2, 1)  # in the slot that has the fewest
        # of shape [nodes]: whether a node is a control in a third of the slots
        self.usual = present.sum(0) >= self.slots / 3
        effects = [self._effects(direction) for direction in measured.directions]
        self.effects = np.array(effects)  # [3, nodes], by DIRECTIONS

    @property
    def noise(self) -> float:
        """The standard deviation of control pairs within slots, as a logarithm."""
        reference_variance = MEDIAN_ERROR**2 / max(self.pairs - 1, 1)
        return robust_deviation(self._beyond) / math.sqrt(1 + reference_variance)

    def _effects(self, values: Floats) -> Floats:
        """Return of each node the lower quartile over slots beyond the controls, less the usual one of controls."""
        beyond_controls = np.where(self._counted, values - self._reference, np.nan)
        effects = quantile(beyond_controls.T, QUARTILE)
        usual = median(effects[self.usual])
        if not np.isfinite(usual):
            usual = 0.0
        return np.asarray(effects - usual)
