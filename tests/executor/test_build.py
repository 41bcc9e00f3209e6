"""The C library is built by the command, by a wheel and by an editable install, and an install never fails for it."""

import platform
import re
import shutil
import subprocess
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from hpccoll import __version__
from hpccoll.executor.build import wheel_platform

LOAD = "from hpccoll.executor.library import load_library; load_library()"
OLDEST_DISTRIBUTION = 28
"""The minor version of glibc of RHEL 8: wheels of a release run there."""


@pytest.fixture
def package(tree, tmp_path, require):
    """Have hatchling build a wheel or an sdist of the tree; returns the archive and the output."""
    require(find_spec("hatchling"), "hatchling is not installed")
    require(find_spec("hatch_fancy_pypi_readme"), "hatch-fancy-pypi-readme is not installed")

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
    assert wheel.name.startswith(f"hpccoll-{__version__}-py3-none-")
    assert wheel.name.endswith(f"_{platform.machine()}.whl")
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    carried = {path.name for path in (tmp_path / "site" / "hpccoll" / "executor").iterdir()}
    libraries = {"libhpccoll.so", "libhpccollcount.so"}
    assert carried >= {*libraries, *(path.name for path in built.native.glob("*.[ch]"))}
    counting = tmp_path / "site" / "hpccoll" / "executor" / "counting"
    assert {path.name for path in counting.iterdir()} >= {"counting.h", "wrappers.c"}
    assert not built.library.exists()
    loaded = built.python("-P", "-c", LOAD, PYTHONPATH=str(tmp_path / "site"))
    assert loaded.returncode == 0, loaded.stderr


@pytest.mark.parametrize(
    ("names", "tag"),
    [
        (["libc.so.6", "GLIBC_2.2.5"], "manylinux_2_17_x86_64"),
        (["libc.so.6", "libm.so.6", "GLIBC_2.14", "GLIBC_2.34"], "manylinux_2_34_x86_64"),
        (["libc.so.6", "memcpy@GLIBC_2.14", "log@GLIBC_2.29"], "manylinux_2_29_x86_64"),
        (["libc.so"], "musllinux_1_2_x86_64"),
        (["libc.musl-x86_64.so.1"], "musllinux_1_2_x86_64"),
        (["libc.so.6", "libz.so.1", "GLIBC_2.17"], "linux_x86_64"),
        (["libc.so.6", "GLIBC_2.36", "GLIBC_ABI_DT_RELR"], "linux_x86_64"),
        (["libc.so.7"], "linux_x86_64"),
    ],
)
def test_the_tag_of_a_wheel_names_the_c_library_if_its_library_needs_nothing_else(names, tag):
    library = "\0".join(["\x7fELF", "library.c", *names, ""]).encode()
    assert wheel_platform(library, "linux-x86_64") == tag


def test_only_linux_has_tags_of_c_libraries():
    library = b"\0libc.so.6\0GLIBC_2.2.5\0"
    assert wheel_platform(library, "macosx-11.0-arm64") == "macosx_11_0_arm64"


@pytest.fixture
def auditwheel_tag(tree, require):
    """Return what auditwheel says of a wheel: the platform tag that its libraries allow."""
    require(find_spec("auditwheel"), "auditwheel is not installed")

    def auditwheel_tag(wheel):
        shown = tree.python("-m", "auditwheel", "show", wheel)
        assert shown.returncode == 0, shown.stderr
        (tag,) = re.findall(r"following\s+platform\s+tag:\s+\"(\w+)\"", shown.stdout)
        return tag

    return auditwheel_tag


@pytest.mark.usefixtures("built")
def test_a_wheel_has_the_tag_that_auditwheel_finds_and_runs_on_distributions_of_2018(
    package, auditwheel_tag
):
    wheel, _ = package("wheel")
    tag = auditwheel_tag(wheel)
    assert wheel.name.endswith(f"-{tag}.whl")
    assert int(tag.split("_")[2]) <= OLDEST_DISTRIBUTION


def test_a_wheel_whose_library_needs_the_glibc_of_2021_says_so(
    built, package, auditwheel_tag, require
):
    library, version = platform.libc_ver()
    newer = library == "glibc" and int(version.split(".")[1]) >= 34  # the first with pthread_join
    require(newer, "this machine has no glibc 2.34 or newer")
    joins = "#include <pthread.h>\nint join(pthread_t thread) { return pthread_join(thread, 0); }\n"
    built.source.write_text(built.source.read_text() + joins)
    wheel, _ = package("wheel")
    assert wheel.name.endswith(f"-manylinux_2_34_{platform.machine()}.whl")
    assert wheel.name.endswith(f"-{auditwheel_tag(wheel)}.whl")


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
    sources = {path.name for path in built.native.rglob("*") if path.is_file()}
    assert names == {name for name in sources if not name.endswith((".so", ".pyc"))}


def test_the_readme_of_an_archive_has_no_relative_link_and_its_targets_are_files(package):
    sdist, _ = package("sdist")
    with tarfile.open(sdist) as archive:
        names = [name for name in archive.getnames() if name.endswith("/PKG-INFO")]
        text = archive.extractfile(names[0]).read().decode()
    links = re.findall(r"\]\(([^)]*)\)", text)
    host = r"https://(?:github.com/hpccoll/hpccoll/blob|raw.githubusercontent.com/hpccoll/hpccoll)"
    root = Path(__file__).parents[2]
    for link in links:
        target = re.fullmatch(rf"{host}/v{re.escape(__version__)}/([^#]*)(#.*)?", link)
        assert target, link
        assert (root / target[1]).is_file(), link
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
    assert [link.partition("/hpccoll/")[0] for link in pictures] == [
        "https://raw.githubusercontent.com"
    ]
    assert len(links) > 15


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
