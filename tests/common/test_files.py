"""Readers of files: only regular files of bounded size, text and JSON are accepted."""

import gzip
import os
import socket
from pathlib import Path

import pytest
from cli_runner import invoke

from hpccoll.common.errors import UnusableError
from hpccoll.common.files import parse_json, read_bytes, read_json, read_text


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
        "fifo": "a pipe", "zero": "a device", ".": "a directory", "socket": "regular", "none": "No such file",
        "loop": "symbolic links", "x" * 5000: "name too long", "a\0b": "not the name of",
        "\ud800": "not the name of a file",
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, word in words.items():
            refused(read_bytes, tmp_path / name, word)


def test_bytes_that_are_not_utf8_are_refused_or_replaced(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"ab\xff")
    refused(read_text, file, "byte 2")
    assert read_text(file, "a", 100, errors="replace") == "ab\N{REPLACEMENT CHARACTER}"


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
        ("# OSU MPI".encode("utf-16"), ["it is text in UTF-16", "iconv"]),
        (b"\x1f", []),
    ],
)  # fmt: skip
def test_text_in_another_form_is_refused_with_what_to_do(content, words, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for command, key in (("evidence", "log"), ("import", "FILE")):
        ran = invoke(command, path, *(["--out", tmp_path / "a.h5"] if command == "import" else []))
        assert ran.is_bad_input(key, *words)
        assert ("; do: " in ran.err) == bool(words)
