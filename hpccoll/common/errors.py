"""Errors that end a command with one line: bad input (with key, value and valid choices), failed GPUs, stalls."""

import errno
import mmap
import os
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from reprlib import Repr
from threading import Event, Thread
from typing import Self

from hpccoll.common.terminal import OutputError, printable

PACKAGE = Path(__file__).parents[1]

MAX_VALUE_CHARACTERS, MAX_MESSAGE_CHARACTERS = 300, 5000
"""The maximum number of characters of a key or a value, and of a message."""
MAX_COMPARED_CHARACTERS = 100
"""Longer words are not compared with the choices, because the time grows with the square of the length."""


AS_NEAR = 0.05
"""The difference in similarity up to which two known words are equally near to an unknown one: from llama3-80b it is
0.95 to llama3-8b, which lacks a digit, and 0.90 to llama3-70b, which has another one."""


def did_you_mean(
    word: object, choices: Iterable[str], min_similarity: float = 0.7, prefix: str = ""
) -> str:
    """Return "did you mean X? " for the known word nearest to ``word``; empty if none is near.

    Case does not count. By default two letters of three are too few: gpu does not mean cpu.

    Args:
        word: the unknown word.
        choices: the known words.
        min_similarity: the least similarity of the two, 0 to 1.
        prefix: what stands before a known word in the answer, such as ``--``.
    """
    nearest = [f"{prefix}{choice}" for choice in _nearest_choices(word, choices, min_similarity)]
    if not nearest:
        return ""
    return f"did you mean {' or '.join(nearest)}? "


def _nearest_choices(word: object, choices: Iterable[str], min_similarity: float) -> list[str]:
    """Return the known word nearest to ``word``, and a second one that is about as near."""
    from difflib import SequenceMatcher, get_close_matches  # only for messages

    if not isinstance(word, str) or len(word) > MAX_COMPARED_CHARACTERS:
        return []
    by_lower_case = {choice.lower(): choice for choice in choices}
    unknown = word.lower()
    near = get_close_matches(unknown, by_lower_case, n=2, cutoff=min_similarity)
    similarities = [SequenceMatcher(None, name, unknown).ratio() for name in near]
    nearest = []
    for name, similarity in zip(near, similarities, strict=True):
        if similarity >= similarities[0] - AS_NEAR:
            nearest.append(by_lower_case[name])
    return nearest


def format_choices(word: object, valid: Iterable[object], hint: str = "") -> str:
    """Return the valid choices, the one nearest to ``word`` first; a ``hint`` says what else accepts ``word``."""
    names = [str(name) for name in valid]
    choices = f"choose from {', '.join(names)}{hint}"
    if hint:
        return choices
    return f"{did_you_mean(word, names)}{choices}"


class GpuFailedError(RuntimeError):
    """A CUDA error after which a process cannot use its GPU; the message names the GPU, its host and the error."""


class StalledError(RuntimeError):
    """Queued work does not complete; the message has the time, or the library's error."""


class ExcludedError(RuntimeError):
    """The other ranks have gone on without this rank."""


class BadInputError(ValueError):
    """Input that cannot be used; the command line prints one line and exits with ``exit_code``.

    Args:
        key: the user's name of the setting (``algorithm``, ``--bytes``, ``sweep.yaml: ranks``).
        value: the value of the setting; None if it is missing, which the message then says.
        expected: the valid choices, or a phrase for what is valid.
    """

    exit_code = 2

    def __init__(self, key: str, value: object, expected: str | Iterable[object]) -> None:
        if not isinstance(expected, str):
            expected = format_choices(value, expected)
        super().__init__(key, value, expected)  # unpickled on other ranks: only rank 0 reads files
        self.key = key
        self.value = value
        self.expected = expected
        self.others: tuple[BadInputError, ...] = ()
        """Further errors of the same file; each is printed on its own line."""

    def __str__(self) -> str:
        key = abbreviate(self.key)
        if self.value is None:
            problem = f"{key} is missing"
        else:
            problem = f"{key}: {format_value(self.value)} is not valid"
        return to_one_line(f"{problem}: {self.expected}")

    def with_key(self, key: str) -> Self:
        """Return the same error, with its ``others``, under a key that names its place more precisely."""
        renamed = type(self)(key, *self.args[1:])
        renamed.others = self.others
        return renamed


