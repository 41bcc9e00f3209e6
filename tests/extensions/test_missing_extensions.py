"""Without the directory of an extension, what it brings is refused in one line, and the rest works."""

import pytest
from cli_runner import invoke

from hpccoll.common import extensions


@pytest.fixture(autouse=True)
def _no_extensions(monkeypatch):
    monkeypatch.setattr(extensions, "bundled_extensions", dict)
    monkeypatch.setattr(extensions, "other_extensions", dict)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("show ring -p 4 -b 1K --format goal", ("--format", "no extension")),
        ("show ring.json", ("FILE", "ring.json", "no extension")),
        (
            "predict -a file:ring.json --cluster 1x25g-tcp --nodes 2 -b 1K -e 1K",
            ("algorithm", "no extension"),
        ),
        ("tune --lint ring.json", ("hpccoll: tune: ", "no extension")),
        ("tune --lint ring.json --format openmpi", ("hpccoll: tune: ", "no extension")),
    ],
)
def test_what_needs_an_extension_that_is_missing_says_so_in_one_line(
    command, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.json").write_text("{}")
    assert invoke(*command.split()).is_bad_input(*words)


@pytest.mark.parametrize("command", ["show ring -p 4", "show --help", "tune --help"])
def test_the_rest_of_a_command_works_without_extensions(command):
    result = invoke(*command.split())
    assert (result.code, result.err) == (0, "")
    assert "{" not in result.out
