"""What the page begins with: what logs contradict or do not show, and what disturbed the runs."""

from dataclasses import replace
from itertools import chain

import pytest
from finding_values import value_lines
from golden_page import assert_golden

from hpccoll.analysis.opening_findings import opening_findings
from hpccoll.cases.variants import named_variants
from hpccoll.evidence.probe_result import ProbeResult
from hpccoll.render.report_writer import build_report
from hpccoll.render.terminal_summary import outcome_lines

SIZE = 67108864
HEAD = "n0:4021:4021 [0] NCCL INFO "
SOCKETS = f"""{HEAD}NCCL version 2.30.7+cuda12.9
{HEAD}NET/Plugin: Could not find: libnccl-net.so
{HEAD}NET/IB : No device found.
{HEAD}NET/Socket : Using [0]eth0:10.0.0.1<0>
{HEAD}Using network Socket
{HEAD}comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
{HEAD}Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0
{HEAD}AllReduce: {SIZE} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..1}}
"""
WHY = "Cannot initialize CollNet, using point-to-point network instead"
REFUSED = f"""{HEAD}NCCL version 2.30.7+cuda12.9
{HEAD}NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
{HEAD}Using network IB
{HEAD}comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
n0:4021:4021 [0] init.cc:1392 NCCL WARN {WHY}
{HEAD}AllReduce: {SIZE} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..15}}
"""
INFINIBAND = [
    {
        "hosts": ["n0"],
        "ports": [{"name": "mlx5_0/1", "kind": "infiniband", "link_layer": "InfiniBand"}],
    }
]


@pytest.fixture
def measured(tmp_path, make_row, make_run, of_rows):
    """``measured(log, **provenance)`` are the results of NCCL's all-reduce in a run whose probe left ``log``."""

    def measure(log, variant=None, environment=None, collective="all_reduce", **provenance):
        (tmp_path / "nccl.n0.4021.log").write_text(log)
        known = named_variants().get(variant)
        environment = known.environment if known and environment is None else environment or {}
        probe = ProbeResult.from_logs(tmp_path).to_json()
        run = make_run(
            evidence=probe,
            variant=variant,
            environment=environment,
            job="nccl.n2x8",
            provenance=provenance,
        )
        return of_rows(make_row("native", transport="nccl", collective=collective), runs=[run])

    return measure


def test_the_page_begins_with_tcp_where_rdma_was_expected(measured, tmp_path):
    results = measured(SOCKETS, ports=INFINIBAND)
    assert next(outcome_lines(results)).startswith("RDMA was expected and TCP was used")
    body = (
        build_report(results, tmp_path / "report", "sweep")
        .read_text()
        .partition("<body>")[2]
        .strip()
    )
    first = body.partition("</p>")[0]
    assert first.startswith('<p class="critical" role="alert">RDMA was expected and TCP was used')
    assert "Socket" in first
    assert "Expected, because mlx5_0/1 is active. In nccl.n2x8." in first


ONE_NODE = SOCKETS.replace("nNodes 2", "nNodes 1").replace("via NET/Socket/0", "via P2P/CUMEM")
STILL_SHARP = REFUSED.replace(WHY, "nothing").replace("Algo RING", "Algo COLLNET_DIRECT")
DIRECT = f"{REFUSED}{HEAD}Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
A, B = "n1 0000:1b:00.0", "n2 0000:1b:00.0"
"""GPUs."""


def load(host="n0", other_cores=0.0, stolen=0.0):
    busiest = [{"name": "make", "cores": other_cores}] if other_cores else []
    return {"host": host, "stolen": stolen, "other_cores": other_cores, "busiest": busiest}


