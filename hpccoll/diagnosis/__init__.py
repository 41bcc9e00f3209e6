"""Diagnosis: which node, direction, link, rail, uplink or rack is slow, from transfers between pairs of nodes.

``procedure.diagnose`` is the whole procedure, written once as a generator: it yields slots of
transfers to measure, is sent their times, and returns the diagnosis. Whoever drives it measures:
ranks over MPI, a simulated machine, or a file of recorded slots. Rank processes import it: it needs
NumPy, and nothing else.

The model: the logarithm of the time of a transfer is the sum of an effect of its slot, one of the
distance (across racks), one of each of the two nodes, and noise, which is normal except for a few
spikes upwards. A fault makes a transfer slower, never faster, and a transfer is as slow as the
slowest component on its path; what is shared, such as uplinks, also only slows. Locations are
therefore lower quartiles, and scales are medians of absolute deviations.

The constants and the order of the steps were chosen by simulation, and
``tests/benchmarks/diagnose_simulated.py`` measures their error rates: how often a healthy machine
is accused, how often a fault is found, and nothing else.
"""
