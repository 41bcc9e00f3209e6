"""UCC that could not be used, in the report; test_log_record.py has the records of its logs."""

from cli_runner import invoke


def problem(place, component, text):
    return f"[1657643132.702496] [n1:7:0]   {place}  {component} ERROR {text}"


RAN = "[1.2] [n1:7  :0]  ucc_coll.c:255  UCC_COLL INFO  coll_init: Barrier; CL_BASIC {TL_UCP}, team_id 32768"


def test_ucc_that_could_not_be_used_is_a_failure_with_its_reason_and_a_warning_if_its_collectives_ran(tmp_path):
    before = problem("tl_ucp_context.c:88", "TL_UCP", "failed to create ucp worker")
    line = problem("ucc_team.c:294", "UCC ", "No CL teams were created")
    (tmp_path / "a.log").write_text(f"{before}\n{line}\n{line.replace('n1:7', 'n2:7')}\n")
    ran = invoke("evidence", tmp_path)
    assert (ran.code, ran.out.count("WRONG")) == (3, 1)
    assert ran.out.startswith("WRONG: UCC is not used: no team was created (ucc_team.c:294: No CL teams")
    assert "warning: tl_ucp_context.c:88: failed to create ucp worker" in ran.out
    (tmp_path / "a.log").write_text(f"{line}\n{RAN}")
    ran = invoke("evidence", tmp_path)
    assert (ran.code, "WRONG" in ran.out, "without UCC: no team was created" in ran.out) == (0, False, True)
