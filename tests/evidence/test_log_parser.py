"""Messages of log lines: with cut and anonymous headers, all levels, and in exports."""

from pathlib import Path

from golden_page import assert_golden

from hpccoll.evidence.log_message import split_messages
from hpccoll.evidence.log_set import read_log_files, read_logs

HERE = Path(__file__).parent


def test_the_messages_of_lines():
    """Cut and anonymous headers, all levels and times, places in the source, exports with columns, and sentences."""
    page = []
    for line in (HERE / "lines.txt").read_text().splitlines():
        messages = [
            (one.process, one.host, one.placed_text) for one in split_messages([line]) if one.origin
        ]
        page += [line, *(f"  {process} of {host}: {text}" for process, host, text in messages)]
        page.append(f"  network: {read_logs({'a': line}).network}")
    assert_golden("lines", page, HERE / "golden")


def test_an_overwritten_header_makes_no_launch_of_its_own(tmp_path):
    init = "n1:{0}:{0} [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 commId 0x{0} - Init START"
    (tmp_path / "a.log").write_text(
        "\n".join([init.format(1), "20 [0] NCCL INFO Using network IB", init.format(2)])
    )
    assert len(read_log_files([tmp_path]).launches) == 2


def test_json_that_is_no_export_of_a_log_is_ignored():
    for text in ("{", "{}", '{"log": 1}', '{"log": "x"}', "[" * 100000, '{"a":' * 100000):
        assert read_logs({"a": text}).library is None
