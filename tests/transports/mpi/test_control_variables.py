"""Variables of the MPI library of this environment, which is MPICH."""

from hpccoll.transports.mpi.control_variables import ControlVariable

NAME = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"


def test_a_variable_has_its_words_and_is_set_within_a_block_only():
    variable = ControlVariable.find(NAME)
    assert {"auto", "ring", "recursive_doubling"} <= variable.words.keys()
    before = variable.get()
    with variable.set_to(variable.words["ring"]):
        assert variable.get() == variable.words["ring"]
    assert variable.get() == before


def test_a_variable_that_the_library_does_not_have_is_none():
    assert ControlVariable.find("MPIR_CVAR_NONE_OF_IT") is None
