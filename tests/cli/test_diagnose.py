"""``hpccoll diagnose``: what it reads and refuses, what it prints of recorded diagnoses, and how it ends."""

import itertools
import json
import re
import signal
import sys
from pathlib import Path

import pytest
from cli_runner import ENVIRONMENT, invoke
from launched_programs import launched
from nccl_tests_stand_in import installed
from patience import LONG_S, wait
from recorded_diagnoses import interrupted, recorded
from simulated_machine import Environment

from hpccoll.cli.diagnose import check_new
from hpccoll.common.errors import BadInputError
from hpccoll.diagnosis.diagnosis_file import read_diagnosis, write_diagnosis
from hpccoll.diagnosis.slot_records import Component

NODE = Component("node", (2,)), 25
RANKS = Path(__file__).with_name("diagnosing_ranks.py")
QUICK = "--seconds", "0.02"


@pytest.fixture
def days(tmp_path):
    for day in (1, 2, 3):
        diagnosis = recorded(8, NODE, begun=f"2026-11-{day:02}T08:00:00+00:00", seed=day)
        write_diagnosis(diagnosis, tmp_path / f"{day}.h5")
    return tmp_path


def test_the_verdict_of_a_file_is_printed_again_and_the_exit_code_says_that_something_is_slow(days):
    result = invoke("diagnose", "--report", days / "1.h5")
    assert (result.code, result.err) == (3, "")
    first, *others = result.out.splitlines()
    assert first.startswith("n2 is slow")
    assert "--exclude=n2" in others
    as_json = invoke("diagnose", "--report", days / "1.h5", "--json")
    assert (as_json.code, json.loads(as_json.out)["exclude"]) == (3, ["n2"])


def test_several_files_or_a_directory_are_the_nodes_over_time(days):
    for paths in ([days], [days / "3.h5", days / "1.h5", days / "2.h5"]):
        result = invoke("diagnose", "--report", *paths)
        assert (result.code, result.out.splitlines()[0]) == (3, "n2 was slow on 3 days")
    history = json.loads(invoke("diagnose", "--report", days, "--json").out)
    assert [(place["where"], place["days"], place["lasting"]) for place in history["places"]] == [
        (["n2"], 3, True)
    ]


def test_a_damaged_file_of_a_directory_is_named_and_the_others_are_read(days):
    content = (days / "2.h5").read_bytes()
    (days / "2.h5").write_bytes(content[:5000])
    result = invoke("diagnose", "--report", days)
    assert (result.code, len(result.err.splitlines())) == (3, 1)
    assert "2.h5" in result.err
    assert "11-01  11-03" in result.out
    assert invoke("diagnose", "--report", days / "2.h5").is_bad_input("2.h5")


def test_a_healthy_machine_ends_with_0_and_an_interrupted_diagnosis_with_3(tmp_path):
    write_diagnosis(recorded(8), tmp_path / "F.h5")
    assert invoke("diagnose", "--report", tmp_path / "F.h5").code == 0
    write_diagnosis(interrupted(recorded(8)), tmp_path / "G.h5")
    ended = invoke("diagnose", "--report", tmp_path / "G.h5")
    assert (
        ended.code,
        ended.out.startswith("the diagnosis was interrupted"),
        PEACE in ended.out,
    ) == (3, True, False)


@pytest.fixture
def reported(tmp_path):
    """Return a function that records a diagnosis of a simulated machine, and reports it."""

    def reported(nodes=8, *faults, **about):
        path = write_diagnosis(recorded(nodes, *faults, **about), tmp_path / f"{next(numbers)}.h5")
        return invoke("diagnose", "--report", path)

    numbers = itertools.count()
    return reported


PEACE = "no node or link is slow\n"


def test_a_node_that_does_not_answer_is_named_and_ends_with_3(reported):
    ended = reported(hung=[3])
    assert (ended.code, ended.out.splitlines()[0], PEACE in ended.out) == (
        3,
        "n3 does not answer",
        False,
    )


@pytest.mark.parametrize(
    ("failing", "named"), [([3], "n3 was not judged"), (range(8), "n[0-7] were not judged")]
)
def test_nodes_without_times_were_not_judged_which_ends_with_3(reported, failing, named):
    ended = reported(failing=failing)
    assert (ended.code, ended.out.startswith(named), PEACE in ended.out) == (3, True, False)


def test_of_two_nodes_it_is_unknown_whether_both_directions_are_slow_which_ends_with_0(reported):
    ended = reported(2)
    assert (
        ended.code,
        "whether both directions are slow is unknown" in ended.out,
        PEACE in ended.out,
    ) == (
        0,
        True,
        False,
    )


ALIKE = "whether all nodes are slow alike is unknown"


