"""Results of a library's own algorithms, each measured in a job of its own, as sweeps of variants have them."""

from row_examples import make_row

from hpccoll.store.rows import Results, Run

VERSIONS = {"openmpi": "Open MPI v5.0.11", "mpich": "MPICH 5.0.2", "nccl": "MPICH 5.0.2"}


def library_results(library, curves, *, half=0.02, environments=None, **changes):
    """Return results of all_reduce by variant and size.

    Args:
        library: the library; its default is the variant ``default``.
        curves: for each variant the microseconds by size.
        half: half the relative 95 % interval of each time.
        environments: the variables of variants.
        changes: what differs in all rows; a function gets the variant and the size.
    """
    runs, rows = [], []
    for variant, times in curves.items():
        run = f"run of {variant}"
        runs.append(
            Run(
                run_id=run,
                job=f"job of {variant}",
                attempt=1,
                created="2026-01-05T10:00:00+00:00",
                status="complete",
                kind="measured",
                machine="4 nodes",
                path="a.h5",
                provenance={"mpi": {"version": VERSIONS[library]}},
                variant=variant,
                environment=(environments or {}).get(variant, {}),
            )
        )
        for size, time in times.items():
            seconds = time * 1e-6
            asked = {
                name: value(variant, size) if callable(value) else value
                for name, value in changes.items()
            }
            about = {
                "requested": None if variant.endswith("default") else variant.partition("-")[2],
                "executed": "unknown",
                "ranks": 4,
                "nodes": 4,
                "ranks_per_node": 1,
                "transport": "nccl" if library == "nccl" else "mpi",
            }
            rows.append(
                make_row(
                    "native",
                    nbytes=size,
                    seconds=seconds,
                    half_interval=half,
                    variant=variant,
                    run_id=run,
                    round_run_ids=(run,),
                    round_medians_s=(seconds,),
                    round_intervals_s=((seconds * (1 - half), seconds * (1 + half)),),
                    **(about | asked),
                )
            )
    return Results(rows=tuple(rows), runs=tuple(runs), planned=len(rows))


def joined(*several):
    """Return the results of several, as of one directory."""
    runs = {run.run_id: run for each in several for run in each.runs}
    rows = tuple(row for each in several for row in each.rows)
    return Results(rows=rows, runs=tuple(runs.values()), planned=len(rows))
