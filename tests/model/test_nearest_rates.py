"""The published figures that are nearest to a call: what may differ, what is named, and what says nothing."""

import pytest

from hpccoll.model.machine_file import read_machine
from hpccoll.model.nearest_rates import NEWER, UNJUDGED, nearest_rates
from hpccoll.model.published_rates import TABLE, PublishedCall, with_tables

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
COLUMNS = TABLE.read_text().partition("\n")[0]
H100 = read_machine("8xh100-400g", "--cluster")


@pytest.fixture
def nearest(tmp_path):
    """Return a function that returns what differs, and the rates in GB/s, of figures and a call."""

    def of(figures, cluster=H100, **changes):
        table = tmp_path / "ours.csv"
        rows = []
        for number, figure in enumerate(figures):
            cells = FIGURE | {"source": f"source/{number}"} | figure
            rows.append(",".join(str(cells[column]) for column in COLUMNS.split(",")))
        table.write_text("\n".join([COLUMNS, *rows, ""]))
        call = PublishedCall(**(CALL | changes))
        with with_tables(table):
            found = nearest_rates(cluster, call)
        if found is None:
            return None
        rates = {rate / 1e9 for source in found.by_source.values() for rate in source.rates}
        return found.unlike, sorted(rates)

    return of


CALL = {
    "collective": "reduce",  # of which nothing is in the table of the package
    "nodes": 4,
    "ranks_per_node": 8,
    "nbytes": GIB,
    "dtype": "float32",
    "in_place": False,
}
FIGURE = {
    "fabric": "nvlink4",
    "network": "400g",
    "gpus_per_node": 8,
    "nodes": 4,
    "collective": "reduce",
    "bytes": GIB,
    "dtype": "float32",
    "in_place": "no",
    "algorithm": "",
    "forced": "",
    "busbw_GBps": 100,
    "library": "2.30.1",
    "machine": "m",
    "gpu": "H100",
    "operator": "",
    "source": "",
    "healthy": "yes",
}


@pytest.mark.parametrize(
    ("figure", "unlike"),
    [
        ({}, ()),
        ({"gpu": "H20"}, ("H20",)),
        ({"fabric": "nvlink5", "gpu": "B200"}, ("B200",)),  # the ports are narrower than either
        ({"nodes": 3}, ("3 nodes",)),
        ({"nodes": 8}, ("8 nodes",)),
        ({"dtype": "int8"}, ("int8",)),
        ({"bytes": 1 << 31}, None),
        ({"bytes": 512 * MIB}, None),
        ({"healthy": ""}, (UNJUDGED,)),
        ({"nodes": 2}, None),
        ({"nodes": 9}, None),
        ({"gpus_per_node": 4}, None),
        ({"network": "200g"}, None),
        ({"network": ""}, None),
        ({"collective": "all_gather"}, None),
        ({"algorithm": "tree", "forced": "yes"}, None),
        ({"library": "2.18.5"}, None),
        ({"library": "RCCL 2.27"}, None),
    ],
)
def test_a_figure_may_differ_in_what_matters_little_which_is_named(figure, unlike, nearest):
    assert nearest([figure]) == (unlike if unlike is None else (unlike, [100.0]))


def test_across_nodes_a_call_of_an_old_nccl_is_beside_figures_of_newer_ones_after_those_as_old(
    nearest,
):
    newer, as_old = {}, {"library": "2.12.7", "busbw_GBps": 80}
    assert nearest([newer], library="2.18.5") == ((NEWER,), [100.0])
    assert nearest([newer, as_old], library="2.18.5") == ((), [80.0])
    on_one_node = {"network": "", "nodes": 1}
    assert nearest([newer | on_one_node], library="2.18.5", nodes=1) == ((), [100.0])


@pytest.mark.parametrize(
    ("figure", "call", "unlike"),
    [
        ({"fabric": "x", "gpu": "X1", "gpus_per_node": 1, "nodes": 2}, {}, ("X1",)),
        ({"gpus_per_node": 1, "nodes": 2, "collective": "all_gather"}, {}, ("all_gather",)),
        ({"gpus_per_node": 1, "nodes": 2}, {"algorithm": "ring"}, ()),
        (
            {"gpus_per_node": 1, "nodes": 2, "collective": "broadcast"},
            {"collective": "reduce"},
            None,
        ),
    ],
)
def test_between_two_nodes_of_a_gpu_each_the_ports_alone_count(figure, call, unlike, nearest):
    place = {"collective": "reduce_scatter", "nodes": 2, "ranks_per_node": 1}
    found = nearest([{"collective": "reduce_scatter"} | figure], **(place | call))
    assert found == (unlike if unlike is None else (unlike, [100.0]))


def test_a_forced_algorithm_is_beside_what_runs_by_default_and_the_least_unlike_figures_count(
    nearest,
):
    default, other = {}, {"nodes": 8, "busbw_GBps": 90}
    assert nearest([default, other], algorithm="ring") == (("by default",), [100.0])
    assert nearest([default, other]) == ((), [100.0])
    assert nearest([other, other]) == (("8 nodes",), [90.0])


def test_between_two_sizes_a_rate_is_between_theirs_and_beyond_the_largest_it_is_that_of_the_largest(
    nearest,
):
    ends = [
        {"source": "one/a", "bytes": 64 * KIB, "busbw_GBps": 1},
        {"source": "one/a", "bytes": MIB, "busbw_GBps": 16},
    ]
    assert nearest(ends, nbytes=256 * KIB) == ((), [pytest.approx(4.0), pytest.approx(8.5)])
    assert nearest(ends, nbytes=2 * MIB) is None
    assert nearest([{}], nbytes=16 * GIB) == (("1 GiB",), [100.0])


def test_types_of_other_sizes_say_nothing_where_nvls_folds_them(nearest):
    on_one_node = {"network": "", "nodes": 1, "collective": "all_reduce", "dtype": "int8"}
    with_int8 = {"nodes": 1, "collective": "all_reduce", "dtype": "float16", "nbytes": 48}
    assert nearest([on_one_node | {"bytes": 48}], **with_int8) is None
    of_float16 = on_one_node | {"bytes": 48, "dtype": "bfloat16"}
    assert nearest([of_float16], **with_int8) == (("bfloat16",), [100.0])
