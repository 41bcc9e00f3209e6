"""Files as the counting library writes them, of programs that never ran."""

from dataclasses import dataclass, field


@dataclass
class CountedRankExample:
    """A rank of a program on two ranks a node; it ran for 10 s and spent 1 s in 1,000 all-reduces of 8 bytes."""

    rank: int = 0
    size: int = 4
    end: str = "finalized"
    launch: str = "1"
    began_unix_ns: int = 1_800_000_000_000_000_000
    ran_s: float = 10.0
    barrier: int = 0
    left_out: int = 0
    version: str = "MPICH Version:      5.0.2"
    abi: str = "MPICH"
    groups: list[str] = field(default_factory=lambda: ["0\tMPI_COMM_WORLD\t4\t4\t0\t1\tabc\t0:4:1"])
    calls: list[str] = field(
        default_factory=lambda: [
            "Allreduce\tblocking\t0\tMPI_DOUBLE\tMPI_SUM\t0\t1000\t8000\t1000000000\t0\t8\t8"
        ]
    )

    @property
    def text(self):
        lines = [
            "hpccoll-count\t1",
            f"rank\t{self.rank}",
            f"size\t{self.size}",
            f"host\tn{self.rank // 2}",
            "pid\t1",
            f"abi\t{self.abi}",
            "library\t/usr/lib/libmpi.so.12",
            f"version\t{self.version}",
            f"launch\t{self.launch}",
            f"end\t{self.end}",
            f"began_unix_ns\t{self.began_unix_ns}",
            f"ran_ns\t{self.ran_s * 1e9:.0f}",
            "cost_ps\t100000",
            "writing_ns\t1000000",
            f"barrier\t{self.barrier}",
            "threads\t0",
            *(f"group\t{group}" for group in self.groups),
            *(f"calls\t{calls}" for calls in self.calls),
            f"left_out\t{self.left_out}\t0",
            "end_of_file",
        ]
        return "\n".join(lines) + "\n"

    def write(self, directory):
        directory.mkdir(exist_ok=True)
        name = f"{self.rank}-n{self.rank // 2}-{self.launch}-{self.began_unix_ns}.count"
        (directory / name).write_text(self.text)


def write_ranks(directory, ranks=4, **fields):
    """Write the files of all ranks of a program."""
    for rank in range(ranks):
        CountedRankExample(rank, **fields).write(directory)
    return directory
