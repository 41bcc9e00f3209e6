"""Messages of addresses: what ranks tell each other before they write into each other's memory."""

from dataclasses import replace

import pytest
from model_observations import MACHINE, observed

from hpccoll.model.address_messages import address_messages
from hpccoll.model.collective_machine import fit_machine_to_collectives
from hpccoll.model.critical_path import PathAddresses
from hpccoll.model.validation import Errors, validate
from hpccoll.schedule import Layout
from hpccoll.store.schema import ADDRESSES, ADDRESSES_OF_ALL, ADDRESSES_OF_PEERS

SIZES = tuple(8 << (3 * k) for k in range(1, 9))


def test_all_ranks_are_told_in_rounds_that_double():
    messages = address_messages(ADDRESSES_OF_ALL, "rack", 8, ports=1)
    assert messages == {PathAddresses("rack", 16 << k, 0): 1 for k in range(3)}


@pytest.mark.parametrize(("ports", "times"), [(1, 1), (3, 1), (4, 2), (6, 2)])
def test_peers_are_told_at_once_and_those_of_the_other_way_round_afterwards(ports, times):
    messages = address_messages(ADDRESSES_OF_PEERS, "rack", 64, ports)
    assert messages == {PathAddresses("rack", 16 * ports, 5): times}


def told(nodes, told_s, **params):
    """Return what all-gathers take on some nodes if each takes longer by a time."""
    cases = []
    for algorithm in ("ring", "bruck", "recursive_doubling"):
        layout = Layout.of(nodes, 1)
        about = {"key": ("job", f"run on {nodes}", "")}
        for case in observed(
            "all_gather", algorithm, layout, MACHINE, SIZES, 0.02, about=about, **params
        ):
            cases.append(replace(case, seconds=case.seconds + told_s(nodes)))
    return cases


def test_ranks_that_are_told_addresses_first_take_longer_on_more_nodes():
    def told_s(nodes):
        return 6e-5 * nodes.bit_length()

    cases = []
    for nodes in (4, 8, 16, 64):
        cases += told(nodes, lambda _nodes: 0.0)
        cases += told(nodes, told_s, **{ADDRESSES: ADDRESSES_OF_ALL})
    fit = fit_machine_to_collectives(cases, "addresses", 16)
    predicted = validate(cases, fit.machine.machine(), fit.used)
    assert Errors.of([case for case in predicted if case.held_out]).error_median < 0.1
    reasons = {case.reason for case in validate(cases, MACHINE)}
    assert reasons == {"", "messages of addresses are not simulated"}
