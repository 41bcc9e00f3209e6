"""The estimated memory of a case, compared with the allocated memory."""

import json
from dataclasses import asdict

import pytest
from catalogue_cases import ALL, case
from schedule_examples import ALGORITHMS, case_of

from hpccoll.cases.catalogue import NATIVE
from hpccoll.cases.memory_estimate import check_memory, memory_needed
from hpccoll.cases.skip_reason import unmet_needs
from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training import TRAINING_STEP
from hpccoll.extensions.steps.training.training_step import TrainingStep
from hpccoll.measure.run.payload import PERIOD
from hpccoll.schedule import COLLECTIVES, Layout
from hpccoll.schedule.unequal_blocks import PATTERNS
from hpccoll.transports.nccl.lowering import NcclLowering
from hpccoll.transports.peer.lowering import PeerLowering
from hpccoll.transports.peer.program import words_from

MIB = 2**20


def memory_cases():
    for name, algorithm in ALL:
        family = COLLECTIVES[name]
        if family.token:
            continue
        for params in (
            [{"traffic": pattern} for pattern in PATTERNS]
            if "traffic" in family.arguments
            else [{}]
        ):
            requested = case(name, algorithm, bytes=4 * MIB, dtype="int32", params=params)
            if not unmet_needs(requested, Layout.of(4)):
                yield requested


@pytest.mark.slow
@pytest.mark.mpi
def test_no_rank_allocates_more_memory_than_estimated(mpiexec, tmp_path):
    (tmp_path / "cases.json").write_text(
        json.dumps([asdict(requested) for requested in memory_cases()])
    )
    script = __file__.replace("test_memory_estimate", "measured_memory")
    ended = mpiexec(4, script, tmp_path / "cases.json")
    assert ended.returncode == 0, ended.stderr
    shares = json.loads(ended.stdout)
    assert len(shares) > 20
    # what does not grow with the size
    assert {name: share for name, share in shares.items() if share > 1.05} == {}
    assert max(shares.values()) > 0.9  # and not much less, or it would keep cases from running


def test_the_memory_of_the_ranks_of_a_node_adds_up_and_those_with_the_largest_blocks_may_share_one():
    ring, star = (case(algorithm=algorithm, bytes=MIB) for algorithm in ("ring", "star"))
    assert memory_needed(ring, 16, 8) == pytest.approx(8 * memory_needed(ring, 16, 1), rel=0.01)
    for ranks in (1, 8):  # all the others' vectors at the root, of which there is one
        assert memory_needed(star, 16, ranks) == memory_needed(ring, 16, ranks) + 14 * MIB
    zipf, equal = (
        case("all_to_all_v", NATIVE, bytes=MIB, params={"traffic": name})
        for name in ("zipf", "uniform")
    )
    assert memory_needed(zipf, 64, 64) == memory_needed(equal, 64, 64)  # all together have as much
    assert memory_needed(zipf, 64, 1) > 5 * memory_needed(equal, 64, 1)


def step(**params):
    workload = TrainingStep.of(params)
    return case(
        TRAINING_STEP,
        bytes=workload.gradient_bytes("float32"),
        in_place=True,
        params=workload.params,
    )


def test_a_training_step_needs_the_memory_of_its_collectives():
    gradients = memory_needed(case(bytes=step().bytes), 4, 4)
    assert memory_needed(step(), 4, 4) == gradients
    assert memory_needed(step(), 1, 1) == 0  # a single rank synchronises nothing
    assert memory_needed(step(sharding="zero2", micro_batches=3), 4, 4) == pytest.approx(
        4 * gradients, rel=0.01
    )
    assert memory_needed(step(parallel="dp=3"), 4, 4) == 0  # it will be skipped
    whole, divided = step(model="gpt2"), step(model="gpt2", parallel="dp=2,tp=4")
    assert 0 < memory_needed(divided, 8, 1) < memory_needed(whole, 8, 1) / 3
    many = step(model="gpt2", parallel="tp=2", samples=4096)
    # its activations
    assert memory_needed(many, 2, 2) == memory_needed(case(bytes=4096 * 1024 * 768 * 4), 2, 2)


def test_what_does_not_fit_is_bad_input_with_the_needed_memory():
    with pytest.raises(
        BadInputError, match=r"2 ranks need .* GiB for it and 0.0977 GiB are free: at most about"
    ):
        check_memory([case(), case(bytes=64 * MIB)], 2, 2, 100 * MIB)
    check_memory([case(bytes=MIB)], 2, 2, 100 * MIB)
    own = {"mine": {"modules": [{"name": "fc", "tensors": {"weight": MIB}}]}}
    mine = case(TRAINING_STEP, bytes=4 * MIB, in_place=True, params={"model": "mine"})
    with pytest.raises(BadInputError, match="GiB are free"):
        check_memory([mine], 2, 2, MIB, models=own)


