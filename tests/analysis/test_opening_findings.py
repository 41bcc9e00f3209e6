"""What the page begins with: what logs contradict or do not show, and what disturbed the runs."""

from dataclasses import replace

import pytest

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
INFINIBAND = [{"hosts": ["n0"], "ports": [{"name": "mlx5_0/1", "kind": "infiniband", "link_layer": "InfiniBand"}]}]


@pytest.fixture
def measured(tmp_path, make_row, make_run, of_rows):
    """``measured(log, **provenance)`` are the results of NCCL's all-reduce in a run whose probe left ``log``."""

    def measure(log, variant=None, environment=None, collective="all_reduce", **provenance):
        (tmp_path / "nccl.n0.4021.log").write_text(log)
        known = named_variants().get(variant)
        environment = known.environment if known and environment is None else environment or {}
        probe = ProbeResult.from_logs(tmp_path).to_json()
        run = make_run(evidence=probe, variant=variant, environment=environment, job="nccl.n2x8", provenance=provenance)
        return of_rows(make_row("native", transport="nccl", collective=collective), runs=[run])

    return measure


def test_the_page_begins_with_tcp_where_rdma_was_expected(measured, tmp_path):
    results = measured(SOCKETS, ports=INFINIBAND)
    assert next(outcome_lines(results)).startswith("RDMA was expected and TCP was used")
    body = build_report(results, tmp_path / "report", "sweep").read_text().partition("<body>")[2].strip()
    first = body.partition("</p>")[0]
    assert first.startswith('<p class="critical" role="alert">RDMA was expected and TCP was used')
    assert "Socket" in first
    assert "Expected, because mlx5_0/1 is active. In nccl.n2x8." in first


ONE_NODE = SOCKETS.replace("nNodes 2", "nNodes 1").replace("via NET/Socket/0", "via P2P/CUMEM")
STILL_SHARP = REFUSED.replace(WHY, "nothing").replace("Algo RING", "Algo COLLNET_DIRECT")
DIRECT = f"{REFUSED}{HEAD}Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/0/GDRDMA\n"


@pytest.mark.parametrize(
    ("log", "about"),
    [
        (SOCKETS, {}),  # nothing is expected
        (SOCKETS, {"network": "tcp"}),
        (SOCKETS, {"network": "tcp", "ports": INFINIBAND}),
        (SOCKETS, {"network": "rdma", "variant": "nccl-socket", "environment": {"NCCL_NET": "Socket"}}),
        (ONE_NODE, {"network": "rdma"}),
        (REFUSED, {"variant": "nccl-ring"}),
        (REFUSED, {"variant": "nccl-sharp-off"}),
        (REFUSED, {"variant": "nccl-nvls", "collective": "all_to_all"}),  # of sends and receives
        (REFUSED, {"variant": "nccl-nvls", "environment": {"NCCL_ALGO": "Ring"}}),  # it is not that of the table
    ],
)
def test_what_is_expected_or_requested_is_no_finding(measured, log, about):
    assert opening_findings(measured(log, **about)) == []


BY_MISTAKE = {"variant": "nccl-ring", "network": "rdma", "variables": {"NCCL_IB_DISABLE": "1"}}


@pytest.mark.parametrize(
    ("log", "about", "kind", "words"),
    [
        (SOCKETS, BY_MISTAKE, "network_mismatch", "RDMA"),
        (STILL_SHARP, {"variant": "nccl-sharp-off"}, "control_failed", "COLLNET_DIRECT"),
        (DIRECT, {"variant": "nccl-gdr"}, "control_missing", "nccl-gdr-off"),
        (REFUSED, {"variant": "nccl-sharp"}, "evidence_missing", "a TUNING line with Algo COLLNET_DIRECT"),
        (REFUSED, {"variant": "nccl-gdr"}, "evidence_missing", "channels via NET/.../GDRDMA, all of them"),
    ],
)
def test_what_contradicts_the_settings_or_lacks_its_evidence_is_a_finding(measured, log, about, kind, words):
    (finding,) = opening_findings(measured(log, **about))
    assert (finding.kind, finding.severity) == (kind, "critical")
    assert kind == "network_mismatch" or finding.values["variant"] == about["variant"]
    assert words in str(finding.values)


