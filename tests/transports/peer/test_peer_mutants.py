"""Each fault of the peer kernel and its programs is found: by orders of blocks, ThreadSanitizer, clocks."""

import pytest
from peer_cases import SOME
from peer_mutants import (
    BARRIERS,
    EPOCHS,
    THREADED,
    ignored_abort_is_found,
    is_found_by_interleavings,
    missing_waits_with_conflicts,
    sanitized,
    sanitizer,
)

PROTOCOLS = "simple", "ll"


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("mutants")


@pytest.fixture
def found_by_sanitizer(require, directory):
    """Return the function that returns what the sanitizer finds."""
    require(sanitizer() is not None, "there is no libtsan: apt install gcc")
    return lambda *words: sanitized(*words, directory)


@pytest.mark.parametrize("fault", EPOCHS)
def test_orders_of_blocks_find_each_fault_of_epochs_and_words(directory, fault):
    assert is_found_by_interleavings(EPOCHS[fault], directory)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_missing_waits_between_folds_are_found(protocol):
    found, waits = missing_waits_with_conflicts(protocol)
    assert 0 < found <= waits


def test_a_kernel_that_ignores_the_abort_is_found(directory):
    assert ignored_abort_is_found(directory)


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", SOME)
def test_the_sanitizer_finds_every_needed_flag_without_release_or_without_acquire(
    found_by_sanitizer, name, protocol
):
    right, *weakened = found_by_sanitizer("flags", protocol, name)
    assert right == "right: no race"
    assert not [line for line in weakened if line.startswith(("missed", "unexpected"))]


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_the_sanitizer_finds_words_that_are_stored_in_halves(found_by_sanitizer, name):
    assert found_by_sanitizer("words", "ll", name) == ["right: no race", "torn: a race"]


@pytest.mark.long
def test_the_sanitizer_finds_every_missing_wait_of_the_threads_of_a_block(found_by_sanitizer):
    found = set()
    for name in THREADED:
        for protocol in PROTOCOLS:
            right, *lines = found_by_sanitizer("threads", protocol, name)
            assert right == "right: no race", (name, protocol)
            found.update(line.removeprefix("found: ") for line in lines if line.startswith("found"))
    assert found == set(BARRIERS)