def test_a_case_on_a_gpu_needs_host_memory_only_if_staged():
    requested = {
        over: case(bytes=MIB, device="cuda", transport=over) for over in ("nccl", "mpi", "staged")
    }
    of_host, of_gpu = (
        {over: memory_needed(each, 4, 2, device) for over, each in requested.items()}
        for device in ("cpu", "cuda")
    )
    # both buffers and scratch, of two ranks
    assert of_host == {"nccl": 0, "mpi": 0, "staged": 6 * MIB}
    tables = 2 * 2 * 16 * PERIOD  # of either rank one of what fills and one of what is expected
    assert of_gpu == {"nccl": 6 * MIB + tables, "mpi": 6 * MIB + tables, "staged": 4 * MIB + tables}


@pytest.mark.parametrize(
    "name", [name for name, (_, algorithm) in ALGORITHMS.items() if not algorithm.aggregates]
)
def test_a_plan_over_nccl_allocates_no_more_than_estimated(name):
    collective, algorithm = ALGORITHMS[name]
    on = case_of(name, 4)
    operation = on.operation(1 << 24, "int32", in_place=on.placements[0], channels=4, window=4)
    lowerings = [NcclLowering(me, operation) for me in range(4)]
    elements = (
        sum(c.lengths.values()) + sum(operation.elements(own, c.me) for own in ("src", "dst"))
        for c in lowerings
    )
    requested = case(
        collective.name,
        algorithm.name,
        dtype="int32",
        device="cuda",
        transport="nccl",
        bytes=operation.call.bytes(1 << 24, 4),
    )
    assert max(elements) * 4 <= memory_needed(requested, 4, 1, "cuda")


@pytest.mark.parametrize(
    "name", [name for name, (_, algorithm) in ALGORITHMS.items() if not algorithm.aggregates]
)
def test_a_plan_over_peer_allocates_no_more_than_estimated_with_its_words(name):
    collective, algorithm = ALGORITHMS[name]
    on = case_of(name, 4)
    operation = on.operation(1 << 24, "int32", in_place=on.placements[0], channels=4, window=4)
    lowerings = [PeerLowering(me, operation, "ll") for me in range(4)]
    proposals = [lowering.proposals() for lowering in lowerings]
    elements = []
    for me, lowering in enumerate(lowerings):
        lowering.programs([proposal[me] for proposal in proposals])
        buffers = sum(operation.elements(buffer, me) for buffer in ("src", "dst"))
        scratch = lowering.tmp_length + sum(lowering.scratch_lengths.values())
        names = map(words_from, range(4))
        received = sum(lowering.word_elements.get(words, 0) for words in names)
        elements.append(buffers + scratch + 4 * received)  # words of 8 bytes, of two operations
    params = {"protocol": "ll"}
    requested = case(
        collective.name,
        algorithm.name,
        dtype="int32",
        device="cuda",
        transport="peer",
        bytes=operation.call.bytes(1 << 24, 4),
        params=params,
    )
    assert max(elements) * 4 <= memory_needed(requested, 4, 1, "cuda")


def test_small_messages_over_peer_need_the_memory_of_their_words():
    on_gpu = {"bytes": 3 * 4096, "device": "cuda", "transport": "peer"}
    words, read_in_place = (
        case(**on_gpu, params={"protocol": protocol}) for protocol in ("ll", "simple")
    )
    needed = memory_needed(words, 3, 3, "cuda")
    assert needed == memory_needed(case(**on_gpu), 3, 3, "cuda")
    received = 3 * 4 * 4096  # by each of three ranks of a ring two thirds, twice
    assert needed - memory_needed(read_in_place, 3, 3, "cuda") == 4 * received


def test_the_arrivals_at_an_aggregator_must_fit_into_memory():
    ring, sharp = (
        case(algorithm=name, bytes=64 * MIB, params={"channels": 1})
        for name in ("ring", "sharp_emulated")
    )
    check_memory([sharp], 32, 1, 512 * MIB)
    check_memory([ring], 32, 1, 512 * MIB, aggregators=1)
    with pytest.raises(BadInputError, match=r"1 ranks need 2.06 GiB for it and 0.5 GiB are free"):
        check_memory([sharp], 32, 1, 512 * MIB, aggregators=1)


def test_a_gpu_has_memory_of_its_own_of_which_cases_leave_a_part_to_libraries():
    requested = case(bytes=64 * MIB, device="cuda", transport="nccl")
    check_memory([requested], 2, 2, 0)
    needed = memory_needed(requested, 2, 2, "cuda")
    check_memory([requested], 2, 2, int(needed / 0.9) + 2, "cuda")
    words = r"2 ranks need 0.379 GiB for it and 0.416 GiB are free on their GPU, 10% of it for libraries: at most"
    with pytest.raises(BadInputError, match=words):
        check_memory([requested], 2, 2, int(needed / 0.91), "cuda")
