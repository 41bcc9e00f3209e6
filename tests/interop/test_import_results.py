"""``hpccoll import``: outputs of other benchmarks as a raw file that every reader opens, and no answer is made from."""

import json
from pathlib import Path

import pytest
from cli_runner import invoke
from golden_page import assert_golden
from hypothesis import given
from hypothesis import strategies as st
from imported_outputs import ALL, OUTPUTS, given_for, import_example, import_files, read_example
from printed_outputs import nccl_tests_table
from raw_examples import raw

import hpccoll
from hpccoll.common.errors import BadInputError
from hpccoll.interop.benchmark_output import SuppliedMetadata
from hpccoll.interop.import_results import notes, raw_results, read_output
from hpccoll.store.hdf5 import write_raw_file
from hpccoll.store.load_results import read_results

OSU = OUTPUTS / "osu_allreduce.txt"


INPUTS = Path(__file__).parents[1] / "inputs"
FILES = [
    *sorted(OUTPUTS.iterdir()),
    *sorted(path for path in INPUTS.iterdir() if path.suffix in (".txt", ".json")),
]


def lines_of(path):
    """Yield what is read of an output; times are in microseconds, as the programs print them."""
    try:
        output = read_output(path, given_for(path.name))
    except BadInputError as refused:
        yield f"{path.name}: refused: {refused.key.removeprefix(f'{path.parent}/')}"
        return
    cut, remarks = ", cut" if output.truncated else "", len(output.remarks) + len(output.too_small)
    yield f"{path.name}: {output.source}, {output.program}, {output.library}, {remarks} remarks{cut}"
    for result in output.results:
        case, checked = result.case, "failed" if result.failure else result.wrong
        yield " ".join(
            map(
                str,
                (
                    " ",
                    case.collective,
                    case.algorithm,
                    dict(case.params),
                    case.transport,
                    case.device,
                    case.dtype,
                    case.op,
                    "in place" if case.in_place else "out of place",
                    "root",
                    case.root,
                    case.bytes,
                    "B,",
                    case.ranks,
                    "ranks on",
                    case.nodes,
                    case.timing,
                    round(result.seconds * 1e6, 6),
                    "wrong:",
                    checked,
                ),
            )
        )


def test_every_example_has_the_results_that_it_prints_or_is_refused():
    assert_golden(
        "outputs",
        [line for path in FILES for line in lines_of(path)],
        Path(__file__).parent / "golden",
    )