def test_that_all_nodes_are_slow_alike_takes_a_rate_which_a_diagnosis_without_one_says(reported):
    """Transfers take 0.02 s; a fault that all nodes share changes no ratio between them."""
    without, with_rate, slow = reported(), reported(expected_s=0.02), reported(expected_s=0.01)
    assert [each.code for each in (without, with_rate, slow)] == [0, 0, 3]
    assert [ALIKE in each.out for each in (without, with_rate, slow)] == [True, False, False]
    assert [PEACE in each.out for each in (without, with_rate, slow)] == [True, True, False]
    assert "all nodes are slow alike" in slow.out


@pytest.mark.parametrize(("nodes", "is_named"), [(16, True), (32, False)])
def test_racks_that_are_too_few_to_judge_are_named(reported, nodes, is_named):
    ended = reported(nodes)
    assert (ended.code, "rack0 and rack1 were not judged" in ended.out) == (0, is_named)
    assert ("node, link or rack is slow" in ended.out) != is_named


def test_without_slots_for_links_none_is_called_fine(reported):
    ended = reported(links=False)
    assert (ended.code, "single links were not judged" in ended.out, PEACE in ended.out) == (
        0,
        True,
        False,
    )


def test_noise_raises_the_smallest_effect_that_a_healthy_machine_names(reported):
    def smallest(noise):
        ended = reported(environment=Environment(noise=noise))
        assert (ended.code, PEACE in ended.out) == (0, True)
        return float(
            re.search(
                r"a node whose transfers take (\S+)x as long would have been found", ended.out
            )[1]
        )

    assert 1 < smallest(0.03) < 1.1
    assert smallest(0.3) > 1.3


def test_in_a_history_the_nodes_that_the_newest_diagnosis_did_not_judge_are_named_and_end_with_3(
    tmp_path,
):
    begun = "2026-11-27T08:00:00+00:00"
    newest = {
        "the newest diagnosis did not judge n3": recorded(8, failing=[3], begun=begun),
        "the newest diagnosis was interrupted": interrupted(recorded(8, begun=begun)),
        "newest diagnosis: Even fast transfers take": recorded(8, expected_s=0.01, begun=begun),
    }
    write_diagnosis(recorded(8), tmp_path / "first.h5")
    for said, diagnosis in newest.items():
        write_diagnosis(diagnosis, tmp_path / "newest.h5")
        ended = invoke("diagnose", "--report", tmp_path)
        assert (ended.code, said in ended.out) == (3, True)
        (tmp_path / "newest.h5").unlink()


def test_only_an_interrupted_diagnosis_is_replaced(tmp_path):
    out = tmp_path / "F.h5"
    check_new(out)
    write_diagnosis(interrupted(recorded(8)), out)
    check_new(out)
    write_diagnosis(recorded(8), out)
    with pytest.raises(BadInputError, match="a new file: it exists"):
        check_new(out)
    out.write_text("my notes")
    with pytest.raises(BadInputError, match="a new file: it exists"):
        check_new(out)


def test_a_page_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "report.html").write_text("a report")
    with pytest.raises(BadInputError, match=r"report.html exists, and would be replaced"):
        check_new(tmp_path / "report.h5")


@pytest.mark.mpi
def test_a_rank_imports_nothing_that_draws(mpiexec, tmp_path):
    words = ["x", *QUICK, "--out", str(tmp_path / "F.h5")]
    program = f"""
import atexit, sys
atexit.register(lambda: print("drawing:", {{"altair", "jinja2", "scipy", "pandas"}} & sys.modules.keys()))
sys.argv = {words}
exec(open({str(RANKS)!r}).read())
"""
    result = mpiexec(2, "-c", program)
    assert result.stdout.count("drawing: set()") == 2
    assert (tmp_path / "F.html").exists()


@pytest.mark.mpi
def test_rank_0_prints_what_is_in_the_file_that_it_writes_with_its_page(mpiexec, tmp_path):
    out = tmp_path / "new" / "F.h5"
    result = mpiexec(2, RANKS, *QUICK, "--rate", "100gbit", "--json", "--out", out)
    printed = json.loads(result.stdout)
    # memory is slower than 100 Gbit/s, or not
    assert result.returncode == (3 if printed["verdicts"] else 0)
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()][-2:] == [
        "measurements",
        "page",
    ]
    assert json.loads(invoke("diagnose", "--report", out, "--json").out) == printed
    diagnosis = read_diagnosis(out)
    assert (diagnosis.question.hosts, diagnosis.question.expected_s is None) == (
        ("n0", "n1"),
        False,
    )
    assert sum(len(each.seconds) for each in diagnosis.measured) == printed["slots"]
    assert sorted(path.name for path in out.parent.iterdir()) == ["F.h5", "F.html"]
    again = mpiexec(2, RANKS, *QUICK, "--out", out)
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (2, "", 1)
    assert "a new file" in again.stderr


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--uplink"], "--uplink: uplinks are judged among at least 4 racks"),
        (["--racks", "racks"], "--racks: no rack is given for n1"),
        (["--racks", "nowhere"], "--racks: 'nowhere' cannot be read"),
    ],
)
def test_what_does_not_fit_the_nodes_is_said_once(mpiexec, tmp_path, monkeypatch, words, reason):
    monkeypatch.chdir(tmp_path)
    Path("racks").write_text("n0 a\n")
    result = mpiexec(2, RANKS, *QUICK, *words, "--out", "F.h5")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert reason in result.stderr
    assert not Path("F.h5").exists()


