"""Readers of files: only regular files of bounded size, text and JSON are accepted."""

import gzip
import os
import socket
from pathlib import Path

import pytest
from cli_runner import invoke

from hpccoll.common.errors import UnusableError
from hpccoll.common.files import (
    MAX_LINE_LENGTH,
    parse_json,
    read_bytes,
    read_json,
    read_lines,
    read_text,
)

INPUTS = Path(__file__).parents[1] / "inputs"
MARKED = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff", "utf-8": b"\xef\xbb\xbf"}
"""The encodings with a byte order mark, and the mark."""


def refused(read, path, *words):
    with pytest.raises(UnusableError) as caught:
        read(path, "--table", 100)
    line = str(caught.value)
    assert line.startswith("--table: ")
    assert "\n" not in line
    assert not [word for word in words if word not in line], line


def test_a_file_is_read_whole_even_if_its_size_is_unknown_and_refused_above_the_maximum(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"x" * 100)
    assert read_bytes(file, "a", 100) == b"x" * 100
    assert "Name" in read_text(Path("/proc/self/status"), "a", 1 << 16)
    file.write_bytes(b"x" * 101)
    refused(read_bytes, file, "larger", "100 B")


def test_what_is_no_regular_file_is_refused_with_the_reason_without_blocking(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    words = {
        "fifo": "a pipe",
        "zero": "a device",
        ".": "a directory",
        "socket": "regular",
        "none": "No such file",
        "loop": "symbolic links",
        "x" * 5000: "name too long",
        "a\0b": "not the name of",
        "\ud800": "not the name of a file",
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, word in words.items():
            refused(read_bytes, tmp_path / name, word)


def test_bytes_that_are_not_utf8_are_refused_or_replaced(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"ab\xff")
    refused(read_text, file, "byte 2")
    assert read_text(file, "a", 100, errors="replace") == "ab\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("encoding", MARKED)
def test_text_is_read_by_its_byte_order_mark_whole_or_by_lines(encoding, tmp_path):
    file = tmp_path / "a"
    text = "ein Grü\N{SNOWMAN}\r\n\nend"
    content = MARKED[encoding] + text.encode(encoding)
    file.write_bytes(content)
    assert read_text(file, "a", 100) == text
    assert [*read_lines(file, "a", 100)] == text.splitlines(keepends=True)
    refused(lambda *known: [*read_lines(*known[:2], len(content) - 1)], file, "larger")
    file.write_bytes(content[:-1] if encoding != "utf-8" else content + b"\xe2")
    refused(read_text, file, "is not text in UTF-")
    assert [*read_lines(file, "a", 100)][-1].endswith("\N{REPLACEMENT CHARACTER}")
    file.write_bytes(MARKED[encoding] + ("x" * (MAX_LINE_LENGTH + 1) + "\ny").encode(encoding))
    assert [len(line) for line in read_lines(file, "a", 1 << 20)] == [MAX_LINE_LENGTH, 2, 1]


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "[-Infinity]", "{'a': 1}", ""])
def test_invalid_or_extreme_json_is_refused(text, tmp_path):
    file = tmp_path / "a"
    file.write_text(text)
    with pytest.raises(UnusableError):
        read_json(file, "a", 1 << 20)
    with pytest.raises(ValueError):  # noqa: PT011  json's own words
        parse_json(text)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(b"# OSU MPI", mtime=0), ["it is compressed; do: decompress it"]),
        (b"\x1f", []),
    ],
)
def test_text_in_another_form_is_refused_with_what_to_do(content, words, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for command, key in (("evidence", "log"), ("import", "FILE")):
        ran = invoke(command, path, *(["--out", tmp_path / "a.h5"] if command == "import" else []))
        assert ran.is_bad_input(key, *words)
        assert ("; do: " in ran.err) == bool(words)


@pytest.mark.parametrize("encoding", MARKED)
@pytest.mark.parametrize("command", ["evidence", "trace", "import"])
def test_logs_and_tables_of_windows_are_read_as_plain_ones(command, encoding, tmp_path):
    """Windows PowerShell writes UTF-16 with CRLF; programs that take its pipe for a terminal add colours."""
    plain = INPUTS / f"nccl-plain-for-comparison.{'txt' if command == 'import' else 'log'}"
    coloured = "".join(f"\x1b[32m{line}\x1b[0m\r\n" for line in plain.read_text().splitlines())
    windows = tmp_path / plain.name
    windows.write_bytes(MARKED[encoding] + coloured.encode(encoding))
    options = ["--out", tmp_path / "a.h5"] if command == "import" else ["--json"]
    expected, ran = (invoke(command, path, *options) for path in (plain, windows))
    assert ran.out.replace(str(tmp_path), "") == expected.out.replace(str(INPUTS), "").replace(
        str(tmp_path), ""
    )
    assert (ran.code, ran.err) == (expected.code, "")