def test_both_executors_in_one_kind_of_memory_are_a_warning(make_row, of_rows):
    compiled, python = make_row(executor="compiled"), make_row(executor="python")
    (finding,) = opening_findings(of_rows(compiled, python, python))
    assert (finding.kind, finding.severity) == ("several_executors", "warning")
    assert finding.values == {"rows": {"compiled": 1, "python": 2}}
    on_gpu = make_row(executor="python", device="cuda")
    for rows in (compiled, on_gpu), (python, on_gpu), (compiled, make_row(status="skipped")):
        assert opening_findings(of_rows(*rows)) == []


@pytest.mark.parametrize(
    ("fact", "kind", "values"),
    [
        ("ranks_far_from_gpu", "far_gpus", {"number": 2, "first": 4}),
        ("ranks_seeing_one_gpu", "hidden_gpus", {"number": 2}),
    ],
)
def test_ranks_far_from_their_gpu_or_that_see_one_only_are_a_warning_with_the_jobs(
    of_rows, make_row, make_run, fact, kind, values
):
    runs = [
        make_run(run_id=f"run-{n}", job=f"job-{n}", provenance={fact: ranks})
        for n, ranks in enumerate([[4, 5], None, [4, 5]])
    ]
    (found,) = opening_findings(of_rows(make_row(), runs=runs))
    assert (found.kind, found.severity, found.values) == (kind, "warning", values | {"jobs": ("job-0", "job-2")})


def load(host="n0", other_cores=0.0, stolen=0.0):
    return {
        "host": host, "stolen": stolen, "other_cores": other_cores, "load_average": [1.0, 1.0], "seconds": 9.0,
        "busiest": [{"name": "make", "cores": other_cores}] if other_cores else [],
    }  # fmt: skip


def test_a_busy_machine_is_a_warning_with_the_most_that_something_else_used(of_rows, make_row, make_run):
    def found(*loads, row=None):
        runs = [make_run(run_id=f"run-{n}", provenance={"host_load": of_run}) for n, of_run in enumerate(loads)]
        return opening_findings(of_rows(*(row or make_row(run_id=run.run_id) for run in runs), runs=runs))

    (busy,) = found([load(), load("n1", other_cores=0.5)], [load(stolen=0.1)], [load()])
    assert (busy.kind, busy.severity) == ("busy_machine", "warning")
    assert (busy.values["launches"], busy.values["all_launches"]) == (2, 3)
    assert "0.50 cores of n1 (make 0.50); 10.0 % of the CPU time of n0" in busy.values["load"]
    assert found([load(other_cores=0.05)], []) == []  # idle, or of an earlier version
    untimed = replace(make_row(status="skipped", run_id="run-0"), median_s=None)
    assert found([load(other_cores=0.5)], row=untimed) == []


A, B = "n1 0000:1b:00.0", "n2 0000:1b:00.0"
"""GPUs."""


def test_gpus_with_lowered_clocks_are_a_warning_with_the_reasons_and_the_number_of_cases(of_rows, make_row):
    brake, heat = {A: ("power brake",)}, {A: ("thermal limit",), B: ("thermal limit",)}
    rows = [make_row(gpu_sm_clock=1e9, gpu_throttled=why) for why in (brake, heat, heat, {})]
    (found,) = opening_findings(of_rows(*rows, make_row(device="cpu")))
    assert (found.kind, found.severity) == ("gpus_throttled", "warning")
    assert found.values == {"gpus": ((A, 3, ("power brake", "thermal limit")), (B, 2, ("thermal limit",)))}


def test_a_gpu_whose_clock_is_below_the_others_in_most_cases_is_a_warning(of_rows, make_row):
    rows = [make_row(gpu_sm_clock=1e9, gpu_slow=slow) for slow in ({A: 0.8, B: 0.9}, {A: 0.7}, {A: 0.9}, {}, {A: 0.8})]
    (found,) = opening_findings(of_rows(*rows))
    assert (found.kind, found.severity) == ("gpu_clocks_differ", "warning")
    assert found.values == {"gpus": ((A, 4, pytest.approx(0.8)),)}
    assert opening_findings(of_rows(*rows[:1], *[rows[3]] * 3)) == []  # once may be chance
