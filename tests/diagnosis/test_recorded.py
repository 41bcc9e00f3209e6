"""What a user asks of a diagnosis, and what it is asked of known nodes."""

import pytest

from hpccoll.common.errors import UnusableError
from hpccoll.diagnosis.recorded import DiagnosisOptions

HOSTS = "n1", "n2", "n3"


def test_racks_that_a_user_gives_replace_those_of_the_topology():
    given = DiagnosisOptions(seed=7, links=True, racks={"n3": "b", "n1": "a", "n2": "b", "n9": "c"})
    question = given.question(HOSTS, ["x", "x", "y"], rails=2)
    assert (question.hosts, question.racks, question.rails, question.links) == (
        HOSTS,
        ("a", "b", "b"),
        2,
        True,
    )
    assert DiagnosisOptions(seed=7).question(HOSTS, ["x", "x", "y"]).racks == ("x", "x", "y")
    assert DiagnosisOptions(seed=7).question(HOSTS).racks is None


def test_hosts_without_a_rack_are_named():
    with pytest.raises(UnusableError, match=r"--racks: .*n\[2-3\]"):
        DiagnosisOptions(seed=7, racks={"n1": "a"}).question(HOSTS)
