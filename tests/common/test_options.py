"""Sets of options: a user gives exactly one of a set."""

import pytest

from hpccoll.common.errors import UnusableError
from hpccoll.common.options import check_one_given


@pytest.mark.parametrize("given", [{"--a": 3.0}, {"--b": True}])
def test_one_given_option_is_enough(given):
    check_one_given("command", {"--a": None, "--b": False, "--c": ""} | given)


@pytest.mark.parametrize(
    ("values", "named", "hint"),
    [
        ((None, None, None), ["--a", "--b", "--c"], True),
        ((1.0, None, True), ["--a", "--c"], False),
    ],
)
def test_the_refusal_names_what_to_choose_from_or_which_options_exclude_each_other(
    values, named, hint
):
    choices = dict(zip(("--a", "--b", "--c"), values, strict=True))
    with pytest.raises(UnusableError, match=r"^command: ") as caught:
        check_one_given("command", choices, "; do: --help")
    line = str(caught.value)
    assert [name for name in choices if name in line] == named
    assert ("--help" in line) is hint
    assert ("only" in line) is not hint
