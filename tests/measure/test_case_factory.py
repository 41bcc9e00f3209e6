"""The case factory: missing support is a reason to skip a case, as is a refusal by NCCL, which a fake gives here."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import raw_examples
from fake_nccl import FakeGpu, Library
from mpi4py import MPI

from hpccoll.cases.skip_reason import skip_reason
from hpccoll.cases.variants import NodeView
from hpccoll.common.errors import StalledError
from hpccoll.measure.run.case_choices import CaseChoices, launch_facts
from hpccoll.measure.run.case_factory import CaseFactory, SkippedCase, make_unless_refused
from hpccoll.schedule import Layout
from hpccoll.store.load_results import read_results
from hpccoll.transports.nccl import communicators, nccl_errors
from hpccoll.transports.stream_wait import Connecting

NATIVE_OVER_NCCL = raw_examples.case(algorithm="native", transport="nccl", device="cuda")
REFUSAL = "NCCL_ERROR_INVALID_USAGE: invalid usage (run with NCCL_DEBUG=WARN for details)"


STAGED = raw_examples.case(transport="staged", device="cuda")


@pytest.mark.parametrize(
    ("communicator", "case", "missing", "reason"),
    [
        ({"cta_policy": "zero", "max_ctas": 4}, NATIVE_OVER_NCCL, "before {}", "before 22800"),
        ({"max_ctas": 4}, NATIVE_OVER_NCCL, "", "the reason of another rank"),
        ({}, NATIVE_OVER_NCCL, "before {}", None),
        ({"max_ctas": 4}, STAGED, "before {}", None),
    ],
)
def test_only_cases_over_nccl_with_settings_that_a_rank_lacks_have_a_reason(
    monkeypatch, communicator, case, missing, reason
):
    name = "hpccoll.transports.nccl.communicator_config.missing_for_nccl4py"
    monkeypatch.setattr(name, lambda version: missing.format(version) or None)
    comm = SimpleNamespace(allgather=lambda own: [own, "the reason of another rank"])
    factory = SimpleNamespace(job=raw_examples.job(case, communicator=communicator), comm=comm)
    assert CaseFactory._config_reason(factory, case) == reason


NVLS, GDR = ("nccl-nvls", {"NCCL_ALGO": "NVLS"}), ("nccl-gdr", {"NCCL_NET_GDR_LEVEL": "SYS"})


@pytest.mark.parametrize(
    ("variant", "algorithm", "missing", "view", "words"),
    [
        (
            NVLS,
            "native",
            None,
            NodeView.of(1, 2, (2, 28, 3)),
            "before NCCL 2.28.7, the variant takes at least 3 ranks",
        ),
        (NVLS, "native", "no CUDA device", None, None),
    ],
)
def test_a_variant_is_limited_by_the_nodes_and_the_version_of_nccl_in_the_job(
    variant, algorithm, missing, view, words
):
    case = raw_examples.case(algorithm=algorithm, transport="nccl", device="cuda")
    job = raw_examples.job(case, variant=variant[0], environment=variant[1], ranks=4, nodes=2)
    gpus = SimpleNamespace(missing_for=lambda *_: missing, node_view=view)
    nodes = CaseFactory._nodes_of_nccl(SimpleNamespace(job=job, gpus=gpus))
    reason = skip_reason(case, Layout.of(4, 2), launch_facts(job, case, nodes[case.dtype]))
    assert (words in reason) if words else reason is None


class NcclError(RuntimeError):
    """An exception with the name of CuPy's."""


def plan_maker(error=None, closed=None):
    def make():
        if error:
            raise error
        return SimpleNamespace(close=lambda: closed.append("closed"))

    return make


def test_a_refused_call_gives_the_reason_and_the_next_case_gets_a_new_communicator():
    comm = MPI.COMM_SELF
    first = communicators.nccl_world(comm, FakeGpu(), Library)
    assert not isinstance(make_unless_refused(plan_maker(), comm), SkippedCase)
    assert communicators.nccl_world(comm, FakeGpu(), Library) is first
    assert make_unless_refused(plan_maker(NcclError(REFUSAL)), comm) == SkippedCase(
        f"NCCL refuses it: {REFUSAL}"
    )
    assert first.communicator.said == ["aborted"]
    assert communicators.nccl_world(comm, FakeGpu(), Library) is not first
    communicators.abort_world(comm)


