"""Small runs in the layout of PICO: archives, directories and tables of metadata."""

import io
import tarfile

TIMESTAMP = "2025_03_13___15_38_05"
COLUMNS = (
    "timestamp,test_id,nnodes,tasks_per_node,collective_type,mpi_lib,mpi_lib_version,libbine_version,gpu_awareness,"
    "gpu_lib,gpu_lib_version,output_level,MPI_Op,notes"
)


def row(test=0, timestamp=TIMESTAMP, **values):
    """Return the row of a test; an all-reduce of four nodes unless ``values`` say otherwise."""
    columns = {
        "timestamp": timestamp,
        "test_id": test,
        "nnodes": 4,
        "tasks_per_node": 1,
        "collective_type": "ALLREDUCE",
        "mpi_lib": "OMPI",
        "mpi_lib_version": "4.1.6",
        "libbine_version": "1.0.0",
        "gpu_awareness": "no",
        "gpu_lib": "null",
        "gpu_lib_version": "null",
        "output_level": "summarized",
        "MPI_Op": "MPI_SUM",
        "notes": "null",
    }
    return ",".join(map(str, (columns | values).values()))


def times(*nanoseconds):
    return "\n".join(("highest", *map(str, nanoseconds), ""))


def allocation(hosts):
    return "".join(
        ("MPI_Rank,allocation\n", *(f"{rank},{host}\n" for rank, host in enumerate(hosts)))
    )


def write_machine(root, runs, rows, machine="leonardo", packed=True):
    """Write a machine: the files of each run by timestamp, and the rows of its table; return its directory."""
    directory = root / machine
    directory.mkdir(parents=True)
    (root / f"{machine}_metadata.csv").write_text("\n".join((COLUMNS, *rows, "")))
    for timestamp, files in runs.items():
        if packed:
            pack(
                directory / f"{timestamp}.tar.gz", {f"{timestamp}/{k}": v for k, v in files.items()}
            )
            continue
        for name, text in files.items():
            path = directory / timestamp / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return directory


def pack(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))


IMPLEMENTATIONS = {"ring": "ring_over", "recursive_doubling": "recursive_doubling_over"}
"""PICO's names of algorithms of all-reduces."""

JOBS = 4, 8, 16, 32
"""The numbers of nodes of the runs that ``write_simulated_machine`` writes."""


def write_simulated_machine(root, machine):
    """Write what all-reduces take on a known machine, on several numbers of nodes, as PICO would have measured it."""
    from model_observations import observed

    from hpccoll.schedule import Layout

    files = {}
    rows = []
    for test, nodes in enumerate(JOBS):
        rows.append(row(test, nnodes=nodes))
        for algorithm, implementation in IMPLEMENTATIONS.items():
            for measured in observed("all_reduce", algorithm, Layout.of(nodes, 1), noise=0.02):
                nanoseconds = [round(1e9 * seconds) for seconds in measured.rounds_s]
                name = f"{test}/{measured.nbytes // 4}_{implementation}_int32.csv"
                files[name] = times(*nanoseconds)
    return write_machine(root, {TIMESTAMP: files}, rows, machine)
