"""Files are read where they are files: regular, of a size that such a file can have, and text."""

import os
import socket

import pytest

from hpccoll.errors import UnusableError
from hpccoll.files import open_regular, parse_json, read_bytes, read_json, read_text


def refused(read, path, *words):
    with pytest.raises(UnusableError) as caught:
        read(path, "--table", 100)
    line = str(caught.value)
    assert line.startswith("--table: ")
    assert "\n" not in line
    assert not [word for word in words if word not in line], line


def test_a_regular_file_is_read_whole_also_one_whose_size_nobody_knows(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"x" * 100)
    assert read_bytes(file, "a", 100) == b"x" * 100
    assert "Name" in read_text(file.__class__("/proc/self/status"), "a", 1 << 16)
    with open_regular(file, "a") as opened:
        assert opened.read() == b"x" * 100


def test_what_is_larger_than_it_can_be_is_refused_with_the_size(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"x" * 101)
    refused(read_bytes, file, "larger", "100 B")


def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name, word in {"fifo": "a pipe", "zero": "a device", ".": "a directory", "socket": "regular"}.items():
            refused(read_bytes, tmp_path / name, word)


def test_what_cannot_be_opened_is_refused_with_the_reason(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for name, word in {"none": "No such file", "loop": "symbolic links", "x" * 5000: "name too long"}.items():
        refused(read_bytes, tmp_path / name, word)
    for name in ("a\0b", "\ud800"):
        refused(read_bytes, tmp_path / name, "not the name of a file")


def test_what_is_no_text_is_refused_unless_that_is_forgiven(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"ab\xff")
    refused(read_text, file, "byte 2")
    assert read_text(file, "a", 100, errors="replace") == "ab\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5000, "NaN", "[-Infinity]", "{", "{'a': 1}", ""])
def test_what_no_program_writes_as_json_is_refused(text, tmp_path):
    file = tmp_path / "a"
    file.write_text(text)
    with pytest.raises(UnusableError):
        read_json(file, "a", 1 << 20)
    with pytest.raises(ValueError):  # noqa: PT011  json's own words
        parse_json(text)