def test_sizes_below_an_element_for_each_rank_are_one_note(tmp_path):
    path = tmp_path / "all_gather.txt"
    lines, _ = nccl_tests_table(
        "all_gather", {size: [9.0, 9.5] for size in (8, 16, 32, 64, 128)}, 16, 2, redop="none"
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    output = read_output(path, SuppliedMetadata())
    assert {result.case.bytes for result in output.results} == {64, 128}
    assert [note.partition(" are ")[0] for note in notes(path, output)] == [
        f"{path}: sizes of all_gather of 8 to 32 bytes"
    ]


def import_text(name, text, out):
    """Run the command on a text with what the user says about an example."""
    path = out.with_suffix(".txt")
    path.write_text(text)
    return import_files(out, path, ranks=given_for(name).ranks, nodes=given_for(name).nodes)


@pytest.mark.parametrize("name", ALL)
def test_rows_of_an_import_are_the_results_of_the_output(name, tmp_path):
    rows = import_example(name, tmp_path / "imported.h5")
    output = read_example(name)
    seconds = {result.case.id: result.seconds for result in output.results}
    assert {row.case_id: row.median_s for row in rows} == pytest.approx(seconds, abs=1e-9)
    assert {(row.kind, row.source, row.rounds) for row in rows} == {("imported", output.source, 1)}
    wrong = {result.case.id for result in output.results if result.wrong or result.failure}
    assert {row.case_id for row in rows if row.status == "wrong"} == wrong
    assert all(row.reason for row in rows if row.status == "wrong" and not row.wrong)


def test_an_import_is_a_raw_file_for_every_reader(tmp_path):
    out = tmp_path / "imported.h5"
    rows = import_example("nccl_broadcast_blocking.txt", out)
    assert invoke("status", out).code == 3  # a result is wrong, and the file is whole
    exported = invoke("export", out, "--format", "json")
    assert {row["case_id"] for row in json.loads(exported.out)} == {row.case_id for row in rows}
    assert len(hpccoll.open(out).rows) == len(rows)
    wrong = any(row.status == "wrong" for row in rows)
    assert invoke("report", out, "--out", tmp_path / "report").code == (3 if wrong else 0)


def test_outputs_of_several_programs_or_libraries_and_more_nodes_than_ranks_are_refused(tmp_path):
    out, nccl = tmp_path / "out.h5", OUTPUTS / "nccl_all_reduce.txt"
    assert import_files(out, OSU, OUTPUTS / "imb_nbc.txt", ranks=4).is_bad_input("osu", "imb")
    newer = tmp_path / nccl.name
    newer.write_text(nccl.read_text().replace("22707", "23004"))
    assert invoke("import", nccl, newer, "--out", out).is_bad_input("NCCL 2.27.7", "NCCL 2.30.4")
    assert import_files(out, OSU, ranks=2, nodes=4).is_bad_input("--nodes", 4, 2)
    assert not out.exists()
    assert import_files(out, OSU, library="Open MPI 5.0.3").code == 0
    assert "Open MPI 5.0.3" in read_results([out]).runs[0].provenance["library"]


def test_the_environment_in_the_json_of_nccl_tests_is_not_kept(tmp_path):
    out = tmp_path / "nccl.h5"
    import_example("nccl_all_gather.json", out)
    assert b"do-not-keep" in (OUTPUTS / "nccl_all_gather.json").read_bytes()
    everything = out.read_bytes() + invoke("export", out).out.encode()
    assert b"do-not-keep" not in everything
    assert "SECRET_TOKEN" not in repr(read_results([out]).runs)


def test_a_machine_is_fitted_to_messages_of_an_import_and_nothing_is_chosen_from_it(tmp_path):
    out, made = tmp_path / "osu.h5", tmp_path / "made.json"
    sizes = "".join(f"{1 << power:<10} {2 + power}.00\n" for power in range(1, 16))
    many = (OUTPUTS / "osu_latency.txt").read_text().replace("1048576", f"{sizes}1048576")
    assert import_text("osu_latency.txt", many, out).code == 0
    assert invoke("tune", out, "--out", made).code == 2
    assert not made.exists()
    assert invoke("fit", out, "--out", made).code == 0


def test_results_of_ours_are_never_replaced(tmp_path):
    ours, text = tmp_path / "ours.h5", tmp_path / "notes.h5"
    write_raw_file(raw(), ours)
    text.write_text("not a raw file")
    for out in (ours, text):
        before = out.read_bytes()
        assert import_files(out, OSU).is_bad_input("--out", out.name)
        assert out.read_bytes() == before


@pytest.mark.parametrize("name", [name for name in ALL if name.endswith("txt")])
def test_an_output_without_its_last_line_is_said_to_be_cut_and_lacks_the_result_that_it_ends_within(
    name, tmp_path
):
    text = (OUTPUTS / name).read_text()
    row = next(
        line for line in reversed(text.splitlines(keepends=True)) if line.strip()[:1].isdigit()
    )
    end = text.rindex(row) + len(row)
    without_row = import_text(name, text[: end - len(row)], tmp_path / "without.h5")
    for cut in range(1, 4):
        ended = import_text(name, text[: end - cut].rstrip(" "), tmp_path / "cut.h5")
        assert f"out.txt: line {text[:end].count(chr(10))}".replace("out", "cut") in ended.err
        assert ended.code == (2 if without_row.code == 2 else 3)
    if without_row.code != 2:
        rows, others = (read_results([tmp_path / file]).rows for file in ("cut.h5", "without.h5"))
        assert [row.median_s for row in rows] == [row.median_s for row in others]
    ended = import_text(name, text[:end], tmp_path / "out.h5")
    assert (ended.code, "cut short" in ended.err) == (
        (0, False) if name.startswith("osu") else (3, True)
    )
    assert len(read_results([tmp_path / "out.h5"]).rows) == len(read_example(name).results)


ENDS = {
    "time limit": "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-02-02T11:00:21 DUE TO TIME LIMIT ***\n",
    "cancelled step": "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-02-02T11:00:21 ***\n",
    "memory": "srun: error: n1: task 3: Out Of Memory\n",
    "Open MPI": f"{'-' * 74}\nmpirun noticed that process rank 1 with PID 9 on node n1 exited on signal 9 (Killed).\n",
    "Hydra": f"\n{'=' * 82}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n",
}
"""What launchers write into the output of a program that they end."""


@pytest.mark.parametrize(("end", "prefix"), [*((end, "") for end in ENDS), ("time limit", "0: ")])
@pytest.mark.parametrize("name", ["nccl_all_reduce.txt", "osu_allreduce.txt", "imb_mpi1.txt"])
def test_an_output_whose_program_a_launcher_ended_is_cut_and_lacks_the_row_that_is_not_whole(
    name, end, prefix, tmp_path
):
    whole = (OUTPUTS / name).read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(whole) if line.strip()[:1].isdigit())
    before = "".join(prefix + line for line in whole[:last])
    row = prefix + whole[last].rstrip()
    results = {}
    for kind, text in {
        "without": before,
        "cut": f"{before}{row[:-4]}\n",
        "glued": before + row[:-4],
        "whole": f"{before}{row}\n",
    }.items():
        if kind == "glued" and not ENDS[end].startswith(("slurm", "srun")):
            continue  # these begin a line
        ended = import_text(name, text + ENDS[end], tmp_path / f"{kind}.h5")
        assert (ended.code, "cut short" in ended.err) == (3, True), kind
        results[kind] = [row.median_s for row in read_results([tmp_path / f"{kind}.h5"]).rows]
    assert {
        len(times) - len(results["without"]) for kind, times in results.items() if kind != "whole"
    } == {0}
    assert len(results["whole"]) > len(results["without"])


