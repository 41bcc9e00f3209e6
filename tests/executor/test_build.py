"""The C library is built by the command, by a wheel and by an editable install, and an install never fails for it."""

import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from hpccoll import __version__

LOAD = "from hpccoll.executor.library import load_library; load_library()"
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")


@pytest.fixture
def package(tree, tmp_path, require):
    """Have hatchling build a wheel or an sdist of the tree; returns the archive and the output."""
    require(find_spec("hatchling"), "hatchling is not installed")

    def package(target, **variables):
        ended = tree.python(
            "-m", "hatchling", "build", "-t", target, "-d", tmp_path / "dist", **variables
        )
        assert ended.returncode == 0, ended.stderr
        (archive,) = (tmp_path / "dist").iterdir()
        return archive, ended.stdout + ended.stderr

    return package


def test_a_wheel_carries_the_library_and_its_sources_for_this_platform(built, package, tmp_path):
    built.library.unlink()
    wheel, _ = package("wheel")
    assert wheel.name == f"hpccoll-{__version__}-py3-none-{PLATFORM}.whl"
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    carried = {path.name for path in (tmp_path / "site" / "hpccoll" / "executor").iterdir()}
    assert carried >= {"libhpccoll.so", *(path.name for path in built.native.glob("*.[ch]"))}
    assert not built.library.exists()
    loaded = built.python("-P", "-c", LOAD, PYTHONPATH=str(tmp_path / "site"))
    assert loaded.returncode == 0, loaded.stderr


@pytest.mark.parametrize(
    ("variables", "source", "reason"),
    [
        ({"PATH": "/nonexistent"}, None, "cc or gcc is not on PATH"),
        ({"CC": "nocc"}, None, "nocc is not on PATH"),
        ({}, "#error this is broken\n", "this is broken"),
    ],
)
def test_without_a_library_a_wheel_is_for_any_platform_and_says_why(
    built, package, variables, source, reason
):
    built.source.write_text(source or built.source.read_text())
    wheel, said = package("wheel", **variables)
    assert wheel.name == f"hpccoll-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert ("hpccoll/executor/library.c" in names, "hpccoll/executor/libhpccoll.so" in names) == (
        True,
        False,
    )
    assert reason in said
    assert "python -m hpccoll.executor.build" in said


def test_an_sdist_carries_the_sources_alone(built, package):
    sdist, _ = package("sdist")
    with tarfile.open(sdist) as archive:
        names = {name.rpartition("/")[2] for name in archive.getnames() if "/executor/" in name}
    assert names == {path.name for path in built.native.iterdir() if path.is_file()} - {
        "libhpccoll.so"
    }


def test_an_editable_install_has_its_library_in_place(built, require):
    require(find_spec("hatchling"), "hatchling is not installed")
    built.library.unlink()
    hook = "from hpccoll.executor.build import get_build_hook as get; hook = get()('.', {}, None, None, '.', 'wheel')"
    ended = built.python(
        "-c", f"{hook}; hook.initialize('editable', {{}}); hook.finalize('editable', {{}}, '')"
    )
    assert ended.returncode == 0, ended.stderr
    assert built.python("-c", LOAD).returncode == 0


def test_a_library_in_use_is_replaced_and_not_written_to_and_stays_if_the_compiler_fails(built):
    with built.library.open("rb") as used:
        before = used.read()
        built.source.write_text(built.source.read_text() + "const char more[] = {0};\n")
        assert built.build().returncode == 0
        used.seek(0)
        assert used.read() == before != built.library.read_bytes()
    files = {path.name: path.read_bytes() for path in built.native.iterdir() if path.is_file()}
    (built.native / "broken.c").write_text("#error this is broken\n")
    ended = built.build()
    assert (ended.returncode, "this is broken" in ended.stderr) == (1, True)
    (built.native / "broken.c").unlink()
    assert {
        path.name: path.read_bytes() for path in built.native.iterdir() if path.is_file()
    } == files


def test_the_compiler_and_its_flags_are_those_of_the_environment_after_ours(tree):
    changing = "-Ofast -ffast-math -march=native"  # results, or the processors that run them
    ended = tree.build(
        CC="false --wrapped", CFLAGS=f"-O0 {changing} '-DA=a b'", LDFLAGS="-Lhere -Ofast -lmore"
    )
    words = ended.stderr
    order = [
        "false --wrapped -std=c11 -O3",
        " -O0 '-DA=a b' ",
        str(tree.source),
        " -Lhere -lmore -lm failed",
    ]
    assert sorted(order, key=words.find) == order
    assert all(word in words for word in order)
    assert not any(flag in words for flag in ("-Ofast", "-ffast-math", "-march"))


def test_a_sanitized_library_is_loaded_like_any_other(built, require):
    require(shutil.which("gcc"), "there is no gcc")
    asked = ["gcc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    require(Path(runtime).is_absolute(), "gcc has no AddressSanitizer")
    assert built.build("--sanitize", CC="gcc").returncode == 0
    assert b"__asan_init" in built.library.read_bytes()
    ended = built.python("-c", LOAD, LD_PRELOAD=runtime, ASAN_OPTIONS="detect_leaks=0")
    assert ended.returncode == 0, ended.stderr
