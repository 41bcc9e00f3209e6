"""Rows by their coordinates and their time, as results have them."""

from dataclasses import replace

from hpccoll.store.call_key import CallKey
from hpccoll.store.rows import Row

CORES = 2


def make_row(
    algorithm="ring",
    ranks=2,
    nbytes=1024,
    in_place=False,
    seconds=1e-5,
    half_interval=0.03,
    **changes,
):
    """Return a row; anything else may be changed."""
    asked = changes.keys() & {"transport", "params", *CallKey.__dataclass_fields__}
    others = "".join(f"-{changes[name]}" for name in sorted(asked))
    row = Row(
        case_id=f"{algorithm}-{ranks}-{nbytes}-{in_place:d}{others}",
        run_id="run-1",
        job="local",
        attempt=1,
        collective="all_reduce",
        algorithm=algorithm,
        transport="vendor" if algorithm == "native" else "mpi",
        device="cpu",
        dtype="float32",
        op="sum",
        in_place=in_place,
        mapping="block",
        root=None,
        params={},
        variant=None,
        bytes=nbytes,
        requested_bytes=nbytes,
        ranks=ranks,
        nodes=1,
        ranks_per_node=ranks,
        racks=1,
        aggregators=0,
        iterations=400,
        timing="single",
        rule="max",
        median_s=seconds,
        p99_s=seconds * 1.7,
        ci_low_s=seconds * (1 - half_interval),
        ci_high_s=seconds * (1 + half_interval),
        algbw_Bps=nbytes / seconds,
        busbw_Bps=nbytes / seconds * 2 * (ranks - 1) / ranks,
        cpu_s=seconds,
        wire_bytes_predicted=0,
        wire_bytes_measured=None,
        worker_sent_predicted=None,
        worker_sent_measured=None,
        worker_received_predicted=None,
        worker_received_measured=None,
        port_sent={},
        rack_bytes_predicted=None,
        wrong=0,
        status="ok",
        reason=None,
        converged=True,
        oversubscribed=ranks > CORES,
        executed=algorithm,
        evidence="schedule run by us",
        kind="measured",
        floor=algorithm == "null",
    )
    return replace(row, **changes)


def rounds_row(algorithm, *times, runs=None, half=0.02, **changes):
    """Return a row of several rounds by their medians in us, each with an interval of 2 % to either side."""
    there = sorted(time for time in times if time is not None)
    middle = there[len(there) // 2] * 1e-6
    runs = runs or ["run-1" if time else None for time in times]
    row = make_row(
        algorithm, seconds=middle, run_id=[run for run in runs if run][-1], rounds=len(there)
    )
    return replace(
        row,
        ci_low_s=there[0] * 0.98e-6,
        ci_high_s=there[-1] * 1.02e-6,
        round_medians_s=tuple(time and time * 1e-6 for time in times),
        round_intervals_s=tuple(
            time and (time * (1 - half) * 1e-6, time * (1 + half) * 1e-6) for time in times
        ),
        round_run_ids=tuple(runs),
        **changes,
    )