def fault_with_line(error: Exception, file: str = "") -> str:
    """Return an exception of a user's code as text, with the file and the line that raised it.

    If a page of ``hpccoll/algorithms`` or the user's ``file`` called what raised it, the line is
    that of the page or the file; if the file called nothing, it is named without a line.
    """
    if isinstance(error, BadInputError):
        return str(error)
    fault = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # it names its line itself
        return fault
    from traceback import extract_tb  # only for messages

    frames = extract_tb(error.__traceback__)
    page_frames = []
    for frame in frames:
        if frame.filename == file or Path(frame.filename).parent == PACKAGE / "algorithms":
            page_frames.append(frame)
    if file and not page_frames:
        return f"{fault} ({Path(file).name})"
    line = (page_frames or frames)[-1]
    return f"{fault} ({Path(line.filename).name}, line {line.lineno})"


class UnusableError(BadInputError):
    """Input, a file or a request, that cannot be used although no single value is wrong; the line says why."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(key, None, why)
        self.args = (key, why)

    def __str__(self) -> str:
        return to_one_line(f"{abbreviate(self.key)}: {self.expected}")


class ResourceError(UnusableError):
    """The system refuses what is valid: a disk is full, or a limit of this process is reached."""

    exit_code = 1


PATH_ERRNOS = (
    errno.ENOENT,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENXIO,
    errno.EINVAL,
)
"""Errors of a name or of permissions, which the user who gave the name can correct."""

_LIMITS = {
    errno.ENOMEM: ("-v", resource.RLIMIT_AS, 1024), errno.EMFILE: ("-n", resource.RLIMIT_NOFILE, 1),
    errno.EAGAIN: ("-u", resource.RLIMIT_NPROC, 1), errno.EFBIG: ("-f", resource.RLIMIT_FSIZE, 1024),
}  # fmt: skip
"""The limit of a process behind an error: its option of ulimit, its number, and the bytes in a unit of ulimit."""


_SYSTEM_ERRNOS = (
    *_LIMITS,
    *PATH_ERRNOS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.ENFILE,
    errno.ESTALE,
)
"""Errors for which the system or the user is at fault; any other error of a call is a fault of the program."""


def describe_errno(number: int) -> str:
    """Return the text of an ``errno``, with the limit of this process that it may stem from."""
    option, limit, unit = _LIMITS.get(number, ("", None, 1))
    text = os.strerror(number)
    if limit is None:
        return text
    allowed, _ = resource.getrlimit(limit)
    if allowed == resource.RLIM_INFINITY:
        return text
    return f"{text} (ulimit {option} is {allowed // unit})"


LEAST_BYTES = 256 << 20
"""The address space that NumPy, HDF5 and MPI reserve when they start."""


def check_resources(
    key: str, nbytes: int = LEAST_BYTES, *, files: int = 0, threads: int = 0, file_bytes: int = 0
) -> None:
    """Check that this process can reserve address space, open files, start threads and make a file so large.

    A library in C that cannot get them ends the process by a signal.

    Raises:
        ResourceError: if it cannot; the line names the limit.
    """
    descriptors = list[int]()
    started = list[Thread]()
    done = Event()
    try:
        # takes no memory
        mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
        _check_file_size(file_bytes)
        descriptors.extend(os.dup(0) for _ in range(files))
        for _ in range(threads):
            thread = Thread(target=done.wait)
            thread.start()
            started.append(thread)
    except (OSError, RuntimeError) as error:
        needed = {
            "KiB of address space": nbytes >> 10,
            "more open files": files,
            "more threads": threads,
            "KiB in a file": file_bytes >> 10,
        }
        words = ", ".join(f"{count} {noun}" for noun, count in needed.items() if count)
        raise ResourceError(
            key, f"{describe_errno(_errno_of(error) or errno.ENOMEM)}; needed: {words}"
        ) from None
    finally:
        done.set()
        for thread in started:
            thread.join()
        for descriptor in descriptors:
            os.close(descriptor)


def _check_file_size(nbytes: int) -> None:
    if 0 <= resource.getrlimit(resource.RLIMIT_FSIZE)[0] < nbytes:  # RLIM_INFINITY is -1
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def file_error(key: str, path: object, error: OSError, action: str = "read") -> UnusableError:
    """Return the error of a file or directory that cannot be read, or on which another ``action`` failed."""
    kind = UnusableError if error.errno in PATH_ERRNOS else ResourceError
    number = error.errno
    why: object = error.strerror or error
    if number and os.strerror(number) == error.strerror:
        why = describe_errno(number)
    return kind(key, f"{format_value(str(path))} cannot be {action}: {why}")


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Report an OSError while the output of a command is written as one of the option ``--out``.

    Raises:
        UnusableError: if ``out`` cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise file_error("--out", out, error, "written") from None


def refusal_of(error: BaseException) -> BadInputError | None:
    """Return the error that one line reports if the input or the system is at fault; None for a fault of the program.

    The system is at fault if it refuses a file, a process, memory or an output stream; libraries
    report the lack of memory, open files or processes in the text of exceptions of their own.
    """
    match error:
        case BadInputError():
            return error
        case OutputError():
            return ResourceError("stdout", f"cannot be written: {describe_errno(error.number)}")
        case OSError(filename=str() | bytes() | os.PathLike()):
            # else the installation is broken
            if not Path(path := os.fsdecode(error.filename)).is_relative_to(PACKAGE):
                return file_error("path", path, error, "used")
        # of pathlib before Python 3.13
        case RuntimeError() if str(error).startswith("Symlink loop"):
            return UnusableError("path", str(error))
        case FileNotFoundError():  # of getcwd
            return UnusableError(
                "working directory", "it no longer exists; do: change to one that exists"
            )
    number = _errno_of(error)
    return ResourceError("system", describe_errno(number)) if number else None


_TEXTS = {"failed to map segment": errno.ENOMEM, "start new thread": errno.EAGAIN}
"""Texts of the dynamic linker and of Python that stand for an ``errno``."""


def _errno_of(error: BaseException) -> int | None:
    """Return the ``errno`` of an exception, by its type or its text; None if it stems from another cause."""
    if isinstance(error, OSError) and error.errno:
        return error.errno if error.errno in _SYSTEM_ERRNOS else None
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if not isinstance(error, OSError | RuntimeError | ImportError):
        return None
    texts = {os.strerror(number): number for number in _LIMITS} | _TEXTS
    return next((number for text, number in texts.items() if text in str(error)), None)


def check_arguments(arguments: Iterable[str]) -> None:
    """Check that the arguments of a command line are UTF-8 text, which result files can store.

    Raises:
        BadInputError: if an argument is not UTF-8.
    """
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise BadInputError("argument", word, "text in UTF-8") from None


class _ValueRepr(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = MAX_VALUE_CHARACTERS
        self.maxother = MAX_VALUE_CHARACTERS
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = 50

    def repr_int(self, number: int, _level: int) -> str:
        digits = int(number.bit_length() * 0.30103)
        if digits < MAX_VALUE_CHARACTERS:
            return repr(number)
        return f"a number of {digits} digits"  # Python refuses to print all of them


_value_repr = _ValueRepr()


def format_value(value: object) -> str:
    """Return the Python representation of a value for a message; a long one is abbreviated."""
    return abbreviate(_value_repr.repr(value))


def abbreviate(text: str, max_characters: int = MAX_VALUE_CHARACTERS) -> str:
    """Return a text; a long one without its middle."""
    if len(text) <= max_characters:
        return text
    return f"{text[: max_characters // 2]}... ({len(text)} characters) ...{text[-max_characters // 4 :]}"


def to_one_line(text: str) -> str:
    """Return a text of a file or a library as one printable line; blanks replace line breaks."""
    return printable(abbreviate(" ".join(text.split()), MAX_MESSAGE_CHARACTERS))


def combine_errors(first: BadInputError, *further: BadInputError) -> BadInputError:
    """Return ``first`` with the other errors of the same file in its ``others``."""
    first.others = further
    return first
