"""Durable files: atomic replacement, and refusal of links, pipes and devices."""

import os
import stat
from contextlib import suppress

import pytest

from hpccoll.store.durable_files import append_bytes, remove_unfinished, replacing_file, write_new


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()])
def test_a_file_is_replaced_atomically_if_the_block_succeeds(tmp_path, error):
    path = tmp_path / "F"
    path.write_text("old")
    with suppress(KeyboardInterrupt), replacing_file(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
        assert unfinished.parent == tmp_path
        if error:
            raise error
    assert path.read_text() == ("old" if error else "new")
    assert [*tmp_path.iterdir()] == [path]


def test_a_new_file_has_default_permissions(tmp_path):
    with replacing_file(tmp_path / "F") as unfinished:
        unfinished.touch()
    (tmp_path / "other").touch()
    assert (tmp_path / "F").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_device_or_a_pipe_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "directory"):
        with (
            pytest.raises(FileExistsError, match="not a regular file"),
            replacing_file(tmp_path / name),
        ):
            pytest.fail("it is replaced")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert len([*tmp_path.iterdir()]) == 2


def test_only_unfinished_files_of_the_same_name_are_removed(tmp_path):
    others = [tmp_path / f".{name}.{'a' * 16}" for name in ("G[1].h5.journal", "H.h5")]
    for path in (*others, tmp_path / f".G[1].h5.{'0' * 16}"):
        path.touch()
    remove_unfinished(tmp_path / "G[1].h5")
    assert sorted(tmp_path.iterdir()) == sorted(others)


@pytest.mark.parametrize("write", [append_bytes, write_new])
def test_a_symbolic_link_is_not_written_through(tmp_path, write):
    target, link = tmp_path / "target", tmp_path / "F"
    target.write_text("mine")
    link.symlink_to(target)
    with suppress(OSError):
        write(link, b"yours")
    assert target.read_text() == "mine"
    assert link.is_symlink() or link.read_bytes() == b"yours"
