"""Facts about the program that a process runs."""

import pytest

from hpccoll.host import program_facts
from hpccoll.host.program_facts import git_commit


@pytest.mark.parametrize("packed", [False, True])
def test_the_commit_is_read_from_the_checkout_without_git(tmp_path, monkeypatch, packed):
    git, commit = tmp_path / ".git", "0123456789abcdef0123456789abcdef01234567"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    if packed:
        (git / "packed-refs").write_text(
            f"# pack-refs with: peeled\nffff refs/heads/mainz\n{commit} refs/heads/main\n"
        )
    else:
        (git / "refs" / "heads" / "main").write_text(commit + "\n")
    monkeypatch.setattr(
        program_facts, "__file__", str(tmp_path / "hpccoll" / "host" / "environment.py")
    )
    assert git_commit() == commit
    (git / "HEAD").write_text(commit)
    assert git_commit() == commit
