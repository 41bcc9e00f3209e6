"""Results of runs to compare: cases of SIZES with rounds of known noise, some of them changed by a factor."""

import numpy as np
from row_examples import make_row

from hpccoll.store.rows import Results, Run

SIZES = [1024 * 2**power for power in range(8)]


def run(provenance=None, **changes):
    return Run(
        run_id="run-1",
        job="local",
        attempt=1,
        created="2026-11-01T00:00:00+00:00",
        status="complete",
        kind="measured",
        machine="here",
        path="a.h5",
        provenance=provenance or {"kernel": "Linux"},
        **changes,
    )


def results(factors=None, *, rounds=5, seed=1, noise=0.01, provenance=None, missing=(), **changes):
    """Return results of SIZES, some with times that a factor changes, or without a row where it is None."""
    generator = np.random.default_rng(seed)
    rows = []
    for nbytes in SIZES:
        factor = (factors or {}).get(nbytes, 1.0)
        if factor is not None:
            medians = nbytes * 1e-9 * factor * np.exp(noise * generator.standard_normal(rounds))
            rows.append(
                make_row(
                    nbytes=nbytes,
                    seconds=float(np.median(medians)),
                    round_medians_s=tuple(map(float, medians)),
                    round_run_ids=("run-1",) * rounds,
                    round_intervals_s=(None,) * rounds,
                    **changes,
                )
            )
    return Results(
        rows=tuple(rows), runs=(run(provenance),), planned=len(SIZES), missing=tuple(missing)
    )