@pytest.mark.mpi
def test_ranks_of_one_node_are_bad_input(mpiexec):
    result = mpiexec(2, "-m", "hpccoll", "diagnose")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert "launch: a diagnosis takes two nodes at least" in result.stderr


@pytest.mark.mpi
def test_a_signal_ends_the_diagnosis_and_what_was_measured_is_kept_until_the_next_one(
    mpiexec,  # noqa: ARG001
    tmp_path,
):
    out = tmp_path / "F.h5"
    errors = tmp_path / "errors"
    command = "mpiexec", "-n", "2", sys.executable, RANKS, "--seconds", "1", "--out", out
    with errors.open("w") as stderr, launched(command, env=ENVIRONMENT, stderr=stderr) as run:
        wait(lambda: " slots " in errors.read_text(), "no slot is measured")
        run.send_signal(signal.SIGUSR1)
        printed, _ = run.communicate(timeout=LONG_S)
    complaints = errors.read_text()
    assert run.returncode == 3, printed + complaints
    assert "Traceback" not in printed + complaints
    assert printed.startswith("the diagnosis was interrupted")
    diagnosis = read_diagnosis(out)
    assert diagnosis.diagnosis is None
    assert 0 < sum(len(each.seconds) for each in diagnosis.measured) < 24
    check_new(out)


@pytest.fixture
def with_program(tmp_path, monkeypatch):
    """Return the options of a diagnosis of 8 hosts by a program of nccl-tests, on a machine with faults."""

    def with_program(**faults):
        monkeypatch.setenv("FAULTS", json.dumps(faults))
        hosts = ",".join(f"n{number}" for number in range(8))
        return (
            "--with",
            f"{installed(tmp_path)} -b 2M",
            "--hosts",
            hosts,
            "--launch",
            "env PAIR={hosts}",
        )

    return with_program


@pytest.mark.slow
def test_a_diagnosis_by_a_program_of_others_has_the_same_verdict_file_page_and_exit_code(
    with_program, tmp_path
):
    files = "--out", tmp_path / "F.h5", "--junit", tmp_path / "F.xml"
    result = invoke("diagnose", *with_program(slow={"n2": 1.3}), *files)
    assert (result.code, result.out.splitlines()[0].partition(":")[0]) == (3, "n2 is slow")
    assert (tmp_path / "F.xml").read_text().count("<failure ") == 1
    assert "--exclude=n2" in result.out.splitlines()
    assert "sendrecv_perf prints one time" in result.out
    assert (tmp_path / "F.html").exists()
    again = invoke("diagnose", "--report", tmp_path / "F.h5")
    assert (again.code, again.out.splitlines()[:2]) == (3, result.out.splitlines()[:2])


def test_a_program_that_fails_on_a_host_is_named_and_ends_the_command_with_3(with_program):
    result = invoke("diagnose", *with_program(broken=["n5"]), "--json")
    verdict = json.loads(result.out)
    assert (result.code, verdict["verdicts"], verdict["unjudged"]) == (3, [], ["n5"])
    (failed,) = (each for each in verdict["findings"] if each["kind"] == "launches_failed")
    assert (failed["host"], failed["severity"]) == ("n5", "critical")


def test_a_program_that_fails_everywhere_is_one_line(with_program):
    hosts = [f"n{number}" for number in range(8)]
    assert invoke("diagnose", *with_program(broken=hosts)).is_bad_input(
        "--with: sendrecv_perf failed on 4 pairs"
    )


@pytest.mark.parametrize(
    "option", [("--rate", "1gbit"), ("--directions", "together"), ("--seconds", "1")]
)
def test_options_of_our_own_transfers_are_refused_beside_a_program(with_program, option):
    assert invoke("diagnose", *with_program(), *option).is_bad_input(
        f"{option[0]}: not with --with"
    )


@pytest.mark.parametrize("option", [("--hosts", "n1,n2"), ("--launch", "env {hosts}")])
def test_options_of_a_program_need_one(option):
    assert invoke("diagnose", *option).is_bad_input(f"{option[0]}: only with --with")


@pytest.mark.mpi
def test_a_reader_of_stdout_that_has_gone_costs_no_measurement(mpiexec, tmp_path):
    out = tmp_path / "F.h5"
    program = f"import os, sys; os.close(1); sys.argv = ['x', *sys.argv[1:]]; exec(open({str(RANKS)!r}).read())"
    result = mpiexec(2, "-c", program, *QUICK, "--out", out)
    assert result.returncode
    assert read_diagnosis(out).diagnosis is not None
