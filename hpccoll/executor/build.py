"""Builds the C libraries: hatchling's build hook, and ``python -m hpccoll.executor.build``.

One is the compiled executor. The other one counts the collectives of a program into which
LD_PRELOAD brings it; its sources are in ``counting``.

hatchling loads this file by its path, before hpccoll is installed. It therefore imports the
standard library alone, and hatchling within the hook.
"""

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "libhpccoll.so"
COUNTING_FOLDER = FOLDER / "counting"
COUNTING_LIBRARY = FOLDER / "libhpccollcount.so"
LIBRARIES = (LIBRARY, COUNTING_LIBRARY)
FLAGS = (
    "-std=c11",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fwrapv",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",
)
SANITIZER_FLAGS = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-O1", "-g")
UNSUITABLE_FLAGS = ("-Ofast", "-ffast-math", "-funsafe-math", "-ffinite-math", "-march", "-mcpu")
"""Prefixes of flags of the environment that are left out: with them results would differ from
NumPy's, or the library would not run on nodes with an older processor than that of the node that
builds it."""

SYSTEM_LIBRARIES = {FOLDER: ("-lm",), COUNTING_FOLDER: ("-ldl", "-lpthread", "-Wl,-z,lazy")}
"""What libraries are linked with, by the folders of their sources.

A newer glibc has all in one library. Lazy, because LD_PRELOAD brings the counting library into
processes that lack what it never calls there.
"""

REBUILD = "python -m hpccoll.executor.build"
"""The command that builds the library in place."""


class BuildError(Exception):
    """The library cannot be built: there is no C compiler, or it fails."""


def library_sources(library: str) -> Path:
    """Return the folder of the C sources of a library, by the name of its file."""
    return COUNTING_FOLDER if library == COUNTING_LIBRARY.name else FOLDER


