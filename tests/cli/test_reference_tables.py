"""``hpccoll list WORD``: reference tables from the code, and the entries of a kind or of a name."""

import json

import pytest
import yaml
from cli_runner import invoke

from hpccoll.cli.reference_tables import REFERENCES


def listed(*words):
    return json.loads(invoke("list", *words, "--json").out)


@pytest.mark.parametrize("word", REFERENCES)
def test_a_reference_has_a_line_for_each_entry_with_its_meaning(word):
    rows = listed(word)
    assert len({row["name"] for row in rows}) == len(rows)
    assert all(row["meaning"] for row in rows)
    lines = invoke("list", word).out.splitlines()
    assert [line.split()[0] for line in lines] == [row["name"] for row in rows]


@pytest.mark.parametrize(
    ("word", "key", "required", "default"),
    [
        ("sweep", "rounds", False, "3"),
        ("sweep", "in_place", False, "false, true"),
        ("sweep", "bytes.from", True, ""),
        ("site", "container.image", True, ""),
        ("site", "signal_s", False, "60"),
        ("machine", "tiers.latency_s", True, ""),
        ("machine", "NUMBER.low", False, ""),
    ],
)
def test_keys_of_files_have_their_defaults(word, key, required, default):
    (row,) = [row for row in listed(word) if row["name"] == key]
    assert (row["required"], row["default"]) == (required, default)


def test_a_kind_and_a_name_select_entries():
    assert {line.split()[0] for line in invoke("list", "transports").out.splitlines()} >= {
        "transport"
    }
    assert listed("variants")["algorithms"] == []
    assert {row["collective"] for row in listed("ring")["algorithms"]} >= {
        "all_reduce",
        "all_gather",
    }
    assert {row["collective"] for row in listed("broadcast")["algorithms"]} >= {"broadcast"}
    assert not any(listed("nccl-tree")[kind] for kind in ("algorithms", "transports", "models"))


def test_a_word_filters_by_parts_of_names_and_by_descriptions():
    switches = listed("switch")
    # whose ranks play switches
    assert {row["name"] for row in switches["algorithms"]} == {"sharp_emulated"}
    assert {row["name"] for row in switches["variants"]} >= {"nccl-nvls"}
    assert (
        [row["name"] for row in listed("LLAMA")["models"]]
        == [row["name"] for row in listed("llama")["models"]]
        != []
    )
    assert {*switches["collectives"]} == {"all_reduce"}
    shown = invoke("list", "switch").out
    assert "ranks that play switches" in shown
    assert invoke("list", "brodcast").is_bad_input("did you mean broadcast?")


def test_a_part_of_a_name_or_the_gpu_of_a_cluster_finds_it():
    names = {row["name"] for row in listed("h100")["clusters"]}
    assert names >= {"8xh100-400g", "aws-p5", "gcp-a3-high"}
    assert not any("b200" in name for name in names)
    assert [row["name"] for row in listed("a4x-max")["clusters"]] == ["gcp-a4x-max"]
    assert "cluster aws-p5 (AWS p5.48xlarge" in invoke("list", "H100").out
    assert invoke("list", "8xh10").out.startswith("cluster 8xh100-400g (Nodes of 8 H100")


def test_a_described_cluster_is_printed_as_its_file_and_as_json_with_what_it_is_like():
    text = invoke("list", "clusters", "8xh200-400g").out
    assert yaml.safe_load(text)["like"] == "8xh100-400g"
    content = json.loads(invoke("list", "clusters", "8xh200-400g", "--json").out)
    assert (content["name"], content["class"]["fabric"]) == ("8xh200-400g", "nvlink4")
    assert content["tiers"].keys() == {"node", "rack", "fabric"}


@pytest.mark.parametrize(
    ("words", "named"),
    [(("clusters", "8xh100-400"), "did you mean 8xh100-400g"), (("columns", "x"), "list clusters")],
)
def test_another_word_after_a_reference_is_refused_with_what_is_valid(words, named):
    assert invoke("list", *words).is_bad_input(named)
