"""The cases that a request comes to, whether a sweep file or a command line made it."""

import json

import pytest
from job_from_command_line import job
from synthetic_timings import measured_table

from hpccoll.cases.catalogue import algorithms_of, check_case, distinct_placements
from hpccoll.cases.product import count_cases, expand_cases
from hpccoll.cases.transport_table import TRANSPORTS
from hpccoll.cli.run_options import job_from_args
from hpccoll.common.errors import BadInputError
from hpccoll.extensions.steps.cli.train import TRAIN
from hpccoll.schedule import COLLECTIVES, Layout
from hpccoll.store.call_key import CallKey
from hpccoll.sweep.sweep_file import Sweep, load_sweep


def request(**keys):
    return Sweep.model_validate({"algorithms": "all", "bytes": 4096, "ranks": 4, **keys}).request()


def swept(p=4, **keys):
    cases = list(expand_cases(request(**keys), p))
    assert len({case.id for case in cases}) == len(cases) <= count_cases(request(**keys), p)
    return cases


def named(found):
    return {(case.collective, case.algorithm) for case in found}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(measured_table({"ring": {8: 1e-6}}).to_json()))
    return str(path)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_command_line_and_a_sweep_file_make_the_same_cases(name):
    of_file = swept(2, collectives=name, bytes=["4K", "8K"], mapping=["block", "cyclic"])
    of_options = job(
        "-c", name, "-a", "all", "-b", "4K", "-e", "8K", "--mapping", "block,cyclic"
    ).cases
    assert {case.id: case for case in of_options} == {case.id: case for case in of_file}
    for case in of_file:
        check_case(case)
        assert case.in_place in distinct_placements(case.collective, case.algorithm, (False, True))


def test_a_command_line_and_a_sweep_file_make_the_same_training_steps(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "workloads: [{bucket: [5M, 25M], overlap: [true, false]}]\nalgorithms: [ring, native]\nranks: [2]\n"
        "params: {ring: {channels: [1, 2]}}\n"
    )
    options = [
        "--bucket",
        "5M,25M",
        "--overlap",
        "1,0",
        "-a",
        "ring,native",
        "--param",
        "channels=1,2",
    ]
    of_options = job_from_args(TRAIN.build_parser().parse_args(options), Layout.of(2))
    of_file = list(expand_cases(load_sweep(tmp_path / "a.yaml").request(), 2))
    assert {case.id: case for case in of_options.cases} == {case.id: case for case in of_file}
    assert len(of_file) == 2 * 2 * (2 + 1)
    assert {case.bytes for case in of_file} == {102_228_128}


def test_steps_have_the_type_of_their_gradients_and_those_that_move_the_same_types_are_one_case():
    dtypes = ["float32", "bfloat16"]
    step = {"model": "gpt2", "gradient_dtype": "float32", "parameter_dtype": ["float16", "float32"]}
    (alone,) = swept(algorithms="ring", dtypes=dtypes, workloads=[step])
    (plain,) = swept(algorithms="ring", workloads=[{"model": "gpt2", "sequence_length": [1024]}])
    # without sharding, tensor or expert parallelism, or stages only gradients move
    assert alone.id == plain.id
    step |= {"sharding": "zero1", "parallel": "tp=2"}
    found = swept(algorithms="ring", dtypes=dtypes, workloads=[step])
    keys = {
        (case.dtype, case.params.get("parameter_dtype"), case.params.get("activation_dtype"))
        for case in found
    }
    assert keys == {
        ("float32", "float16", None), ("float32", None, None),
        ("float32", "float16", "bfloat16"), ("float32", None, "bfloat16"),
    }  # fmt: skip
    assert {case.bytes for case in found} == {4 * 124_439_808}
    assert len({CallKey.of_case(case) for case in found}) == len(found)
    step["activation_dtype"] = "float32"
    assert len(swept(algorithms="ring", dtypes=dtypes, workloads=[step])) == 2


def test_a_config_in_a_folder_with_the_name_of_a_model_is_another_model_of_a_sweep(tmp_path):
    path = tmp_path / "gpt2" / "config.json"
    path.parent.mkdir()
    config = {
        "model_type": "gpt2",
        "n_layer": 2,
        "n_embd": 64,
        "vocab_size": 128,
        "n_positions": 256,
    }
    path.write_text(json.dumps(config))
    found = swept(
        algorithms="ring", workloads=[{"model": ["gpt2", str(path)], "sequence_length": [128, 256]}]
    )
    assert [(case.params["model"], case.params.get("sequence_length"), case.bytes) for case in found] == [
        ("gpt2", 128, 497_759_232), ("gpt2", 256, 497_759_232),
        ("gpt2-config", 128, 498_688), ("gpt2-config", None, 498_688),
    ]  # fmt: skip


