"""The order in which ranks launch the operations of steps: one global order, whatever the mesh."""

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.training.launch_order import launch_orders
from hpccoll.extensions.steps.training.models import model_of
from hpccoll.extensions.steps.training.models.decoders import mixtral_8x7b
from hpccoll.extensions.steps.training.models.transformers import gpt2
from hpccoll.extensions.steps.training.parallelism import SHARDINGS, Mesh, Parallelism
from hpccoll.extensions.steps.training.step_program import Compute, Start, StepProgram, Wait
from hpccoll.extensions.steps.training.step_program_builder import step_programs

SMALL = gpt2("small", blocks=4, hidden=64, vocabulary=128, sequence=32)
MODELS = {"gpt2": SMALL, "mixtral": mixtral_8x7b(), "resnet50": model_of("resnet50")}


def launches_of_ranks(mesh, programs, orders):
    """Return the operations that each rank launches, in its order, each as (its communicator, its number there).

    A communicator is named by its axis, or its direction, and its ranks.
    """
    found = []
    for rank in range(mesh.ranks):
        stage = mesh.stage_of(rank)
        operations, numbers, launches = programs[stage].operations, defaultdict(int), []
        for number in orders[stage]:
            operation = operations[number]
            if operation.peer is None:
                (group,) = (group for group in mesh.groups(operation.axis) if rank in group)
                name = operation.axis, tuple(group)
            else:
                (pair,) = (
                    pair for pair in mesh.pairs(*sorted((stage, operation.peer))) if rank in pair
                )
                forward = (operation.peer > stage) == operation.sends
                name = f"pp {'forward' if forward else 'back'}", tuple(pair)
            what = operation.collective, operation.nbytes, operation.dtype
            launches.append((name, numbers[name], what))
            numbers[name] += 1
        found.append(launches)
    return found


def is_one_order(launches):
    """Whether an order of all operations exists of which the launches of every rank are a part."""
    graph = TopologicalSorter()
    for of_rank in launches:
        for before, after in pairwise(of_rank):
            graph.add(after, before)
    try:
        graph.prepare()
    except CycleError:
        return False
    return True


def program_orders(programs):
    return [[*range(len(program.operations))] for program in programs]


def host_can_launch(program, order):
    """Whether a host that follows the program has launched an operation, in this order, before it awaits its end."""
    started, launched = 0, 0
    for instruction in program.instructions:
        if isinstance(instruction, Start):
            if instruction.after is not None and order.index(instruction.after) > order.index(
                started
            ):
                return False
            started += 1
            while launched < len(order) and order[launched] < started:
                launched += 1
        elif isinstance(instruction, Wait) and instruction.number not in order[:launched]:
            return False
    return launched == len(order)


meshes = st.tuples(*[st.sampled_from([1, 2, 3, 4])] * 3, *[st.sampled_from([1, 2])] * 2)


@given(
    st.sampled_from([*MODELS]),
    meshes,
    st.sampled_from(SHARDINGS),
    st.integers(1, 6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_all_ranks_of_any_mesh_launch_their_operations_in_one_order(
    model, sizes, sharding, micro_batches, overlap, sequence, recompute
):
    try:
        mesh = Mesh(*sizes)
        parallelism = Parallelism(
            mesh,
            sharding=sharding,
            micro_batches=micro_batches,
            overlap=overlap,
            sequence=sequence,
            recompute=recompute,
        )
        programs = step_programs(MODELS[model], parallelism)
    except BadInputError:  # the package refuses such a mesh
        return
    orders = launch_orders(programs)
    assert [sorted(order) for order in orders] == program_orders(programs)
    assert all(map(host_can_launch, programs, orders))
    launches = launches_of_ranks(mesh, programs, orders)
    assert is_one_order(launches)
    by_communicator = {}
    for of_rank in launches:
        own = defaultdict(list)
        for name, number, what in of_rank:
            own[name].append((number, what))
        for name, calls in own.items():
            assert by_communicator.setdefault(name, calls) == calls
    if mesh.pp == 1:
        assert orders == program_orders(programs)


@pytest.mark.parametrize("sizes", [{"pp": 2}, {"tp": 2, "pp": 2}, {"dp": 2, "pp": 2}, {"pp": 4}])
def test_the_programs_of_a_pipeline_have_no_order_of_their_own(sizes):
    mesh = Mesh(**sizes)
    programs = step_programs(SMALL, Parallelism(mesh, micro_batches=4))
    assert not is_one_order(launches_of_ranks(mesh, programs, program_orders(programs)))


def test_a_message_is_launched_when_both_of_its_ends_are_ready_for_it():
    mesh = Mesh(tp=2, pp=2)
    first, last = step_programs(SMALL, Parallelism(mesh, micro_batches=2))
    operations = first.operations
    sends = [number for number, operation in enumerate(operations) if operation.sends]
    order = launch_orders([first, last])[0]
    # The last stage waits for the first message, and is ready for the second one after a backward
    # pass: until then nothing is launched behind it on the first stage.
    assert order.index(sends[0]) == sends[0]
    receipts = [number for number, operation in enumerate(operations) if operation.receives]
    assert order.index(sends[1]) > order.index(receipts[0])


def test_a_receipt_without_a_message_is_an_error():
    first, last = step_programs(SMALL, Parallelism(Mesh(pp=2)))
    silent = StepProgram(
        0, first.model, tuple(each for each in first.instructions if isinstance(each, Compute)), ()
    )
    with pytest.raises(RuntimeError, match=r"\[1\]"):
        launch_orders([silent, last])