def test_each_rule_of_what_a_page_begins_with_shows_in_its_results(
    measured, make_row, make_run, of_rows
):
    def of_runs(facts, *rows):
        runs = [
            make_run(run_id=f"run-{n}", job=f"job-{n}", provenance=each)
            for n, each in enumerate(facts)
        ]
        return of_rows(*(rows or (make_row(run_id=run.run_id) for run in runs)), runs=runs)

    def over_nccl(level, ranks=2, transport="nccl"):
        run = make_run(
            run_id="run-0",
            job="job-0",
            provenance={"mpi": {"threads": level}},
            rank_nodes=(0,) * ranks,
        )
        return of_rows(make_row(run_id="run-0", transport=transport), runs=[run])

    def loads(*of_each, rows=()):
        return of_runs([{"host_load": each} for each in of_each], *rows)

    def clocks(*of_each, name="gpu_slow"):
        return of_rows(
            *(make_row(gpu_sm_clock=1e9, **{name: each}) for each in of_each),
            make_row(device="cpu"),
        )

    compiled, python = make_row(executor="compiled"), make_row(executor="python")
    on_gpu, skipped = replace(python, device="cuda"), make_row(status="skipped", executor=None)
    untimed = replace(make_row(status="skipped", run_id="run-0"), median_s=None)
    brake, heat = {A: ("power brake",)}, {A: ("thermal limit",), B: ("thermal limit",)}
    by_mistake = {"variant": "nccl-ring", "network": "rdma", "variables": {"NCCL_IB_DISABLE": "1"}}
    of_user = {"variant": "nccl-socket", "environment": {"NCCL_NET": "Socket"}}
    other_nvls = {"variant": "nccl-nvls", "environment": {"NCCL_ALGO": "Ring"}}
    scenarios = {
        "no network is expected": measured(SOCKETS),
        "TCP is": measured(SOCKETS, network="tcp"),
        "a site decides before ports do": measured(SOCKETS, network="tcp", ports=INFINIBAND),
        "a variant requests TCP": measured(SOCKETS, network="rdma", **of_user),
        "one node has no network": measured(ONE_NODE, network="rdma"),
        "variables of a site request nothing": measured(SOCKETS, **by_mistake),
        "a variant ran": measured(REFUSED, "nccl-ring"),
        "a control shows nothing": measured(REFUSED, "nccl-sharp-off"),
        "a control shows what it must not": measured(STILL_SHARP, "nccl-sharp-off"),
        "a control left no logs": measured(DIRECT, "nccl-gdr"),
        "a variant lacks its evidence": measured(REFUSED, "nccl-sharp"),
        "and another one": measured(REFUSED, "nccl-gdr"),
        "sends and receives have no algorithm": measured(REFUSED, "nccl-nvls", collective="all_to_all"),
        "a variant is not that of the table": measured(REFUSED, **other_nvls),
        "both executors in one kind of memory": of_rows(compiled, python, python),
        "not in one kind": of_rows(compiled, on_gpu),
        "nor of Python alone": of_rows(python, on_gpu),
        "nor where one measured nothing": of_rows(compiled, skipped),
        "jobs with ranks far from their GPU": of_runs({"ranks_far_from_gpu": r} for r in ([4, 5], None, [4, 5])),
        "ranks that see one GPU": of_runs([{"ranks_seeing_one_gpu": [4, 5]}]),
        "a stall ends a launch without the thread level": over_nccl("serialized"),
        "with it the others go on": over_nccl("multiple"),
        "one rank has no others": over_nccl("serialized", ranks=1),
        "over MPI nothing recovers": over_nccl("funneled", transport="mpi"),
        "the most that something else used": loads(
            [load(), load("n1", other_cores=0.5)], [load(stolen=0.1)], [load()]),
        "idle, or of an earlier version": loads([load(other_cores=0.05)], []),
        "nothing was timed": loads([load(other_cores=0.5)], rows=[untimed]),
        "lowered clocks, with the reasons and cases": clocks(brake, heat, heat, {}, name="gpu_throttled"),
        "limits that lowered clocks in rounds": of_rows(
            make_row(rounds=3, lowered_rounds="1: power; 3: power, heat"), make_row(rounds=3)
        ),
        "the floor of times by events": of_rows(make_row(device_s=1e-6, device_floor_s=1.3e-7, operations=20)),
        "a clock is low in most cases": clocks({A: 0.8, B: 0.9}, {A: 0.7}, {A: 0.9}, {}, {A: 0.8}),
        "once may be chance": clocks({A: 0.8, B: 0.9}, {}, {}, {}),
    }  # fmt: skip
    lines = [
        (f"-- {rule}", *value_lines(opening_findings(results)))
        for rule, results in scenarios.items()
    ]
    assert_golden("opening_findings", chain(*lines))