def test_all_selects_every_algorithm_but_floors_and_adds_to_others(table):
    assert named(swept(collectives="all")) == {
        (name, each) for name in COLLECTIVES for each in algorithms_of(name)
    }
    every = {("all_reduce", each) for each in algorithms_of("all_reduce")}
    found = swept(algorithms=["all", "auto", "null", "ring"], table=table)
    assert named(found) == {*every, ("all_reduce", "auto"), ("all_reduce", "null")}
    assert {case.collective for case in swept(collectives=["barrier", "all"])} == {*COLLECTIVES}


def test_every_collective_takes_those_of_the_algorithms_that_it_has():
    found = swept(collectives=["all_gather", "all_to_all"], algorithms=["ring", "bruck"])
    assert named(found) == {
        ("all_gather", "ring"),
        ("all_gather", "bruck"),
        ("all_to_all", "bruck"),
    }
    with pytest.raises(
        BadInputError,
        match="one of broadcast: auto, bine, bine_large, binomial, chain, direct, knomial, native, null",
    ):
        swept(collectives=["all_gather", "broadcast"], algorithms=["ring"])


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("ends", [(0, 3)]),
        ("all", [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
        ([[2, 1], [0, 7]], [(2, 1), (0, 7)]),  # pairs that do not fit are skipped with the reason
    ],
)
def test_pairs_are_the_ends_all_or_those_that_are_named(pairs, expected):
    found = swept(collectives="send_recv", algorithms="ping_pong", pairs=pairs)
    assert [(case.root, case.params["peer"]) for case in found] == expected


def test_arguments_and_parameters_belong_to_those_that_have_them():
    found = swept(collectives=["gather", "all_gather"], algorithms="native", roots=[0, 3])
    assert {(case.collective, case.root) for case in found} == {
        ("gather", 0),
        ("gather", 3),
        ("all_gather", None),
    }
    found = swept(
        collectives=["multi_pair", "bidirectional"],
        algorithms="exchange",
        concurrent=[0, 7],
        mapping="block",
    )
    assert [
        (case.collective, case.root, case.params.get("concurrent"), case.mapping) for case in found
    ] == [
        *(("multi_pair", None, pairs, "block") for pairs in (0, 7)),
        ("bidirectional", 0, None, None),
    ]
    params = {"chain": {"channels": [1, 4]}, "ring": {"segment": ["64K", 65536, "1M"]}}
    found = swept(
        collectives=["all_reduce", "broadcast"],
        algorithms=["ring", "chain"],
        params=params,
        in_place=False,
    )
    assert [dict(case.params) for case in found] == [
        {"segment": 65536},
        {"segment": 1 << 20},
        {"channels": 1},
        {"channels": 4},
    ]


def test_a_floor_has_one_case_of_several_cuts_of_nothing():
    params = {"null": {"channels": [1, 4], "graph": [0]}, "ring": {"channels": [1, 4]}}
    found = swept(algorithms=["null", "ring"], params=params, in_place=False)
    assert [(case.algorithm, case.params["channels"]) for case in found] == [
        ("null", 1),
        ("ring", 1),
        ("ring", 4),
    ]


def test_a_step_without_collectives_is_measured_once_for_all_compressions():
    step = {"model": ["resnet50"], "compress": ["none", "fp16", "topk=1%"], "feedback": [0, 1]}
    found = swept(algorithms=["null", "ring"], workloads=[step])
    assert [dict(case.params) for case in found if case.algorithm == "null"] == [
        {"model": "resnet50"}
    ]
    assert sum(case.algorithm == "ring" for case in found) == 5


def test_a_file_of_traffic_is_named_with_a_digest_of_its_content(tmp_path):
    (tmp_path / "experts.csv").write_text("0,1\n3,0\n")
    traffic = ["uniform", str(tmp_path / "experts.csv")]
    found = swept(p=2, collectives="all_to_all_v", algorithms="native", traffic=traffic)
    assert [case.params["traffic"].partition("#")[0] for case in found] == traffic
    assert "#" in found[1].params["traffic"]


def test_each_device_has_the_transports_that_move_its_buffers_and_timings_are_an_axis():
    keys = {
        "algorithms": ["ring", "native"],
        "devices": ["cpu", "cuda"],
        "transports": ["nccl", "mpi", "shm"],
    }
    assert [(case.algorithm, case.device, case.transport) for case in swept(**keys, in_place=False)] == [
        ("ring", "cpu", "mpi"), ("ring", "cpu", "shm"), ("native", "cpu", "mpi"),
        ("ring", "cuda", "nccl"), ("ring", "cuda", "mpi"), ("native", "cuda", "nccl"), ("native", "cuda", "mpi"),
    ]  # fmt: skip
    timed = swept(
        algorithms="native",
        devices="cuda",
        transports="nccl",
        in_place=True,
        timing=[*TRANSPORTS["nccl"].timings],
    )
    assert [case.timing for case in timed] == ["single", "aggregated", "nccl-tests"]