def test_a_rank_whose_call_succeeded_while_others_were_refused_closes_its_plan_before_the_communicator():
    done, comm = [], SimpleNamespace(allgather=lambda own: [own, REFUSAL], handle=-1)
    communicators._WORLDS[comm.handle] = world = object.__new__(communicators.NcclWorld)
    world._workers, world.gpu = {}, FakeGpu()
    world.communicator = SimpleNamespace(abort=lambda: done.append("aborted"))
    assert make_unless_refused(plan_maker(closed=done), comm) == SkippedCase(
        f"NCCL refuses it: {REFUSAL}"
    )
    assert done == ["closed", "aborted"]


class Stalls(Connecting):
    """Ranks of which another one has stalled."""

    def await_all(self):
        raise StalledError("another rank has stopped")


def test_graphs_of_a_case_that_is_made_while_another_rank_stalls_are_destroyed_before_nccl_is_aborted():
    done = []
    calls = [SimpleNamespace(destroy_graphs=lambda: done.append("destroyed"))]
    with pytest.raises(StalledError, match="another rank"):
        make_unless_refused(lambda: SimpleNamespace(calls=calls), MPI.COMM_SELF, Stalls())
    assert done == ["destroyed"]


FAILED = nccl_errors.NcclFailedError(
    "NCCL makes no communicator at rank 1: NCCL_ERROR_SYSTEM_ERROR"
)


@pytest.mark.parametrize(
    ("error", "of_rank_1", "message", "closed"),
    [
        (FAILED, None, str(FAILED), []),
        (RuntimeError("an illegal access"), None, "an illegal access", []),
        (
            None,
            "NCCL_ERROR_SYSTEM_ERROR: unhandled",
            "rank 1: NCCL_ERROR_SYSTEM_ERROR: unhandled",
            ["closed"],
        ),
    ],
)
def test_errors_that_are_no_refusal_are_raised_and_those_of_nccl_on_all_ranks(
    error, of_rank_1, message, closed
):
    done, comm = [], SimpleNamespace(allgather=lambda own: [own, of_rank_1], handle=-1)
    with pytest.raises(type(error or FAILED), match=message):
        make_unless_refused(plan_maker(error, done), comm)
    assert done == closed


@pytest.mark.parametrize(
    ("dtypes", "case", "executor"),
    [
        (("float32",), raw_examples.case(), "compiled"),
        (("float64",), raw_examples.case(), "python"),
        (("float32",), NATIVE_OVER_NCCL, "python"),
    ],
)
def test_the_conditions_of_a_choice_name_the_executor_that_will_run_the_case(
    dtypes, case, executor
):
    choices = CaseChoices(raw_examples.job(case), raw_examples.attempt(), compiled=dtypes)
    assert choices._conditions(case).endswith(f" and the {executor} executor")


@pytest.mark.slow
def test_of_algorithms_with_the_same_plan_over_nccl_one_is_measured_and_nothing_is_missing(
    mpiexec, nccl_library, tmp_path
):
    ranks, out = Path(__file__).with_name("nccl_on_host_ranks.py"), tmp_path / "F.h5"
    cases = [
        "-a",
        "ring,hierarchical,rabenseifner",
        "-b",
        "64K",
        "-e",
        "64K",
        "--in-place",
        "-n",
        "6",
    ]
    ran = mpiexec(4, ranks, nccl_library, "--device", "cuda", "-t", "nccl", *cases, "--out", out)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {row.algorithm: (row.status, row.reason) for row in read_results([out]).rows} == {
        "ring": ("ok", None), "rabenseifner": ("ok", None),
        "hierarchical": ("skipped", "the same schedule as ring on 4 ranks on 1 node"),
    }  # fmt: skip
