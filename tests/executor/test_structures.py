"""The structures that Python and C share."""

from ctypes import c_int64

from hpccoll.executor.library import NativeUnavailableError, load_library
from hpccoll.executor.structures import SIZES


def test_structures_have_the_sizes_of_those_in_c(require):
    try:
        library = load_library()
    except NativeUnavailableError as error:
        require(False, str(error))
    assert tuple((c_int64 * len(SIZES)).in_dll(library, "hpccoll_structure_sizes")) == SIZES
