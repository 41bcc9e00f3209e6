"""The loader takes the library that was built from the sources next to it, and no other."""

import pytest

LOAD = """
from ctypes import c_char
from hpccoll.executor.library import load_library
try:
    print("loaded", (c_char * 17).in_dll(load_library(), "hpccoll_source_hash").value.decode())
except Exception as error:
    print(type(error).__name__, error)
"""
REMEDY = "python -m hpccoll.executor.build"


def load(tree):
    ended = tree.python("-c", LOAD)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_library_that_is_not_built_or_refused_by_the_loader_is_unavailable(tree):
    assert (
        load(tree)
        == f"ExecutorUnavailableError executor: {tree.library} is not built; do: {REMEDY}"
    )
    tree.library.write_text("of another machine")
    message = load(tree)
    assert message.startswith(
        f"ExecutorUnavailableError executor: {tree.library} cannot be loaded: "
    )
    assert message.endswith(REMEDY)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("library.c", "\n", "\n\n"), ("build.py", '"-O3"', '"-O2"')],
    ids=["source", "flags"],
)
def test_a_library_of_other_sources_or_flags_is_refused_by_name_until_it_is_rebuilt(
    built, name, old, new
):
    _, before = load(built).split()
    file = built.native / name
    file.write_text(file.read_text().replace(old, new, 1))
    message = load(built)
    assert message.startswith(f"UnusableError executor: {built.library} is stale: ")
    assert before in message
    assert f"do: {REMEDY}, or choose --executor python" in message
    assert built.build().returncode == 0
    assert load(built).startswith("loaded")


def test_a_library_without_a_hash_is_refused(built):
    built.source.write_text("extern int none;\n")
    assert built.build().returncode == 0
    assert load(built).startswith(f"UnusableError executor: {built.library} is stale: ")