def test_a_job_that_goes_on_after_its_benchmark_and_is_cancelled_then_cut_no_output_that_has_its_last_line(
    tmp_path,
):
    name = "nccl_all_reduce.txt"
    ended = import_text(
        name, (OUTPUTS / name).read_text() + ENDS["time limit"], tmp_path / "out.h5"
    )
    assert (ended.code, "the program was ended" in ended.err) == (0, True)


def test_a_first_row_that_is_cut_leaves_nothing_and_a_whole_row_that_contradicts_itself_is_still_refused(
    tmp_path,
):
    head, rows = (
        OSU.read_text().split("\n", 4)[:4],
        ["8                 5.10", "16                5.2"],
    )
    assert (
        "no result"
        in import_text(OSU.name, "\n".join([*head, "8", ENDS["memory"]]), tmp_path / "a.h5").err
    )
    wrong = "\n".join([*head, rows[0], "16 KiB            5.20", ENDS["memory"]])
    assert import_text(OSU.name, wrong, tmp_path / "b.h5").is_bad_input("16 KiB")


def test_tables_of_two_processes_at_the_same_time_are_refused(tmp_path):
    by_turns = "".join(f"0: {line}1: {line}" for line in OSU.read_text().splitlines(keepends=True))
    assert import_text(OSU.name, by_turns, tmp_path / "out.h5").is_bad_input("'0:'", "'1:'")


def test_a_message_quotes_at_most_three_lines_and_lines_of_other_processes_are_said_to_be_left_out(
    tmp_path,
):
    labelled = "".join(f"0: {line}" for line in OSU.read_text().splitlines(keepends=True))
    more = "".join(f"0: launcher says {number}\n" for number in range(50))
    ended = import_text(OSU.name, f"{labelled}{more}1: something\n", tmp_path / "out.h5")
    assert 0 < ended.err.count("launcher says") <= 3
    assert ("47 more lines" in ended.err, "'0:'" in ended.err) == (True, True)
    refused = import_text(OSU.name, f"{labelled.partition('0: 4 ')[0]}{more}", tmp_path / "out.h5")
    assert (refused.code, refused.err.count("launcher says") <= 3) == (2, True)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("outputs")


WORDS = (
    b"-1",
    b"nan",
    b"inf",
    b"1e308",
    b"9" * 5000,
    b"0",
    "\N{ARABIC-INDIC DIGIT THREE}".encode(),
    b"[]",
    b"null",
    b"",
)
"""What is bad, or at least unusual, in place of a word of an output."""


@given(
    name=st.sampled_from(ALL),
    byte=st.binary(min_size=1, max_size=1),
    new=st.sampled_from(WORDS),
    data=st.data(),
)
def test_an_output_that_is_cut_or_has_another_byte_or_word_is_imported_or_refused(
    name, byte, new, data, directory
):
    content, path = (OUTPUTS / name).read_bytes(), directory / name
    at = data.draw(st.integers(0, len(content) - 1))
    old = data.draw(st.sampled_from(content.replace(b",", b" ").replace(b":", b" ").split()))
    for damaged in (
        content[:at],
        content[:at] + byte + content[at + 1 :],
        content.replace(old, new),
    ):
        path.write_bytes(damaged)
        try:
            output = read_output(path, given_for(name))
            made = raw_results({path: output}, directory / "out.h5")
        except BadInputError:
            continue
        assert (bool(made.job.cases), all(result.seconds > 0 for result in output.results)) == (
            True,
            True,
        )