def source_hash(folder: Path = FOLDER) -> str:
    """Return the hash of the C sources and the compiler flags; a library built from them exports the same hash.

    The flags of the sanitizers and of the environment are not part of it: they do not change what
    the library does.
    """
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted([*folder.glob("*.c"), *folder.glob("*.h")]):
        content = path.read_bytes()
        digest.update(f"\n{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def compiler() -> list[str]:
    """Return the command of the C compiler: ``$CC``, or else cc or gcc.

    Raises:
        BuildError: if the program is not on PATH.
    """
    import shlex
    import shutil

    candidates = [["cc"], ["gcc"]]
    if os.environ.get("CC", "").strip():
        candidates = [shlex.split(os.environ["CC"])]
    for command in candidates:
        if shutil.which(command[0]):
            return command
    names = " or ".join(command[0] for command in candidates)
    raise BuildError(
        f"no C compiler: {names} is not on PATH; do: install gcc and libc6-dev, or set CC"
    )


def build(output: Path, *, sanitize: bool = False) -> None:
    """Compile a library and move it to ``output`` in one step: processes that have mapped the old file keep it.

    The name of the file says which library it is. The environment's CFLAGS and LDFLAGS come after
    hpccoll's own flags, without UNSUITABLE_FLAGS.

    Raises:
        BuildError: if there is no compiler, it fails, or the file cannot be written; an older file
            then stays.
    """
    import shlex
    import subprocess
    import tempfile

    def from_environment(name: str) -> list[str]:
        flags = shlex.split(os.environ.get(name, ""))
        return [flag for flag in flags if not flag.startswith(UNSUITABLE_FLAGS)]

    sanitizer_flags = SANITIZER_FLAGS if sanitize else ()
    folder = library_sources(output.name)
    flags = [*FLAGS, *sanitizer_flags, f'-DHPCCOLL_SOURCE_HASH="{source_hash(folder)}"']
    cflags = from_environment("CFLAGS")
    ldflags = from_environment("LDFLAGS")
    command = [*compiler(), *flags, *cflags, *map(str, sorted(folder.glob("*.c")))]
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as directory:
            built = Path(directory, output.name)
            linked = [*command, "-o", str(built), *ldflags, *SYSTEM_LIBRARIES[folder]]
            compiled = subprocess.run(
                linked, stderr=subprocess.PIPE, text=True, errors="replace", check=False
            )
            if compiled.returncode:
                raise BuildError(f"{shlex.join(linked)} failed:\n{compiled.stderr.rstrip()}")
            sys.stderr.write(compiled.stderr)  # warnings
            built.replace(output)
    except OSError as error:
        raise BuildError(f"{output} cannot be built: {error}") from error


LIBRARIES_OF_GLIBC = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0"}
"""The libraries of glibc that the C libraries may need and still run on every distribution."""

OLDEST_GLIBC = (2, 17)
"""The oldest glibc that a tag names: the wheels of NumPy 2 need it or a newer one."""


def names_in(library: bytes, pattern: str) -> set[str]:
    """Return the whole strings of a library, as its tables of symbols and sections have them, that match."""
    import re

    strings = re.findall(rb"(?<=[\0@])" + pattern.encode() + rb"(?=\0)", library)
    return {string.decode() for string in strings}


def glibc_version(library: bytes) -> tuple[int, int] | None:
    """Return the glibc that has all symbols that a library needs; None if it needs more than symbols.

    Such a need is named by a word, as GLIBC_ABI_DT_RELR (packed relocations) and GLIBC_PRIVATE.
    """
    versions = [OLDEST_GLIBC]
    for name in names_in(library, r"GLIBC_[\w.]+"):
        numbers = name.removeprefix("GLIBC_").split(".")
        if not numbers[0].isdigit():
            return None
        versions.append((int(numbers[0]), int(numbers[1])))
    return max(versions)


def wheel_platform(library: bytes, platform: str) -> str:
    """Return the platform tag of a wheel with this library, compiled for a platform as sysconfig names it.

    A library that needs the C library alone runs on every distribution with the same or a newer
    one: its tag is manylinux (PEP 600) or musllinux (PEP 656). Any other library is tied to the
    machine by the tag linux. The strings of the file tell: one that only looks like the name of a
    library or version makes the tag narrower, never wider.
    """
    plain = platform.replace("-", "_").replace(".", "_")
    system, _, architecture = plain.partition("_")
    if system != "linux":
        return plain
    needed = names_in(library, r"[\w.+-]+\.so[\w.-]*")
    if needed in ({"libc.so"}, {f"libc.musl-{architecture}.so.1"}):
        return f"musllinux_1_2_{architecture}"
    version = glibc_version(library)
    if "libc.so.6" not in needed or not needed <= LIBRARIES_OF_GLIBC or version is None:
        return plain
    return f"manylinux_{version[0]}_{version[1]}_{architecture}"


def get_build_hook() -> "type[BuildHookInterface[Any]]":
    """Return the build hook; hatchling calls this function."""
    import sysconfig
    import tempfile

    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class ExecutorBuildHook(BuildHookInterface[Any]):
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Build the libraries: in place for an editable install, else for a wheel, which they tie to a platform."""
            try:
                if version == "editable":
                    for library in LIBRARIES:
                        build(library)
                    return
                self._directory = tempfile.TemporaryDirectory()
                built = [Path(self._directory.name, library.name) for library in LIBRARIES]
                for library in built:
                    build(library)
            except BuildError as error:
                self.app.display_warning(
                    f"{error}\nhpccoll is installed without its compiled executor: the Python executor is used, and "
                    f"small messages take microseconds longer; 'hpccoll count' is missing. "
                    f"To add them later, with a C compiler: {REBUILD}"
                )
                return
            for library in built:
                build_data["force_include"][str(library)] = f"hpccoll/executor/{library.name}"
            build_data["pure_python"] = False
            needs = b"".join(library.read_bytes() for library in built)
            platform = wheel_platform(needs, sysconfig.get_platform())
            build_data["tag"] = f"py3-none-{platform}"

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
            """Remove the libraries that the wheel now contains."""
            if version != "editable":
                self._directory.cleanup()

    return ExecutorBuildHook


def main() -> int:
    """Build the libraries in place and return the exit code."""
    import argparse

    parser = argparse.ArgumentParser(
        prog=REBUILD, description=f"Build the C libraries in {FOLDER}."
    )
    parser.add_argument(
        "--sanitize", action="store_true", help="build with AddressSanitizer and UBSan"
    )
    sanitize = parser.parse_args().sanitize
    for library in LIBRARIES:
        try:
            # A program that is counted has no sanitizer of ours in it.
            build(library, sanitize=sanitize and library == LIBRARY)
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        print(library)
    return 0


if __name__ == "__main__":
    sys.exit(main())