def test_load_is_an_axis_of_collectives_and_idle_cases_are_those_without_it():
    def loads(*entries):
        found = swept(
            algorithms="ring",
            in_place=True,
            load=[*entries],
            workloads=[{"model": ["resnet50"]}],
            collectives="all_reduce",
        )
        return [(case.collective, case.load) for case in found]

    assert loads("idle", "gemm") == [
        ("all_reduce", None),
        ("all_reduce", "gemm"),
        ("training_step", None),
    ]
    assert swept(algorithms="ring", load="idle") == swept(algorithms="ring")
    options = "-a", "ring", "-b", "4K", "-e", "4K"
    of_options = job(*options, "--load", "idle,gemm").cases
    assert sorted(of_options, key=str) == sorted(
        swept(2, algorithms="ring", load=["idle", "gemm"]), key=str
    )


def test_only_cases_over_nccl_are_graphs():
    keys = {"devices": ["cuda"], "algorithms": ["ring", "native"], "in_place": [True]}
    params = {"ring": {"graph": [0, 1]}, "native": {"graph": [1]}}
    found = swept(**keys, transports=["nccl", "mpi"], params=params)
    assert sorted((case.algorithm, case.transport, case.params["graph"]) for case in found) == [
        ("native", "nccl", 1), ("ring", "mpi", 0), ("ring", "nccl", 0), ("ring", "nccl", 1),
    ]  # fmt: skip
    for transports, graph in (["nccl"], 2), (["mpi"], 1):
        with pytest.raises(BadInputError, match=f"parameter graph: {graph}"):
            swept(**keys, transports=transports, params={"ring": {"graph": [graph]}})


def test_only_schedules_over_peer_have_a_protocol():
    keys = {"devices": ["cuda"], "algorithms": ["ring", "native"], "in_place": [True]}
    params = {"ring": {"protocol": ["ll", "simple"]}, "native": {}}
    found = swept(**keys, transports=["nccl", "peer"], params=params)
    chosen = [(case.algorithm, case.transport, case.params.get("protocol")) for case in found]
    assert sorted(chosen, key=str) == [
        ("native", "nccl", None),
        ("ring", "nccl", None),
        ("ring", "peer", "ll"),
        ("ring", "peer", "simple"),
    ]
    for transports, protocol in (["peer"], "LL128"), (["nccl"], "ll"):
        with pytest.raises(BadInputError, match=f"parameter protocol: '{protocol}'"):
            swept(**keys, transports=transports, params={"ring": {"protocol": [protocol]}})


@pytest.mark.parametrize("transports", [["peer"], ["nccl", "peer"]])
def test_a_floor_is_measured_once_whatever_the_protocols(transports):
    keys = {"devices": ["cuda"], "algorithms": ["null"], "in_place": [True]}
    assert (
        len(swept(**keys, transports=transports, params={"null": {"protocol": ["ll", "simple"]}}))
        == 1
    )


def test_a_product_of_any_size_is_counted_without_being_made():
    most = {name: [*range(1, 1001)] for name in ("channels", "window", "segment")}
    assert count_cases(request(algorithms="ring", in_place=True, params={"ring": most}), 4) == 10**9
    assert (
        count_cases(request(collectives="send_recv", algorithms="ping_pong", pairs="all"), 1 << 18)
        > 10**10
    )


@pytest.mark.parametrize(
    "step", ["modle: resnet50", "overlap: maybe", "buckets: dpp", "scale: 0", "model: none.yaml"]
)
def test_a_wrong_key_or_value_of_a_step_is_refused_with_its_name(step, tmp_path):
    (tmp_path / "a.yaml").write_text(f"workloads: [{{{step}}}]\nalgorithms: ring\nranks: 2\n")
    with pytest.raises(BadInputError) as caught:
        load_sweep(tmp_path / "a.yaml")
    assert all(word in str(caught.value) for word in step.split(": "))


def test_steps_are_written_as_people_write_them(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "modules: [{name: fc, tensors: {weight: 100}, forward_flops: 2e+3}]"
    )
    step = {
        "model": str(tmp_path / "mine.yaml"),
        "overlap": False,
        "bucket": "5M",
        "first_bucket": "1M",
        "sequence": 0,
    }
    *others, of_step = expand_cases(
        request(algorithms="ring", collectives=["all_reduce"], workloads=[step]), 2
    )
    assert of_step.params == {
        "model": "mine",
        "overlap": 0,
        "bucket": 5 << 20,
        "first_bucket": 1 << 20,
    }
    assert (of_step.bytes, {case.collective for case in others}) == (400, {"all_reduce"})
